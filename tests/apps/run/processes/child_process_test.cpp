#include "run/processes/child_process.hpp"

#include <csignal>

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

}  // namespace
}  // namespace heddle
