#include <sys/resource.h>
#include <sys/stat.h>

#include "commands/commands.hpp"
#include "test.hpp"

namespace heddle {
namespace {

std::int64_t peak_kibibytes() {
  rusage usage{};
  EXPECT_EQ(::getrusage(RUSAGE_SELF, &usage), 0);
  return usage.ru_maxrss;
}

// A test set may be a gzip file of a few kilobytes that holds gigabytes.
TEST(Evaluate, ScoresATextInMemoryThatDoesNotGrowWithIt) {
  TemporaryDirectory const directory;
  std::string const path = directory / "text";
  {
    std::ofstream file(path);
    for (int line = 0; line < 30'000; ++line) {
      file << "a" << std::string(1000, ' ') << "\n";
    }
  }
  std::int64_t const before = peak_kibibytes();
  testing::internal::CaptureStdout();
  EXPECT_EQ(run_evaluate({"--hypotheses", path, "--reference", path}), ExitCode::done);
  EXPECT_NE(testing::internal::GetCapturedStdout().find("hyp_len = 30000"), std::string::npos);
#ifdef __SANITIZE_ADDRESS__
  constexpr std::int64_t allowed = 400'000;  // AddressSanitizer keeps 256 MiB of freed memory
#else
  constexpr std::int64_t allowed = 24'000;
#endif
  EXPECT_LT(peak_kibibytes() - before, allowed) << "the two texts have 30,000 KiB each";
}

TEST(Evaluate, MetricsAreRegisteredOnes) {
  TemporaryDirectory const directory;
  std::string const path = directory.write("text", "a\n").string();
  EXPECT_THROW(run_evaluate({"--hypotheses", path, "--reference", path, "--metric", "crf"}), UsageError);
}

TEST(Evaluate, HypothesesMayHaveTheirSource) {
  TemporaryDirectory const directory;
  std::string const path = directory.write("text", "a\n").string();
  std::string const longer = directory.write("longer", "a\nb\n").string();
  testing::internal::CaptureStdout();
  EXPECT_EQ(run_evaluate({"--hypotheses", path, "--reference", path, "--source", path}), ExitCode::done);
  EXPECT_NE(testing::internal::GetCapturedStdout().find("nrefs:1"), std::string::npos) << "it is not a reference";
  EXPECT_THROW(run_evaluate({"--hypotheses", path, "--reference", path, "--source", longer}), DataError);
}

// Each of them would have got a part of the lines.
TEST(Evaluate, NoPipeIsGivenForTwoTexts) {
  TemporaryDirectory const directory;
  std::string const path = directory.write("text", "a\n").string();
  std::string const pipe = directory / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (Arguments const& arguments :
       {Arguments{"--hypotheses", path, "--reference", pipe, "--baseline", pipe},
        Arguments{"--hypotheses", pipe, "--reference", path, "--baseline", pipe},
        Arguments{"--hypotheses", path, "--reference", path, "--source", pipe, "--baseline", pipe}}) {
    EXPECT_THROW(run_evaluate(arguments), UsageError);
  }
}

}  // namespace
}  // namespace heddle
