#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <heddle/core/parallel/communicator.hpp>
#include <thread>

namespace heddle {

/// Runs `action` on every rank. If it throws on any rank, throws the same error on all of them, with the name of the
/// first rank that failed. `action` may not be collective. Collective over `group`.
void run_collectively(Communicator const& group, std::function<void()> const& action);

/// Runs `action` on rank 0; otherwise as `together`.
void on_rank_0(Communicator const& group, std::function<void()> const& action);

/// The first error of a rank that cannot stop at once, because others wait for what it sends.
class FirstError {
 public:
  /// Runs `action` unless an earlier one failed.
  template <class Action>
  void attempt(Action const& action) {
    if (!error_) {
      try {
        action();
      } catch (...) {
        error_ = std::current_exception();
      }
    }
  }

  bool found() const { return error_ != nullptr; }
  void rethrow() const {
    if (error_) {
      std::rethrow_exception(error_);
    }
  }

 private:
  std::exception_ptr error_;
};

/// A thread to which the system delivers no signals. Its destructor waits for it.
class BackgroundThread {
 public:
  explicit BackgroundThread(std::function<void()> action);
  ~BackgroundThread();

  /// Waits for the end at most this long; whether it has come.
  bool done(std::chrono::milliseconds wait = {}) const { return result_.wait_for(wait) == std::future_status::ready; }
  /// Waits for the end, and throws what `action` has thrown; once.
  void finish() { result_.get(); }

 private:
  std::future<void> result_;
  std::thread thread_;
};

/// The processors that this process may use: those it is bound to; else its share beside the other ranks of its host,
/// at least 1.
std::int64_t own_processors();

/// Calls work(index) for 0 to count - 1, in the calling thread and in others, as many as there are processors for this
/// process, at most `max_threads`. Each thread has a `work` of its own from `make_work`. Throws the first error; the
/// calls that have not begun then are left out.
void in_threads(std::int64_t count, std::function<std::function<void(std::int64_t)>()> const& make_work,
                std::int64_t max_threads = 8);

}  // namespace heddle
