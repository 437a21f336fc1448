#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <heddle/dist/report/traffic_report.hpp>
#include <optional>

#include "run_directory.hpp"

namespace heddle {

/// A validation's result.
struct ValidationResult {
  double loss = 0;  ///< unsmoothed, per target token, natural log
  std::optional<double> bleu{};
  std::optional<double> accuracy{};  ///< of masked tokens
};

/// One optimizer step, with the numbers that the log uses.
struct StepReport {
  std::int64_t step = 0;
  double loss = 0;  ///< smoothed, per target token of this step's global batch
  double learning_rate = 0;
  double gradient_norm = 0;
  std::int64_t tokens = 0;  ///< real source and target tokens of this step
};

/// Writes `metrics.jsonl` and the progress line; used by rank 0 only.
class TrainingLog {
 public:
  struct Start {
    std::int64_t step = 0;
    std::int64_t steps = 0;  ///< the last step of training
    std::int64_t tokens = 0;
    double seconds = 0;
    std::int64_t every = 10;
    bool terminal = false;        ///< the progress line is rewritten; otherwise a line every few seconds
    ParallelState parallel = {};  ///< its traffic since the previous line is written, if there is any
  };
  /// Continues the directory's metrics.jsonl after step `start.step`: later lines, left by a run that went beyond its
  /// last checkpoint, are dropped. Throws Error if the file cannot be written.
  static TrainingLog open(RunDirectory const& directory, Start const& start);

  /// Goes on in a new metrics.jsonl, whose directory has been made again.
  void reopen(RunDirectory const& directory);

  /// Writes a line every `every` steps and with each validation; train_loss is the mean since the previous
  /// line.
  void step(StepReport const& report, std::optional<ValidationResult> const& validation);
  /// Counts, for the next line, a step that was not finite at first (`repeated`) and, if it stayed so, its batch as
  /// `skipped`.
  void count_repeated(bool skipped);
  /// Writes a line of text that does not disturb the progress line.
  void say(std::string const& text);

  std::int64_t tokens() const { return tokens_; }
  /// The seconds of training, over all restarts.
  double seconds() const;
  /// Time between the two calls is not training time and does not count for rates.
  void pause();
  void resume();

 private:
  using Clock = std::chrono::steady_clock;

  TrainingLog(std::ofstream metrics, Start const& start);
  void progress(StepReport const& report, double loss, double rate);

  Start start_;
  std::ofstream metrics_;
  bool terminal_;
  bool line_open_ = false;
  std::int64_t tokens_;
  double busy_seconds_ = 0;  ///< before busy_since_
  bool busy_ = true;
  Clock::time_point busy_since_ = Clock::now();
  std::int64_t window_steps_ = 0;
  std::int64_t window_tokens_ = 0;
  double window_loss_ = 0;
  std::int64_t window_repeated_ = 0;
  std::int64_t window_skipped_ = 0;
  TrafficByGroup traffic_;  ///< up to the last line
  double window_began_;
  double last_progress_;
};

}  // namespace heddle
