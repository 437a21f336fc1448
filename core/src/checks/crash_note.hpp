#pragma once

#include <fmt/format.h>

#include <csignal>
#include <heddle/core/checks/check.hpp>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// During its life, a fatal signal (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) writes to standard error which check was
/// running; then the previous handler runs. There is one at a time, as checks run one after the other.
class CrashNote {
 public:
  CrashNote();
  ~CrashNote();
  CrashNote(CrashNote const&) = delete;
  CrashNote& operator=(CrashNote const&) = delete;

  /// A crash from now on writes this text.
  void set(std::string const& text);

 private:
  std::string text_;
  stack_t previous_stack_{};
};

/// The checks of one implementation or layer, one after the other.
class CheckRun {
 public:
  /// `subject` names what is checked.
  explicit CheckRun(CheckResult subject) : subject_(std::move(subject)) {}

  /// A result to fill in. A crash from now on is one of this check.
  CheckResult start(std::string problem, double tolerance = 0) {
    CheckResult result = subject_;
    result.problem = std::move(problem);
    result.tolerance = tolerance;
    crash_note_.set(
        fmt::format("{} ({}) crashes when it is checked: {}", subject(result), result.origin, result.problem));
    return result;
  }
  /// Adds a result that `work` fills in; an exception is a fault.
  template <class Work>
  void add(std::string problem, double tolerance, Work const& work) {
    CheckResult result = start(std::move(problem), tolerance);
    try {
      work(result);
    } catch (std::exception const& error) {
      result.fault = fmt::format("it throws: {}", error.what());
    } catch (...) {
      result.fault = "it throws an object that is not a std::exception";
    }
    results.push_back(std::move(result));
  }

  std::vector<CheckResult> results = {};

 private:
  CheckResult subject_;
  CrashNote crash_note_;
};

}  // namespace heddle
