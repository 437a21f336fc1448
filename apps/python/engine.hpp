#pragma once

#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <heddle/core/base/error.hpp>
#include <heddle/core/tensor/runtime.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

namespace heddle::python {

/// The thread on which everything is computed, with the process's only Runtime: Python may call from any of its
/// threads. Calls are done one after the other. It is made by the first call and lives as long as the process, because
/// Kokkos cannot start twice.
class Engine {
 public:
  static Engine& instance() {
    // Never destroyed: models may be released after static objects are.
    static auto& engine = *new Engine();
    return engine;
  }

  /// Runs `work(execution)` on the thread and returns its result, or throws what it threw. Must be called without
  /// Python's lock. Throws Error in a process that was forked from the one of the first call.
  template <class Work>
  auto run(Work&& work) {
    if (getpid() != process_) {
      throw Error(
          "this process was forked from one that had used heddle, and has none of its threads; start processes by "
          "multiprocessing's \"spawn\", or open models after the fork only");
    }
    std::packaged_task<decltype(work(std::declval<Execution&>()))(Execution&)> task(std::forward<Work>(work));
    auto result = task.get_future();
    {
      std::lock_guard const lock(mutex_);
      work_.emplace_back([&task](Execution& execution) { task(execution); });
    }
    changed_.notify_one();
    return result.get();
  }

 private:
  Engine() : process_(getpid()), thread_([this] { loop(); }) { thread_.detach(); }

  void loop() {
    Runtime runtime;
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !work_.empty(); });
      auto const next = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      next(runtime.execution());
    }
  }

  pid_t process_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void(Execution&)>> work_;
  std::thread thread_;
};

}  // namespace heddle::python
