#pragma once

#include <cstdint>
#include <filesystem>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

/// A run that trains or has trained, as files show it: the tensors of its checkpoints and its metrics.
namespace heddle {

/// The user's choice of one checkpoint, or of several to average.
struct CheckpointChoice {
  std::string checkpoint;             ///< a run's directory, its checkpoints directory, or one checkpoint's
  std::string which = "auto";         ///< "best", "last", or "auto": the best where there is one, else the last
  std::string adapter = {};           ///< a run whose adapters are used on `checkpoint`, which must be its base
  std::int64_t average = 1;           ///< the number of a run's checkpoints whose parameters are averaged
  std::string average_by = "newest";  ///< the first ones by this: "newest", "best", or a metric of validations, "bleu"
  bool attach_base = true;  ///< false: frozen parameters that a checkpoint leaves to its base are not looked for
};

struct OpenedCheckpoints {
  std::vector<Checkpoint> checkpoints;
  std::vector<std::string> skipped;  ///< messages about those that do not verify, and about a best one that is missing
};
/// The checkpoints that `choice` names, verified as far as these keys need it; the first one's configuration is used.
/// Throws DataError if none is left, or fewer than are to be averaged; UsageError for an impossible choice. Rank 0
/// chooses; collective over `world`. `verification` is for a place with one checkpoint: from several the first that
/// verifies is taken, which shows at opening. One that is removed before it is open was not there.
OpenedCheckpoints open_checkpoints(CheckpointChoice const& choice, WantedKeys const& keys = {value_key},
                                   Communicator const& world = Communicator::self(),
                                   Verification verification = Verification::at_opening);

/// A number over the steps of a run, ascending.
struct MetricSeries {
  /// Lines one after another in which the number is not finite: the steps of the first and of the last.
  struct Stretch {
    double first = 0;
    double last = 0;

    bool operator==(Stretch const&) const = default;
  };

  std::vector<double> steps;  ///< the steps of the finite values
  std::vector<double> values;
  std::vector<Stretch> not_finite = {};  ///< ascending

  /// The last step, with a finite value or without.
  std::optional<double> last_step() const;
  /// Whether the last value is not finite.
  bool ends_not_finite() const;

  /// The value of exactly this step, if there is one.
  std::optional<double> at(std::int64_t step) const;
};

/// A pair of the validation set and the model's translation of its source.
struct SampleTranslation {
  std::string source;
  std::string reference;
  std::string translation;
};

/// The translations of the first pairs that a validation made.
struct ValidationSamples {
  double step = 0;
  std::vector<SampleTranslation> pairs;
};

/// The content of a metrics.jsonl.
struct RunMetrics {
  /// Every number except the step, by its key; those of attention_entropy as "attention_entropy.PATH",
  /// those of corpus_epochs as "corpus_epochs.CORPUS", and so corpus_nll, tag_nll, expert_entropy and expert_dropped.
  std::map<std::string, MetricSeries> series;
  /// The experts' shares of the choices in each mixture, of the last line that has them.
  std::map<std::string, std::vector<double>> expert_load;
  std::vector<ValidationSamples> samples;  ///< by step, ascending
  std::int64_t unreadable = 0;             ///< lines that are not a JSON object with a step: torn by a kill

  /// The value of a key after exactly this step, if there is one.
  std::optional<double> at(std::string const& key, std::int64_t step) const;
};
/// Throws DataError for a file that is absent or not regular.
RunMetrics read_metrics(std::filesystem::path const& path);

}  // namespace heddle
