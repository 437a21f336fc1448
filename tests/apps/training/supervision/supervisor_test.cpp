#include "training/supervision/supervisor.hpp"

#include <sys/stat.h>

#include <chrono>
#include <cstdlib>

#include "test.hpp"
#include "training/supervision/earlier_starts.hpp"

namespace heddle {
namespace {

using std::chrono::milliseconds;

/// A variable of the environment with this value, during its lifetime.
class EnvironmentVariable {
 public:
  EnvironmentVariable(char const* name, char const* value) : name_(name) {
    char const* const before = std::getenv(name);
    before_ = before == nullptr ? std::nullopt : std::optional<std::string>(before);
    setenv(name, value, 1);
  }
  ~EnvironmentVariable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  EnvironmentVariable(EnvironmentVariable const&) = delete;
  EnvironmentVariable& operator=(EnvironmentVariable const&) = delete;

 private:
  char const* name_;
  std::optional<std::string> before_;
};

/// Runs whose launchers are shell scripts that start no ranks.
class SuperviseTest : public testing::Test {
 protected:
  SuperviseTest() {
    run_.training = {"heddle", "train"};
    run_.directory = directory_ / "run";
    run_.pause = milliseconds(20);
    std::filesystem::create_directory(run_.directory);
  }
  /// The script gets a line for each start in `starts`; $report is the run's report.
  int supervised(std::string const& script, std::vector<std::string> const& arguments = {}) {
    run_.launcher = {"sh", directory_.write("launcher", "report=" + (run_.directory / "report.json").string() +
                                                            "\nstarts=" + (directory_ / "starts").string() +
                                                            "\necho \"$@\" >> $starts\n" + script)};
    run_.launcher.insert(run_.launcher.end(), arguments.begin(), arguments.end());
    testing::internal::CaptureStderr();
    int const code = supervise(run_);
    messages_ = testing::internal::GetCapturedStderr();
    return code;
  }
  std::vector<std::string> starts() const { return lines_of(read_whole(directory_ / "starts")); }

