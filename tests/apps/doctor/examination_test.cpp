#include "doctor/examination.hpp"

#include <gmock/gmock.h>

#include <algorithm>

#include "temporary_directory.hpp"

namespace heddle {
namespace {

using Kind = Finding::Kind;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(Doctor, AFailedCheckIsSaidAndEndsWithOne) {
  std::vector<Finding> findings{{Kind::good, "mpi", "Open MPI", ""}, {Kind::warning, "threads", "too many", "set one"}};
  EXPECT_EQ(exit_code_of(findings), ExitCode::done);
  EXPECT_EQ(describe(findings),
            "ok      mpi            Open MPI\n"
            "WARNING threads        too many\n"
            "                       -> set one\n"
            "0 of 2 checks failed, 1 warning.\n");
  findings.push_back({Kind::failed, "files", "runs: does not exist", "make it"});
  EXPECT_EQ(exit_code_of(findings), ExitCode::failure);
  EXPECT_THAT(describe(findings),
              AllOf(HasSubstr("FAILED  files "), HasSubstr("\n1 of 3 checks failed, 1 warning.\n")));
}

TEST(Doctor, ADirectoryThatCannotBeWrittenIsAFailure) {
  test::TemporaryDirectory const place;
  auto const files = [](std::vector<Finding> const& findings) {
    return *std::ranges::find(findings, "files", &Finding::subject);
  };
  EXPECT_EQ(files(examine({.directory = place.path()})).kind, Kind::good);
  auto const findings = examine({.directory = place.path() / "absent"});
  EXPECT_EQ(files(findings).kind, Kind::failed);
  EXPECT_EQ(exit_code_of(findings), ExitCode::failure);
  EXPECT_THAT(describe(findings), Not(HasSubstr("HURT")));
}

}  // namespace
}  // namespace heddle
