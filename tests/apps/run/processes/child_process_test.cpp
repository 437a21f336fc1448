#include "run/processes/child_process.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "test.hpp"

namespace heddle {
namespace {

/// SIGHUP that comes while signals are blocked; nothing if it has no effect.
std::optional<int> hangup_with(void (*action)(int)) {
  auto const before = std::signal(SIGHUP, action);
  std::optional<int> found;
  {
    BlockedSignals const signals;
    std::raise(SIGHUP);
    found = signals.wait(std::chrono::milliseconds(10));
  }
  std::signal(SIGHUP, before);
  return found;
}

TEST(BlockedSignalsTest, AHangupIsIgnoredUnderNohup) {
  EXPECT_EQ(hangup_with(SIG_DFL), SIGHUP);
  EXPECT_EQ(hangup_with(SIG_IGN), std::nullopt);
}

/// The exit code of a shell that runs a command.
int code_of(std::string const& command, ChildProcess::Output output) {
  ChildProcess process({"sh", "-c", command}, output);
  while (!process.ended()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return process.ended()->code;
}

TEST(ChildProcessTest, AProgramWhoseOutputIsDiscardedHasNoOpenFiles) {
  int const open = ::open("/dev/null", O_RDONLY);
  int const file = ::fcntl(open, F_DUPFD, 50);
  std::string const command = fmt::format("test -e /proc/self/fd/{}", file);
  EXPECT_EQ(code_of(command, ChildProcess::Output::shown), 0);
  EXPECT_EQ(code_of(command, ChildProcess::Output::discarded), 1);
  ::close(file);
  ::close(open);
  EXPECT_EQ(code_of("exit 7", ChildProcess::Output::discarded), 7);
  EXPECT_EQ(code_of("kill -9 $$", ChildProcess::Output::discarded), 128 + SIGKILL);
  EXPECT_EQ(message_of<Error>([] { ChildProcess({"/absent/program"}, ChildProcess::Output::discarded); }),
            "/absent/program cannot be started: No such file or directory");
}

}  // namespace
}  // namespace heddle
