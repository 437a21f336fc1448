#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <heddle/core/config/config.hpp>
#include <optional>
#include <string>
#include <vector>

#include "run/metrics/training_log.hpp"
#include "run/processes/child_process.hpp"

namespace heddle {

/// The number that a program of [train.validate_command] has found for a validation.
struct CommandResult {
  std::int64_t step = 0;
  MeasuredValue measured;    ///< not a number where it failed
  std::string problem = {};  ///< a sentence about that, with the last lines that it has printed
};

/// Runs programs that measure translations, one after another, in processes of their own. Nothing that a program does
/// is an error here. For rank 0.
class ValidationCommands {
 public:
  /// The texts are given to the programs in files below `directory`, which is made and removed with them, and its
  /// parent where it is empty then.
  ValidationCommands(TrainConfig const& train, std::filesystem::path directory)
      : train_(train), directory_(std::move(directory)) {}
  ~ValidationCommands() { cancel(); }
  ValidationCommands(ValidationCommands const&) = delete;
  ValidationCommands& operator=(ValidationCommands const&) = delete;

  /// Starts to measure the translations of a step, after those that are still to be measured. Where four wait for the
  /// same measure, the first of them is given up, so that a slow program keeps up.
  void add(std::int64_t step, std::vector<CommandInput> inputs);
  /// The results since the last call. Ends a program that has had its time, and starts the next one.
  std::vector<CommandResult> finished();
  /// The programs that have not ended.
  std::size_t left() const { return waiting_.size() + (running_ ? 1 : 0); }
  /// Ends the one that runs, and forgets the others.
  void cancel();

 private:
  using Clock = std::chrono::steady_clock;
  struct Job {
    std::int64_t step = 0;
    CommandInput input;
  };
  struct Running {
    Running(Job of, ChildProcess::Command const& command, Clock::time_point until)
        : job(std::move(of)), process(command, ChildProcess::Output::discarded), deadline(until) {}
    Job job;
    ChildProcess process;
    Clock::time_point deadline;
  };

  void start_next();
  ChildProcess::Command command_for(std::string const& name) const;
  /// The result of a program that has ended, or has had its time.
  CommandResult result_of(Job const& job, std::optional<ProcessEnd> const& end) const;
  void end_running();
  void remove_files() const;

  TrainConfig const& train_;
  std::filesystem::path directory_;
  std::deque<Job> waiting_;
  std::optional<Running> running_;
  std::vector<CommandResult> finished_;
};

}  // namespace heddle
