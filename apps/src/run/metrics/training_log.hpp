#pragma once

#include <boost/json/value.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <heddle/core/training/micro_batch_source.hpp>
#include <heddle/dist/report/layer_norms.hpp>
#include <heddle/dist/report/traffic_report.hpp>
#include <heddle/dist/training/training_engine.hpp>
#include <heddle/io/tensorboard/event_file.hpp>
#include <heddle/run.hpp>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "run/directory/run_directory.hpp"
#include "run/directory/run_log.hpp"
#include "run/metrics/measure.hpp"

namespace heddle {

/// An image of a validation, with the name under which TensorBoard shows it.
struct NamedImage {
  std::string name;
  GreyImage image;
};

/// How evenly an attention sublayer reads its keys.
struct AttentionEntropy {
  std::string path;  ///< "decoder.layers.0.cross_attention"
  /// The mean over heads and queries of the entropy of a query's weights, divided by the logarithm of the number of
  /// keys that it sees: 1 where all are equal, 0 where one key has all.
  double mean = 0;
  bool of_source = true;  ///< it reads the source: an encoder's, or a decoder's cross-attention
};

/// The text of a set's translations, line by line.
struct SetTranslations {
  std::vector<std::string> hypotheses, references, sources;
};

/// Translations that a program of [train.validate_command] is to measure.
struct CommandInput {
  Measure measure;
  std::shared_ptr<SetTranslations const> text;
};

/// A validation's result.
struct ValidationResult {
  /// All measures of all sets. Losses are unsmoothed, per target token, in natural logarithms.
  std::vector<MeasuredValue> values{};
  /// With optimizer.average: the measures of the parameters' values and of their averages; `values` and all else are of
  /// the better ones.
  std::vector<MeasuredValue> of_values{}, of_averages{};
  bool averages_better = false;
  /// The value of a measure that was measured.
  double value_of(Measure const& measure) const;
  std::vector<SampleTranslation> samples{};  ///< on rank 0: the first pairs; empty where none are translated
  std::vector<std::string> problems{};       ///< on rank 0: metrics that could not be computed
  std::vector<CommandInput> commands{};      ///< on rank 0: what programs are to measure
  LayerNorms norms{};
  // On rank 0, where pairs are translated and where they can be computed:
  std::vector<NamedImage> attention{};  ///< images of the first short pair, one for each cross-attention sublayer
  std::string attention_tokens{};       ///< their rows and columns, in Markdown
  /// On rank 0, where they can be computed: of every attention sublayer, on a few short samples.
  std::vector<AttentionEntropy> entropies{};
};

/// The loss of a part of the target tokens.
struct GroupLoss {
  double nll = 0;  ///< sum of the negative log-likelihoods, as StepResult::nll
  std::int64_t tokens = 0;

  void add(GroupLoss const& more) {
    nll += more.nll;
    tokens += more.tokens;
  }
};

/// One optimizer step.
struct StepReport {
  std::int64_t step = 0;
  StepResult result;
  double learning_rate = 0;
  BatchTokens tokens;
  double epochs = 0;                                 ///< passes over the data up to this step, the last one in part
  std::map<std::string, double> corpus_epochs{};     ///< of each corpus, where there are several
  std::map<std::string, GroupLoss> corpus_losses{};  ///< of each corpus in the batch, where there are several
};

/// A number, or several of one kind, of a line of metrics.jsonl. Every sink iterates the line's list of them.
struct Metric {
  std::string key;           ///< in metrics.jsonl
  boost::json::value value;  ///< a number; an object of numbers; other values are only in metrics.jsonl
  std::string tag = {};      ///< in TensorBoard, for an object followed by "/" and its key; "": not there
  std::string text = {};     ///< in the line of progress or of a validation; "": not there
};

/// The text as a cell of a table in Markdown.
std::string markdown_cell(std::string text);

/// Writes `metrics.jsonl` and TensorBoard's events, and the progress to the run's log; used by rank 0 only.
class TrainingLog {
 public:
  struct Start {
    std::int64_t step = 0;
    std::int64_t steps = 0;  ///< the last step of training
    std::int64_t tokens = 0;
    double seconds = 0;
    std::int64_t every = 10;
    std::vector<Measure> measures = {};  ///< those of the run's validations
    /// Digests of the validation sets, by name: values of other sets are not compared.
    std::map<std::string, std::string> valid_datasets = {};
    std::map<std::string, std::string> corpus_tags = {};  ///< of the corpora that have one
    ParallelState parallel = {};  ///< its traffic since the previous line is written, if there is any
    std::string begun_line = {};  ///< what an earlier start has left: begun_line()
  };
  /// Continues the directory's metrics.jsonl after step `start.step`: later lines, left by a run that went beyond its
  /// last checkpoint, are dropped. Throws Error if the file cannot be written. `log` must outlive the result.
  static TrainingLog open(RunDirectory const& directory, Start const& start, RunLog& log);

