#include <boost/json.hpp>
#include <chrono>
#include <cstdlib>

#include "run/report/run_files.hpp"
#include "run/report/run_text.hpp"
#include "test.hpp"

namespace heddle {
namespace {

/// A `sacct` of its own, which stands first in PATH.
class SlurmEnergyTest : public testing::Test {
 protected:
  SlurmEnergyTest() { setenv("PATH", fmt::format("{}:{}", directory_.path().string(), path_).c_str(), 1); }
  ~SlurmEnergyTest() override { setenv("PATH", path_.c_str(), 1); }
  /// It answers by these lines of shell.
  void make_sacct(std::string const& lines) const {
    auto const file = directory_.path() / "sacct";
    std::ofstream(file) << "#!/bin/sh\n" << lines << '\n';
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  }
  static boost::json::object report(std::string const& slurm = R"({"job": "17", "step": "3"})",
                                    std::string const& energy = R"({"joules": null, "reason": "no counters"})") {
    return boost::json::parse(
               fmt::format(R"({{"training": {{"tokens": 4000000}}, "slurm": {}, "energy": {}}})", slurm, energy))
        .as_object();
  }
  static std::string described(boost::json::object report,
                               std::chrono::milliseconds timeout = std::chrono::minutes(1)) {
    add_slurm_energy(report, timeout);
    return describe_energy(report);
  }

  std::string path_ = std::getenv("PATH");
  TemporaryDirectory directory_;
};

TEST_F(SlurmEnergyTest, IsThatOfTheStep) {
  make_sacct(R"([ "$*" = "-j 17.3 --format=ConsumedEnergyRaw --noheader --parsable2" ] && echo 123456)");
  EXPECT_EQ(described(report()), "123,456 J, 30,864.0 J per million tokens (Slurm's accounting of step 17.3)");
}

TEST_F(SlurmEnergyTest, OfAStartThatWasKilledHasNoTokens) {
  make_sacct("echo 5000");
  auto killed = report();
  killed["training"] = nullptr;
  killed["energy"] = nullptr;
  EXPECT_EQ(described(killed), "5,000 J (Slurm's accounting of step 17.3)");
}

TEST_F(SlurmEnergyTest, IsUnknownWhereSlurmDoesNotKnowIt) {
  for (std::string const answer : {"echo 0", "echo", "true", "echo -1", "echo 12K", "echo 99999999999999999999"}) {
    make_sacct(answer);
    EXPECT_EQ(described(report()), "unknown (no counters; sacct knows no energy of step 17.3)") << answer;
  }
  make_sacct("echo 5; exit 1");
  EXPECT_EQ(described(report()), "unknown (no counters; sacct failed)");
}

TEST_F(SlurmEnergyTest, IsNotWaitedForLongerThanTheTimeout) {
  make_sacct("echo 5; sleep 600");
  auto const start = std::chrono::steady_clock::now();
  EXPECT_EQ(described(report(), std::chrono::milliseconds(200)),
            "unknown (no counters; sacct did not answer in 0.2 s)");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST_F(SlurmEnergyTest, NeedsTheProgram) {
  setenv("PATH", directory_.path().c_str(), 1);
  EXPECT_EQ(described(report()), "unknown (no counters; sacct is not in PATH)");
}

TEST_F(SlurmEnergyTest, IsNotAskedForWithoutNeedOrStep) {
  make_sacct("echo 123");
  EXPECT_EQ(described(report(R"({"job": "17", "step": "3"})",
                             R"({"joules": 8, "joules_per_million_tokens": 2.0, "source": "RAPL", "reason": null})")),
            "8 J, 2.0 J per million tokens (RAPL)");
  EXPECT_EQ(described(report("null")), "unknown (no counters)");
  EXPECT_EQ(described(report("null", "null")), "unknown (this start has not ended)");
  EXPECT_EQ(described(report(R"({"job": "17", "step": null})")),
            "unknown (no counters; the run was not started by srun, as a step of its own)");
  expect_contains(described(report(R"({"job": "--help", "step": "3"})")), "was not started by srun");
}

}  // namespace
}  // namespace heddle
