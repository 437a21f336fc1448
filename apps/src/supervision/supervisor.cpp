#include "supervisor.hpp"

#include <fmt/format.h>

#include <csignal>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <iostream>
#include <optional>
#include <set>

#include "child_process.hpp"
#include "training/newest_step.hpp"
#include "training/run_directory.hpp"

namespace heddle {

namespace {

using std::chrono::milliseconds;

constexpr int most_restarts_without_progress = 3;

void say(std::string const& text) {
  std::cerr << "heddle run: " << text << std::endl;
}

/// Codes that the same command would end with again, and those of an end on request.
bool is_final(ProcessEnd const& end) {
  static std::set<int> const codes{0, 64, 65, 70, 71, 75, 78, 128 + SIGINT, 128 + SIGTERM};
  return end.signal == 0 && codes.contains(end.code);
}

std::string reason_of(ProcessEnd const& end) {
  if (end.signal != 0) {
    return fmt::format("the launcher was ended by signal {} ({})", end.signal, strsignal(end.signal));
  }
  if (end.code == static_cast<int>(ExitCode::rank_hung)) {
    return "a rank hung (code 86)";
  }
  if (end.code > 128 && end.code < 128 + NSIG) {
    return fmt::format("a rank was lost (code {}: {})", end.code, strsignal(end.code - 128));
  }
  return fmt::format("it failed with code {}", end.code);
}

/// One run under supervision.
class Supervisor {
 public:
  explicit Supervisor(Supervision const& supervision)
      : supervision_(supervision), newest_(newest_step(supervision.directory)) {}

  int run();

 private:
  std::vector<std::string> command() const;
  /// Waits until no process trains in the directory; false if a signal came first. Before the first start it waits only
  /// for ranks that are about to end: `heddle train` itself refuses a directory in which another run trains.
  bool wait_for_directory(bool first_start);
  ProcessEnd run_once();
  void pass_on(ChildProcess const& child, int signal);
  /// Prints why it starts again; false if it gives up.
  bool goes_on(ProcessEnd const& end);

  Supervision const& supervision_;
  BlockedSignals signals_;
  std::int64_t newest_;
  std::size_t choice_ = 0;  ///< of supervision_.ranks
  int without_progress_ = 0;
  int signals_received_ = 0;
};

std::vector<std::string> Supervisor::command() const {
  static std::string const place = "{ranks}";
  std::vector<std::string> words = supervision_.launcher;
  for (std::string& word : words) {
    for (auto at = word.find(place); !supervision_.ranks.empty() && at != std::string::npos; at = word.find(place)) {
      word.replace(at, place.size(), std::to_string(supervision_.ranks[choice_]));
    }
  }
  words.insert(words.end(), supervision_.training.begin(), supervision_.training.end());
  return words;
}

bool Supervisor::wait_for_directory(bool first_start) {
  constexpr int looks_between_messages = 600;
  constexpr int looks_before_first_start = 100;
  for (int look = 0;; ++look) {
    auto const holder = RunDirectory::holder(supervision_.directory);
    if (!holder || (first_start && look == looks_before_first_start)) {
      return true;
    }
    if (look % looks_between_messages == 0) {
      say(fmt::format("waiting for {}: it is still locked by {}", supervision_.directory.string(), *holder));
    }
    if (auto const signal = signals_.wait(milliseconds(50)); signal && *signal != SIGCHLD) {
      return false;
    }
  }
}

void Supervisor::pass_on(ChildProcess const& child, int signal) {
  ++signals_received_;
  if (signal == SIGUSR1 || signals_received_ > 1) {
    child.send(signal);
    return;
  }
  say(fmt::format("{}: asking for a checkpoint; a second signal ends the run at once", strsignal(signal)));
  child.send(SIGUSR1);
}

ProcessEnd Supervisor::run_once() {
  ChildProcess child(command());
  while (true) {
    if (auto const end = child.ended()) {
      return *end;
    }
    if (auto const signal = signals_.wait(milliseconds(1000)); signal && *signal != SIGCHLD) {
      pass_on(child, *signal);
    }
  }
}

bool Supervisor::goes_on(ProcessEnd const& end) {
  std::int64_t const step = newest_step(supervision_.directory);
  std::string why = fmt::format("{} after {}", reason_of(end), step < 0 ? "no step" : fmt::format("step {}", step));
  if (step > newest_) {
    newest_ = step;
    without_progress_ = 0;
  } else if (choice_ + 1 < supervision_.ranks.size()) {
    ++choice_;
    without_progress_ = 0;
    why += fmt::format(", no new one; going on with {} ranks", supervision_.ranks[choice_]);
  } else if (++without_progress_ > most_restarts_without_progress) {
    say(fmt::format("{}; giving up after {} restarts without a new step", why, most_restarts_without_progress));
    return false;
  }
  say(why + ": starting again");
  return true;
}

int Supervisor::run() {
  for (bool first_start = true;; first_start = false) {
    if (!wait_for_directory(first_start)) {
      return static_cast<int>(ExitCode::requeue);
    }
    ProcessEnd const end = run_once();
    if (is_final(end) || signals_received_ > 0 || !goes_on(end)) {
      return end.code;
    }
  }
}

}  // namespace

int supervise(Supervision const& supervision) {
  return Supervisor(supervision).run();
}

}  // namespace heddle