  /// Continues in a new metrics.jsonl, whose directory has been made again.
  void reopen(RunDirectory const& directory);

  /// Writes a line every `every` steps and with each validation; train_loss is the mean since the previous
  /// line.
  void step(StepReport const& report, std::optional<ValidationResult> const& validation);
  /// Writes a line with a validation, or values of one, after an earlier step.
  void validation(std::int64_t step, ValidationResult const& validation);
  /// Counts, for the next line, a step that was not finite at first (`repeated`) and, if it stayed so, its batch as
  /// `skipped`.
  void count_repeated(bool skipped);
  std::int64_t tokens() const { return tokens_; }
  /// The sums since the previous line, for the start that continues it.
  std::string begun_line() const;
  /// The best value of each measure, over all restarts.
  std::vector<BestValue> const& best_values() const { return best_values_; }
  /// The seconds of training, over all restarts.
  double seconds() const;
  /// Time between the two calls is not training time and does not count for rates.
  void pause();
  void resume();

 private:
  using Clock = std::chrono::steady_clock;

  TrainingLog(std::filesystem::path directory, std::unique_ptr<std::ostream> metrics, Start const& start, RunLog& log);
  /// The metrics of the steps since the previous line.
  std::vector<Metric> step_metrics(StepReport const& report, double now) const;
  std::vector<Metric> validation_metrics(ValidationResult const& validation) const;
  /// Prints a validation, counts its values, and adds its metrics.
  void add_validation(std::int64_t step, ValidationResult const& validation, std::vector<Metric>& metrics);
  /// Writes a line of metrics.jsonl, and the events of its metrics.
  void write(std::int64_t step, std::vector<Metric> const& metrics, std::optional<ValidationResult> const& validation);
  void print_progress(StepReport const& report, std::vector<Metric> const& metrics, double now);
  /// Prints a line for each validation set.
  void print_validation(std::int64_t step, std::vector<Metric> const& metrics);
  void write_events(std::int64_t step, std::vector<Metric> const& metrics,
                    std::optional<ValidationResult> const& validation);

  /// The sums since the previous line.
  struct Window {
    double began = 0;  ///< seconds
    std::int64_t steps = 0;
    std::int64_t tokens = 0;
    double loss = 0;
    double nll = 0;
    GradientNoise noise{};
    std::int64_t repeated = 0;
    std::int64_t skipped = 0;
    std::map<std::string, GroupLoss> corpora{};
    std::map<std::string, ExpertLoad> mixtures{};
  };
  static Window window_of(Start const& start);
  /// The losses of corpora with one tag, added up.
  std::map<std::string, GroupLoss> losses_by_tag() const;

  Start start_;
  std::filesystem::path directory_;
  std::unique_ptr<std::ostream> metrics_;
  RunLog& log_;
  std::optional<EventFile> events_;  ///< from the first line on
  bool events_work_ = true;
  std::int64_t tokens_;
  double busy_seconds_ = 0;  ///< before busy_since_
  bool busy_ = true;
  Clock::time_point busy_since_ = Clock::now();
  Window window_;
  TrafficByGroup traffic_;  ///< up to the last line
  double last_progress_;
  std::vector<BestValue> best_values_;
};

}  // namespace heddle
