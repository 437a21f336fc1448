#pragma once

#include <exception>
#include <functional>
#include <heddle/core/parallel/communicator.hpp>

namespace heddle {

/// Runs `action` on every rank. If it throws on any rank, throws the same error on all of them, with the name of the
/// first rank that failed. `action` may not be collective. Collective over `group`.
void together(Communicator const& group, std::function<void()> const& action);

/// As `together`, for an action of rank 0.
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

}  // namespace heddle
