#include "training/stop_signal.hpp"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "test.hpp"

namespace heddle {
namespace {

#ifdef __x86_64__
/// Writes 4 KiB from 1 KiB below the stack pointer on, far below the 128 bytes that every handler leaves alone, as
/// oneDNN's products for AVX2 do; then sends this thread a signal. Returns the number of words that the handler
/// changed.
std::int64_t words_changed_by(int signal) {
  std::int64_t changed = 0;
  std::int64_t const process = getpid();
  std::int64_t const thread = gettid();
  asm volatile(
      "mov $-640, %%r8\n"
      "1: mov %%r8, (%%rsp, %%r8, 8)\n"
      "inc %%r8\n"
      "cmp $-128, %%r8\n"
      "jne 1b\n"
      "mov %[number], %%eax\n"
      "syscall\n"
      "mov $-640, %%r8\n"
      "2: cmp %%r8, (%%rsp, %%r8, 8)\n"
      "je 3f\n"
      "inc %[changed]\n"
      "3: inc %%r8\n"
      "cmp $-128, %%r8\n"
      "jne 2b\n"
      : [changed] "+r"(changed)
      : [number] "i"(SYS_tgkill), "D"(process), "S"(thread), "d"(std::int64_t{signal})
      : "rax", "rcx", "r8", "r11", "memory", "cc");
  return changed;
}

TEST(StopSignal, LeavesAloneTheMemoryBelowTheStackPointer) {
  StopSignal const stop;
  EXPECT_FALSE(stop.received());
  EXPECT_EQ(words_changed_by(SIGUSR1), 0);
  EXPECT_TRUE(stop.received());
  EXPECT_EQ(stop.name(), "SIGUSR1");
}
#endif

TEST(StopSignal, HandlersHaveAStackOfTheirOwn) {
  StopSignal const stop;
  stack_t stack{};
  ASSERT_EQ(sigaltstack(nullptr, &stack), 0);
  EXPECT_EQ(stack.ss_flags & SS_DISABLE, 0);
  for (int const signal : {SIGUSR1, SIGTERM, SIGINT}) {
    struct sigaction action {};
    ASSERT_EQ(sigaction(signal, nullptr, &action), 0);
    EXPECT_NE(action.sa_flags & SA_ONSTACK, 0) << signal;
  }
}

TEST(StopSignal, PrintsTheNewestNotice) {
  StopSignal const stop;
  for (char const* const text : {"in step 1", "in step 2", ""}) {
    stop.set_notice(text);
    testing::internal::CaptureStderr();
    ASSERT_EQ(raise(SIGUSR1), 0);
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              *text == '\0' ? "" : std::string("\nheddle: SIGUSR1 ") + text + "\n");
  }
}

}  // namespace
}  // namespace heddle
