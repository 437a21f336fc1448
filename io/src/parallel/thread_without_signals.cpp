#include "thread_without_signals.hpp"

#include <pthread.h>

#include <csignal>
#include <utility>

namespace heddle {

std::thread thread_without_signals(std::function<void()> action) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(action));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace heddle
