#pragma once

#include <csignal>
#include <heddle/core/checks/result.hpp>
#include <string>

namespace heddle {

/// During its life, a fatal signal (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) writes to standard error whom a check was
/// running; then it takes its usual course. There is one at a time, as checks run one after the other.
class CrashNote {
 public:
  CrashNote();
  ~CrashNote();
  CrashNote(CrashNote const&) = delete;
  CrashNote& operator=(CrashNote const&) = delete;

  /// A crash from now on is one of this check.
  void set(CheckResult const& check);
  /// A crash from now on writes this text.
  void set(std::string const& text);

 private:
  std::string text_;
  stack_t previous_stack_{};
};

}  // namespace heddle