  TemporaryDirectory directory_;
  Supervision run_;
  std::string messages_;
};

constexpr char const* done = R"(echo '{"state": "done"}' > $report)";

TEST_F(SuperviseTest, GivesUpAfterThreeRestartsWithoutAStep) {
  EXPECT_EQ(supervised("exit 137"), 137);
  EXPECT_EQ(starts().size(), 4U);
  EXPECT_EQ(starts().front(), "heddle train");
  expect_contains(messages_, "a rank was lost (code 137: Killed) after no step: starting again");
  EXPECT_THAT(messages_, HasSubstr("the restart is in 0.06 s")) << "the third one waits three times as long";
  expect_contains(messages_, "giving up after 3 restarts without a new step");
}

TEST_F(SuperviseTest, KnowsALostRankByHydrasCode) {
  EXPECT_EQ(supervised("exit 9"), 9);
  expect_contains(messages_, "a rank was lost (code 9: Killed) after no step: starting again");
}

TEST_F(SuperviseTest, NamesALauncherThatStartsNoRank) {
  EXPECT_EQ(supervised("exit 1"), 1);
  expect_contains(messages_,
                  "failed with code 1 before a rank started to train (`heddle doctor` checks MPI), "
                  "after no step: starting again");
}

TEST_F(SuperviseTest, TellsAStartHowManyThereWereBefore) {
  EnvironmentVariable const restarts("HEDDLE_RESTARTS", "2");
  supervised("echo \"$HEDDLE_RESTARTS\" >> $starts; exit 137");
  EXPECT_THAT(starts(),
              ElementsAre("heddle train", "2", "heddle train", "3", "heddle train", "4", "heddle train", "5"));
}

TEST(EarlierStarts, AreThoseOfSlurmAndOfOthersTogether) {
  EnvironmentVariable const slurm("SLURM_RESTART_COUNT", "9");
  EnvironmentVariable const others("HEDDLE_RESTARTS", "");
  EnvironmentVariable const requeues("HEDDLE_REQUEUES", "0");
  EXPECT_EQ(earlier_starts(), 9);
  count_restart();
  EXPECT_EQ(earlier_starts(), 10);
  EXPECT_EQ(slurm_requeues(), 9);
  setenv("HEDDLE_RESTARTS", "-1", 1);
  setenv("SLURM_RESTART_COUNT", "many", 1);
  EXPECT_EQ(earlier_starts(), 0);
  EXPECT_FALSE(job_requeues_itself());
  setenv("HEDDLE_REQUEUES", "1", 1);
  EXPECT_TRUE(job_requeues_itself());
}

TEST_F(SuperviseTest, NeedsALauncher) {
  run_.launcher = {"./missing"};
  EXPECT_THROW(supervise(run_), Error);
}

TEST_F(SuperviseTest, EndsAtOnceWithCodesThatARestartWouldNotChange) {
  for (int const code : {64, 65, 71, 75, 78, 130, 143}) {
    EXPECT_EQ(supervised("exit " + std::to_string(code)), code);
  }
  EXPECT_EQ(starts().size(), 7U);
}

TEST_F(SuperviseTest, BelievesTheReportAndNotALaunchersZero) {
  EXPECT_EQ(supervised("exit 0"), 1);
  expect_contains(messages_, "the run's report does not say that it was done, after no step: starting again");
  EXPECT_EQ(supervised(std::string(done) + "; exit 137"), 0);
  expect_contains(messages_, "but before that the run was done: ending with 0");
  EXPECT_EQ(supervised("exit 0"), 0) << "a run that was done before";
}

TEST_F(SuperviseTest, OptionsOfTheFirstStartHoldUntilOneTrains) {
  run_.at_first = {"--trace", "3"};
  supervised(R"([ $(wc -l < $starts) -lt 3 ] || echo '{"state": "training"}' > $report; exit 137)");
  EXPECT_THAT(starts(), ElementsAre("heddle train --trace 3", "heddle train --trace 3", "heddle train --trace 3",
                                    "heddle train"));
}

TEST_F(SuperviseTest, KillsTheProcessesThatALauncherLeavesBehind) {
  EXPECT_EQ(supervised("sleep 1000 & echo $! > \"$0\".left; exit 137"), 137);
  std::string const left = read_whole(directory_ / "launcher.left");
  std::string const status = read_whole("/proc/" + left.substr(0, left.find('\n')) + "/stat");
  EXPECT_TRUE(status.empty() || status.find(") Z ") != std::string::npos) << status;
}

TEST_F(SuperviseTest, EndsALauncherWhoseRanksDoNotStart) {
  run_.start_within = milliseconds(100);
  EXPECT_EQ(supervised("exec sleep 100"), 143);
  expect_contains(messages_, "no rank has started to train within 0.1 s: ending the launcher");
  EXPECT_EQ(starts().size(), 4U);
}

TEST_F(SuperviseTest, ASignalBeforeTrainingStartsEndsTheLauncher) {
  EXPECT_EQ(supervised("kill -TERM $PPID; exec sleep 100"), 75);
  expect_contains(messages_, "this start has not started to train: ending the launcher");
  EXPECT_EQ(starts().size(), 1U);
}

TEST_F(SuperviseTest, OtherThingsInPlaceOfFilesDoNotStopIt) {
  ASSERT_EQ(::mkfifo((run_.directory / "metrics.jsonl").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo((run_.directory / "report.json").c_str(), 0600), 0);
  std::ofstream(run_.directory / "checkpoints") << "a file";
  EXPECT_EQ(supervised("exit 137"), 137);
}

TEST_F(SuperviseTest, TriesFewerRanksAfterAStartWithoutAStep) {
  run_.ranks = {3, 2};
  EXPECT_EQ(supervised(std::string("[ $1 -lt 3 ] || exit 137; ") + done, {"{ranks}"}), 0);
  expect_contains(messages_, "no new one; continuing with 2 ranks");
}

TEST_F(SuperviseTest, LeavesOutHostsOnWhichNothingStarts) {
  run_.hosts = {{"n1", 2}, {"n2", 2}, {"n3", 2}};
  run_.ranks = {4, 2};
  EXPECT_EQ(
      supervised(std::string("case $1 in *n2*) exit 1;; esac; [ $4 = --version ] || ") + done, {"{hosts}", "{ranks}"}),
      0);
  EXPECT_EQ(starts().back(), "n1:2,n3:2 4 heddle train");
  expect_contains(messages_, "left out, nothing starts there: n2");
}

TEST_F(SuperviseTest, UsesFewerRanksOnFewerHosts) {
  run_.hosts = {{"n1", 2}, {"n2", 2}};
  run_.ranks = {4, 2};
  EXPECT_EQ(
      supervised(std::string("case $1 in *n1*) exit 1;; esac; [ $4 = --version ] || ") + done, {"{hosts}", "{ranks}"}),
      0);
  EXPECT_EQ(starts().back(), "n2:2 2 heddle train");
}

TEST_F(SuperviseTest, WaitsBetweenTwoLooksForHosts) {
  run_.hosts = {{"n1", 2}, {"n2", 2}};
  run_.ranks = {4};
  auto const start = std::chrono::steady_clock::now();
  EXPECT_EQ(supervised(std::string("case $1 in n2:2) [ -e $starts.n2 ] || { touch $starts.n2; exit 1; };; esac\n"
                                   "[ $3 = --version ] || ") +
                           done,
                       {"{hosts}"}),
            0);
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(1000)) << "ended probes do not cut the wait short";
  EXPECT_EQ(starts().size(), 5U) << "two probes, twice, and the run";
  expect_contains(messages_, {"waiting for hosts: 2 slots are too few", "all hosts are used again"});
}

TEST_F(SuperviseTest, ASignalWhileItLooksForHostsStartsNothing) {
  run_.hosts = {{"n1", 2}, {"n2", 2}};
  EXPECT_EQ(supervised("[ $1 != n2:2 ] || kill -TERM $PPID; [ $3 = --version ]", {"{hosts}"}), 75);
  EXPECT_EQ(messages_, "") << "there is no launcher that would have to end";
  for (std::string const& each : starts()) {
    expect_contains(each, "--version");
  }
}

TEST_F(SuperviseTest, UsesAllHostsWhereTheLauncherStartsNothing) {
  run_.hosts = {{"n1", 2}, {"n2", 2}};
  EXPECT_EQ(supervised(std::string("[ $3 = train ] || exit 1; ") + done, {"{hosts}"}), 0);
  EXPECT_EQ(starts().back(), "n1:2,n2:2 heddle train");
  expect_lacks(messages_, "left out");
}

TEST(PlaceTest, TakesTheFirstNumberOfRanksThatTheHostsHaveSlotsFor) {
  std::vector<Host> const hosts = parse_hosts("n1:4,n2,n3:4");
  EXPECT_EQ(slots_of(hosts), 9);
  auto const found = place(hosts, std::vector{16, 5, 1});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->ranks, 5);
  EXPECT_EQ(to_string(found->hosts), "n1:4,n2:1");
  EXPECT_EQ(place(hosts, {})->ranks, 9);
  EXPECT_FALSE(place(hosts, std::vector{16, 10}));
  EXPECT_EQ(missing_from(hosts, found->hosts), "n3");
  for (char const* const text : {"n1:two", "n1:0", ":4", "n1:4,,n2"}) {
    EXPECT_THROW(parse_hosts(text), UsageError) << text;
  }
}

}  // namespace
}  // namespace heddle
