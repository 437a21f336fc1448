#pragma once

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

 private:
  std::string text_;
};

}  // namespace heddle
