#include "supervisor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <exception>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <thread>

#include "earlier_starts.hpp"
#include "run/directory/run_directory.hpp"
#include "run/directory/run_progress.hpp"
#include "run/processes/child_process.hpp"

namespace heddle {

namespace {

using std::chrono::milliseconds;

constexpr int max_restarts_without_progress = 3;
constexpr std::chrono::seconds host_timeout{10};

void say(std::string const& text) {
  std::cerr << "heddle run: " << text << std::endl;
}

/// Whether the code is one of Heddle's own that a restart would not change.
bool is_certain(ProcessEnd const& end) {
  static std::set<int> const codes{64, 65, 71, 75, 78};
  return end.signal == 0 && codes.contains(end.code);
}

/// Whether a restart would not change the code: Heddle's own codes, and those of a launcher that was asked to end.
bool is_final(ProcessEnd const& end) {
  static std::set<int> const codes{128 + SIGINT, 128 + SIGTERM};
  return is_certain(end) || (end.signal == 0 && codes.contains(end.code));
}

std::string reason_of(ProcessEnd const& end) {
  if (end.signal != 0) {
    return fmt::format("the launcher was ended by signal {} ({})", end.signal, strsignal(end.signal));
  }
  if (end.code == static_cast<int>(ExitCode::rank_hung)) {
    return "a rank hung (code 86)";
  }
  if (end.code == static_cast<int>(ExitCode::replicas_diverged)) {
    return "replicas diverged (code 70)";
  }
  if (end.code == 0) {
    return "the launcher ended with code 0, but the run's report does not say that it was done,";
  }
  if (end.code > 128 && end.code < 128 + NSIG) {
    return fmt::format("a rank was lost (code {}: {})", end.code, strsignal(end.code - 128));
  }
  // Hydra, of MPICH and Intel MPI, ends with the number of the signal that ended a rank.
  static std::set<int> const losses{SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGSEGV};
  if (losses.contains(end.code)) {
    return fmt::format("a rank was lost (code {}: {})", end.code, strsignal(end.code));
  }
  return fmt::format("it failed with code {}", end.code);
}

double seconds_of(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

/// The result of a look at the run's directory. Nothing where the file system fails: a second later it may work again.
template <typename Look>
auto look_at(Look const& look) -> std::optional<decltype(look())> {
  try {
    return std::optional<decltype(look())>(std::in_place, look());
  } catch (std::exception const&) {
    return std::nullopt;
  }
}

void replace(std::string& word, std::string_view place, std::string const& text) {
  for (auto at = word.find(place); at != std::string::npos; at = word.find(place, at + text.size())) {
    word.replace(at, place.size(), text);
  }
}

/// One run under supervision.
class Supervisor {
 public:
  explicit Supervisor(Supervision const& supervision)
      : supervision_(supervision),
        newest_(supervision.resume_from ? *supervision.resume_from : newest_step(supervision.directory)) {}

  int run();

 private:
  /// The launcher's arguments, with these hosts and this number of ranks, and then `command`.
  std::vector<std::string> launch(HostAllocation const& placement, std::vector<std::string> const& command) const;
  /// The hosts on which the launcher can start a program.
  std::vector<Host> usable_hosts() const;
  /// Chooses among the usable hosts, and with them the number of ranks; waits while they are too few for any number.
  /// False if a signal came first.
  bool choose_hosts();
  /// Ends a launcher whose ranks do not start to train, or that waits although no rank trains in the directory any
  /// more.
  void watch_launcher(ChildProcess const& child);
  /// Whether this start has taken the directory's lock; nothing where that is not known: where the file system fails,
  /// or has no locks.
  std::optional<bool> has_locked() const;
  /// Asks the launcher to end its ranks; called again, kills it.
  void end_launcher(ChildProcess const& child, std::string const& reason, std::string const& message);
  /// Waits until no process trains in the directory, or that is not known; false if a signal came first. Before the
  /// first start it waits only for ranks that are about to end: `heddle train` itself refuses a directory in which
  /// another run trains.
  bool wait_for_directory(bool first_start);
  ProcessEnd run_once();
  void forward(ChildProcess const& child, int signal);
  /// Waits; true if a signal to forward came first.
  bool interrupted_within(milliseconds time);
  /// Waits before a restart if earlier ones did not help; false if a signal came first.
  bool pause();
  std::string reason_of_end(ProcessEnd const& end) const;
  /// The launcher's code, but 1 for the 0 of one that was ended.
  int code_of(ProcessEnd const& end) const;
  /// The code of the run after this end; nothing if it may be started again.
  std::optional<int> final_code(ProcessEnd const& end) const;
  /// Prints why it starts again; false if it gives up.
  bool restarts(ProcessEnd const& end);

  Supervision const& supervision_;
  BlockedSignals signals_;
  std::int64_t newest_;
  std::size_t choice_ = 0;                    ///< index into supervision_.ranks
  HostAllocation placement_;                  ///< of this start
  bool trained_ = false;                      ///< a start has begun to train
  std::optional<ReportStamp> report_before_;  ///< this start
  std::optional<std::string> last_holder_;  ///< the directory's holder before this start; nothing if that is not known
  std::chrono::steady_clock::time_point started_;
  std::optional<std::chrono::steady_clock::time_point> given_up_since_;  ///< the directory, by this start
  std::string ended_because_;  ///< why the launcher was ended; empty if it was not
  std::string missing_hosts_;  ///< as they were last printed
  int without_progress_ = 0;
  int signals_received_ = 0;
};

std::vector<std::string> Supervisor::launch(HostAllocation const& placement,
                                            std::vector<std::string> const& command) const {
  std::vector<std::string> words = supervision_.launcher;
  for (std::string& word : words) {
    replace(word, ranks_place, std::to_string(placement.ranks));
    replace(word, hosts_place, to_string(placement.hosts));
  }
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

std::vector<Host> Supervisor::usable_hosts() const {
  auto const end = std::chrono::steady_clock::now() + host_timeout;
  std::vector<std::unique_ptr<ChildProcess>> probes;
  for (Host const& host : supervision_.hosts) {
    probes.push_back(std::make_unique<ChildProcess>(
        launch({{host}, host.slots}, {supervision_.training.front(), "--version"}), ChildProcess::Output::discarded));
  }
  std::vector<Host> usable;
  for (std::size_t index = 0; index < probes.size(); ++index) {
    while (!probes[index]->ended() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(10));
    }
    if (auto const probe = probes[index]->ended(); probe && probe->code == 0) {
      usable.push_back(supervision_.hosts[index]);
    }
  }
  for (auto const& probe : probes) {  // all at once: each destructor waits for its own
    if (!probe->ended()) {
      probe->send(SIGTERM);
    }
  }
  return usable;
}

bool Supervisor::choose_hosts() {
  if (supervision_.hosts.empty()) {
    placement_.ranks = supervision_.ranks.empty() ? 0 : supervision_.ranks[choice_];
    return true;
  }
  while (true) {
    std::vector<Host> usable = usable_hosts();
    if (interrupted_within(milliseconds(0))) {
      return false;
    }
    bool const none = usable.empty();
    if (none) {  // then the reason is not a host
      usable = supervision_.hosts;
    }
    auto const found = place(usable, std::span(supervision_.ranks).subspan(choice_));
    std::string const missing = missing_from(supervision_.hosts, usable);
    if (missing != missing_hosts_) {
      say(none              ? "the launcher starts nothing on any host: all are used"
          : missing.empty() ? "all hosts are used again"
                            : fmt::format("left out, nothing starts there: {}", missing));
      missing_hosts_ = missing;
      if (!found) {
        say(fmt::format("waiting for hosts: {} slots are too few", slots_of(usable)));
      }
    }
    if (found) {
      placement_ = *found;
      return true;
    }
    if (interrupted_within(milliseconds(1000))) {
      return false;
    }
  }
}

std::optional<bool> Supervisor::has_locked() const {
  if (!last_holder_) {
    return std::nullopt;
  }
  auto const look = look_at([&] { return RunDirectory::taken_since(supervision_.directory, *last_holder_); });
  return look.value_or(std::nullopt);
}

void Supervisor::watch_launcher(ChildProcess const& child) {
  auto const now = std::chrono::steady_clock::now();
  std::optional<bool> const locked = has_locked();
  if (locked == false && now - started_ >= supervision_.start_within) {
    std::string const reason =
        fmt::format("no rank has started to train within {} s", seconds_of(supervision_.start_within));
    end_launcher(child, reason, reason + ": ending the launcher");
  }
  // Looks only after this start has taken the lock: an earlier look could be in the way of taking it.
  auto const holder =
      locked == true ? look_at([&] { return RunDirectory::holder(supervision_.directory); }) : std::nullopt;
  if (!holder || *holder) {
    given_up_since_.reset();
    return;
  }
  given_up_since_ = given_up_since_.value_or(now);
  if (now - *given_up_since_ >= supervision_.launcher_ends_within) {
    end_launcher(child, "the launcher did not end after its ranks",
                 fmt::format("no rank has trained in {} for {:.0f} s: ending the launcher, which still waits",
                             supervision_.directory.string(), seconds_of(now - *given_up_since_)));
  }
}

void Supervisor::end_launcher(ChildProcess const& child, std::string const& reason, std::string const& message) {
  if (ended_because_.empty()) {
    say(message);
  }
  child.send(ended_because_.empty() ? SIGTERM : SIGKILL);
  ended_because_ = reason;
}

bool Supervisor::wait_for_directory(bool first_start) {
  constexpr int looks_between_messages = 600;
  constexpr int looks_before_first_start = 100;
  for (int look = 0;; ++look) {
    auto const holder = look_at([&] { return RunDirectory::holder(supervision_.directory); });
    if (!holder || !*holder || (first_start && look == looks_before_first_start)) {
      return true;  // where nothing is known, training itself decides
    }
    if (look % looks_between_messages == 0) {
      say(fmt::format("waiting for {}: it is still locked by {}", supervision_.directory.string(), **holder));
    }
    if (interrupted_within(milliseconds(50))) {
      return false;
    }
  }
}

bool Supervisor::interrupted_within(milliseconds time) {
  auto const end = std::chrono::steady_clock::now() + time;
  while (true) {
    auto const left = std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now());
    auto const signal = signals_.wait(std::max(left, milliseconds(0)));
    if (!signal || *signal != SIGCHLD) {
      return signal.has_value();
    }
  }
}

void Supervisor::forward(ChildProcess const& child, int signal) {
  ++signals_received_;
  if (signals_received_ > 1) {
    child.send(signal);
    return;
  }
  if (has_locked() == false) {  // a launcher that has not started its ranks loses SIGUSR1, or dies of it
    end_launcher(child, "a signal came before training started",
                 fmt::format("{}: this start has not started to train: ending the launcher", strsignal(signal)));
    return;
  }
  if (signal == SIGUSR1) {
    child.send(signal);
    return;
  }
  say(fmt::format("{}: asking for a checkpoint; a second signal ends the run at once", strsignal(signal)));
  child.send(SIGUSR1);
}

ProcessEnd Supervisor::run_once() {
  ended_because_.clear();
  given_up_since_.reset();
  last_holder_ = look_at([&] { return RunDirectory::last_holder(supervision_.directory); });
  report_before_ = report_stamp(supervision_.directory);
  started_ = std::chrono::steady_clock::now();
  std::vector<std::string> command = supervision_.training;
  if (!trained_) {
    command.insert(command.end(), supervision_.at_first.begin(), supervision_.at_first.end());
  }
  ChildProcess child(launch(placement_, command));
  while (true) {
    if (auto const end = child.ended()) {
      return *end;
    }
    if (auto const signal = signals_.wait(milliseconds(1000)); signal && *signal != SIGCHLD) {
      forward(child, *signal);
    } else if (!signal) {
      watch_launcher(child);
    }
  }
}

std::string Supervisor::reason_of_end(ProcessEnd const& end) const {
  if (ended_because_.empty() && end.signal == 0 && end.code == 1 && has_locked() == false) {
    // mpirun's own code: as root, or with more ranks than slots, for example.
    return "the launcher failed with code 1 before a rank started to train (`heddle doctor` checks MPI),";
  }
  return ended_because_.empty() ? reason_of(end) : ended_because_;
}

int Supervisor::code_of(ProcessEnd const& end) const {
  return end.code == 0 && !ended_because_.empty() ? static_cast<int>(ExitCode::failure) : end.code;
}

std::optional<int> Supervisor::final_code(ProcessEnd const& end) const {
  if (is_certain(end) && ended_because_.empty()) {
    return end.code;
  }
  if (auto const reported = reported_outcome(supervision_.directory, report_before_)) {
    auto const code = static_cast<int>(*reported);
    if (code != end.code && signals_received_ == 0) {
      say(fmt::format("{}, but before that the run {}: ending with {}", reason_of_end(end),
                      *reported == ExitCode::done ? "was done" : "was stopped by a signal, with a checkpoint", code));
    }
    return code;
  }
  if (signals_received_ > 0) {
    return signals_received_ == 1 ? static_cast<int>(ExitCode::requeue) : code_of(end);
  }
  if (!ended_because_.empty()) {
    return std::nullopt;
  }
  if (end.code == 0) {
    // A launcher may end before its ranks, or have started none. A run that was done before writes no new report.
    return reported_outcome(supervision_.directory, {}) == ExitCode::done ? std::optional(0) : std::nullopt;
  }
  return is_final(end) ? std::optional(end.code) : std::nullopt;
}

bool Supervisor::restarts(ProcessEnd const& end) {
  std::int64_t const step = newest_step(supervision_.directory);
  std::string why = fmt::format("{} after {}", reason_of_end(end),
                                step < 0 ? "no step" : fmt::format("step {}", readable_count(step)));
  if (step > newest_) {
    newest_ = step;
    without_progress_ = 0;
  } else if (choice_ + 1 < supervision_.ranks.size()) {
    ++choice_;
    without_progress_ = 0;
    why += fmt::format(", no new one; continuing with {} ranks", supervision_.ranks[choice_]);
  } else if (++without_progress_ > max_restarts_without_progress) {
    say(fmt::format("{}; giving up after {} restarts without a new step", why, max_restarts_without_progress));
    return false;
  }
  say(why + ": starting again");
  count_restart();
  return true;
}

bool Supervisor::pause() {
  if (without_progress_ < 2) {
    return true;
  }
  milliseconds const time = without_progress_ == 2 ? supervision_.pause : 3 * supervision_.pause;
  say(fmt::format("the restart is in {} s", seconds_of(time)));
  return !interrupted_within(time);
}

int Supervisor::run() {
  for (bool first_start = true;; first_start = false) {
    if (!wait_for_directory(first_start) || !choose_hosts()) {
      return static_cast<int>(ExitCode::requeue);
    }
    ProcessEnd const end = run_once();
    auto const report = report_stamp(supervision_.directory);
    trained_ = trained_ || (report && report != report_before_);
    if (auto const code = final_code(end)) {
      return *code;
    }
    if (!restarts(end)) {
      return end.code == 0 ? static_cast<int>(ExitCode::failure) : code_of(end);
    }
    if (!pause()) {
      return static_cast<int>(ExitCode::requeue);
    }
  }
}

}  // namespace

int supervise(Supervision const& supervision) {
  return Supervisor(supervision).run();
}

}  // namespace heddle
