#include "doctor/examination.hpp"

#include "test.hpp"

namespace heddle {
namespace {

using Kind = Finding::Kind;

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
  expect_contains(describe(findings), {"FAILED  files ", "\n1 of 3 checks failed, 1 warning.\n"});
}

TEST(Doctor, ADirectoryThatCannotBeWrittenIsAFailure) {
  TemporaryDirectory const place;
  auto const files = [](std::vector<Finding> const& findings) {
    return *std::ranges::find(findings, "files", &Finding::subject);
  };
  EXPECT_EQ(files(examine({.directory = place.path()})).kind, Kind::good);
  auto const findings = examine({.directory = place.path() / "absent"});
  EXPECT_EQ(files(findings).kind, Kind::failed);
  EXPECT_EQ(exit_code_of(findings), ExitCode::failure);
  expect_lacks(describe(findings), "HURT");
}

}  // namespace
}  // namespace heddle
