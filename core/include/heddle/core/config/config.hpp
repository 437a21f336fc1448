#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <heddle/core/base/dtype.hpp>
#include <heddle/core/config/kernel_choices.hpp>
#include <heddle/core/config/model_config.hpp>
#include <heddle/core/config/optimizer_config.hpp>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

// One plain struct per TOML section, with one member per key, initialised to the key's default. Only
// core/src/config/schema.cpp lists the keys with their accepted values and meanings: reading, printing, documenting and
// comparing follow from it.

enum class Precision : std::uint8_t { float32, bfloat16, automatic };
template <>
inline constexpr std::array<std::string_view, 3> value_names<Precision>{"float32", "bfloat16", "auto"};

enum class FrozenPrecision : std::uint8_t { float32, bfloat16 };
template <>
inline constexpr std::array<std::string_view, 2> value_names<FrozenPrecision>{"float32", "bfloat16"};

enum class PipelineSchedule : std::uint8_t { one_forward_one_backward, interleaved };
template <>
inline constexpr std::array<std::string_view, 2> value_names<PipelineSchedule>{"1f1b", "interleaved"};

/// How denoising masks text: see docs/reference/train.md.
enum class Noise : std::uint8_t { spans, infilling };
template <>
inline constexpr std::array<std::string_view, 2> value_names<Noise>{"spans", "infilling"};

/// Which of several metrics must stay without a better value for a run to stop early.
enum class EarlyStoppingOn : std::uint8_t { first, any, all };
template <>
inline constexpr std::array<std::string_view, 3> value_names<EarlyStoppingOn>{"first", "any", "all"};

constexpr DType dtype_of(Precision precision) {
  return precision == Precision::bfloat16 ? DType::bfloat16 : DType::float32;
}

struct RunConfig {
  std::string directory;

  bool operator==(RunConfig const&) const = default;
};

/// Text of which line n of each file belongs to pair n. Several files of a side are one text in their order.
struct ParallelFiles {
  std::vector<std::string> source = {};
  std::vector<std::string> target = {};
  std::vector<std::string> alignments = {};  ///< links of words, "0-0 1-2"; none: the pairs have none

  bool empty() const { return source.empty() && target.empty() && alignments.empty(); }
  bool operator==(ParallelFiles const&) const = default;
};

/// `[data.corpus."NAME"]`: one of several datasets that are mixed.
struct CorpusConfig {
  std::string name;
  std::vector<std::string> train = {};  ///< one dataset or text, in one or several files
  ParallelFiles text = {};              ///< instead of `train`
  double weight = 1;                    ///< its share of the samples, relative to the other corpora's
  std::string tag = {};                 ///< text before each source
  Settings modifiers = {};              ///< by name ("typos"), and their options ("typos.char_swap")
  KeyLocations places = {};

  bool operator==(CorpusConfig const&) const = default;
};

/// `[[data.stage]]`: a span of the run with shares of its own. It ends with the first of the ends that are not 0.
struct DataStage {
  std::string name;  ///< its number, from 1
  std::string title = {};
  std::map<std::string, double> weights = {};  ///< of corpora; others are not read
  std::string corpus = {};                     ///< the one whose passes `epochs` counts
  double epochs = 0;                           ///< passes over `corpus` since the stage's start
  std::int64_t steps = 0;                      ///< steps since then
  std::int64_t stalled = 0;                    ///< validations in a row without a better train.best_metric
  KeyLocations places = {};

  bool has_end() const { return epochs > 0 || steps > 0 || stalled > 0; }
  bool operator==(DataStage const&) const = default;
};

struct DataConfig {
  std::vector<std::string> train;  ///< one dataset or text, in one or several files
  ParallelFiles text = {};         ///< instead of `train`
  std::string valid;
  std::string valid_tag = {};                          ///< text before each source of `valid`
  std::map<std::string, std::string> valid_sets = {};  ///< more validation datasets, by name
  std::map<std::string, std::string> valid_tags = {};  ///< text before each source of these
  /// Names of the registered metrics of these, in place of those of TrainConfig.
  std::map<std::string, std::vector<std::string>> valid_metrics = {};
  std::vector<std::string> vocabulary = {};  ///< of text that is tokenized while it is read: one, or two
  Settings modifiers = {};                   ///< of all corpora, see CorpusConfig::modifiers
  std::vector<CorpusConfig> corpora = {};    ///< instead of `train`
  double temperature = 0;                    ///< above 0: a corpus's share follows its samples^(1 / temperature), too
  std::vector<DataStage> stages = {};        ///< one after another, instead of the corpora's weights
  KeyLocations places{.section = "data"};

  bool has_training() const { return !train.empty() || !text.empty() || !corpora.empty(); }
  /// The corpora, or data.train as the only one, with the modifiers of all corpora added to each one's own.
  std::vector<CorpusConfig> training() const;
  /// The corpus with whose tag a validation set is read ("": data.valid): one with the tag that the set was given, or
  /// that of the set's name; none where there is neither.
  std::optional<CorpusConfig> validation_corpus(std::string const& set) const;
  bool operator==(DataConfig const&) const = default;
};

struct TrainConfig {
  std::int64_t steps = 100000;
  double epochs = 0;  ///< passes over the data after which training ends; 0: train.steps alone decide
  std::int64_t batch_tokens = 4096;
  std::int64_t micro_batch_tokens = 4096;
  Precision precision = Precision::float32;
  FrozenPrecision frozen_precision = FrozenPrecision::float32;  ///< of the weights and tables that no step changes
  double label_smoothing = 0.1;
  double r_drop = 0.0;  ///< weight of the divergence of two passes with other dropout; 0: there is one pass
  /// Runs or checkpoints from whose distributions the model learns: a loss is (1 - teacher_weight) times the smoothed
  /// cross-entropy, plus teacher_weight times the mean over them of KL(teacher || model).
  std::vector<std::string> teacher = {};
  double teacher_weight = 0.5;
  double z_loss = 0.0;      ///< coefficient of log²Z, Z being the sum of a token's exponentiated logits
  std::string task = {};    ///< registered name; empty: by the model's stacks
  double mask_rate = 0.15;  ///< fraction of tokens that are masked, by a task that masks
  Noise noise = Noise::spans;
  double span_length = 3;  ///< mean of masked spans, in tokens
  std::uint64_t seed = 1;
  bool deterministic = false;
  std::int64_t validate_every = 500;  ///< steps; 0: never
  bool validate_at_start = false;     ///< also before the first step
  bool validate_bleu = true;
  std::vector<std::string> validate_metrics = {};  ///< names of registered metrics of translations
  std::int64_t validate_beam_size = 1;             ///< 1: greedy
  /// Metrics that are programs: what the shell runs on the translations of a set, by the metric's name.
  std::map<std::string, std::string> validate_command = {};
  double validate_command_seconds = 600;  ///< after which such a program is ended
  /// The metric "mean": the weights of the metrics whose mean it is. Empty: there is none.
  std::map<std::string, double> mean_metric = {};
  /// At least one. The first decides which checkpoint is the best, and with the others when a run stops early: "loss",
  /// "accuracy" or a metric of translations, of data.valid; "bleu/SET".
  std::vector<std::string> best_metric = {"loss"};
  std::int64_t early_stopping = 0;  ///< validations without a better one after which training ends; 0: never
  EarlyStoppingOn early_stopping_on = EarlyStoppingOn::first;
  bool noise_scale = false;            ///< measure the gradients' noise, see StepResult::noise
  std::int64_t log_every = 10;         ///< steps between lines of metrics.jsonl
  bool reserve_memory = true;          ///< take the planned memory before the first step, refuse what does not fit
  std::int64_t check_every_steps = 0;  ///< steps between comparisons of replicas; 0: only before checkpoints
  std::string initialize_from;         ///< a run or a checkpoint whose parameters a new run starts with; empty: none
  std::vector<std::string> initialize_missing;  ///< patterns of parameters that may be missing there
  std::vector<std::string> initialize_rename;   ///< "PATTERN THERE -> PATTERN HERE", at most one * in each
  double hang_seconds = 600;  ///< without progress on any rank after which the run ends with 86; 0: never
  KeyLocations places{.section = "train"};

  /// The passes of each sample in training.
  int passes() const { return r_drop > 0 ? 2 : 1; }
  bool operator==(TrainConfig const&) const = default;
};

struct ParallelConfig {
  int tensor = 1;
  int pipeline = 1;
  int context = 1;
  int data = 0;  ///< 0 is "auto": as many as the ranks leave
  bool sequence_parallel = false;
  ContextMode context_mode = ContextMode::ring;
  PipelineSchedule pipeline_schedule = PipelineSchedule::one_forward_one_backward;
  bool zero_bubble = false;                ///< stages compute gradients of weights while they would wait
  std::vector<std::int64_t> stage_layers;  ///< see plan_pipeline; empty: cut by cost
  bool shard_optimizer = false;
  bool shard_parameters = false;                ///< and what else the replicas keep of them: see shards_optimizer
  std::int64_t shard_min_parameters = 100'000;  ///< of a unit's, see ParameterSet
  int shard_ranks = 0;                          ///< replicas in a row that divide parameters; 0: all
  int encoder_tensor = 0;                       ///< ranks of the encoder's grid that split heads; 0: as tensor
  int expert = 1;                               ///< replicas in a row that divide the experts of each mixture
  bool checked = false;                         ///< ranks compare what they call before each collective
  KeyLocations places{.section = "parallel"};

  bool operator==(ParallelConfig const&) const = default;
};

/// Whether the replicas divide the optimizer's state.
inline bool shards_optimizer(ParallelConfig const& parallel) {
  return parallel.shard_optimizer || parallel.shard_parameters || parallel.expert > 1;
}

/// Whether no replica has all of the model's parameters.
inline bool divides_model(ParallelConfig const& parallel) {
  return parallel.shard_parameters || parallel.expert > 1;
}

/// The replicas in a row that divide parameters where others have copies; 1: there are no copies.
inline int shards_of(ParallelConfig const& parallel) {
  return parallel.shard_parameters ? std::max(1, parallel.shard_ranks) : 1;
}

/// Whether a stage's backward passes are split: with one stage nothing is waited for.
inline bool splits_backward(ParallelConfig const& parallel) {
  return parallel.zero_bubble && parallel.pipeline > 1;
}

/// The keys that are sizes of the mesh's axes, by the axis's name.
inline constexpr std::array<std::pair<std::string_view, int ParallelConfig::*>, 4> parallel_axes{
    {{"pipeline", &ParallelConfig::pipeline},
     {"data", &ParallelConfig::data},
     {"context", &ParallelConfig::context},
     {"tensor", &ParallelConfig::tensor}}};

struct CheckpointConfig {
  std::int64_t every_steps = 1000;  ///< 0: only at the end and on a signal
  std::int64_t keep = 3;
  std::int64_t writers = 0;                   ///< ranks that write tensors; 0: one for each node
  bool async = false;                         ///< files are written during training, from a copy in memory
  std::int64_t memory_every_steps = 0;        ///< steps between copies in the hosts' memory; 0: none
  std::string memory_directory = "/dev/shm";  ///< where those copies are: a file system in memory, of each host

  bool operator==(CheckpointConfig const&) const = default;
};

struct PluginsConfig {
  std::vector<std::string> paths;
  std::vector<std::string> sha256;  ///< digests in the order of paths; "": any file; empty: any files

  bool operator==(PluginsConfig const&) const = default;
};

struct Config {
  RunConfig run;
  DataConfig data;
  ModelConfig model;
  TrainConfig train;
  OptimizerConfig optimizer;
  ParallelConfig parallel;
  CheckpointConfig checkpoint;
  KernelChoices kernels;
  PluginsConfig plugins;
  /// The models of train.teacher, in its order: not keys, but set by whoever opens those checkpoints.
  std::vector<ModelConfig> teachers = {};

  bool operator==(Config const&) const = default;
};

/// Whether a run that resumes may have another value of a key: `identity`: no, the parameters or the order of the data
/// would not fit; `trajectory`: yes, but from there on it is another run; `free`: yes, results stay the same up to
/// rounding.
enum class ResumeRule : std::uint8_t { identity, trajectory, free };
template <>
inline constexpr std::array<std::string_view, 3> value_names<ResumeRule>{"identity", "trajectory", "free"};

struct ConfigDifference {
  std::string key;     ///< "train.steps", "model.decoder.layer.4-6.activation"
  std::string before;  ///< the TOML text of its value, or "(not set)"
  std::string after;
  ResumeRule resume = ResumeRule::trajectory;
};

/// Whether a key of a model, or an option of its sublayers, is for training only: neither its parameters nor what it
/// computes afterwards depend on it.
bool is_for_training_only(std::string_view key);

/// The keys by which `after` differs from `before`, in the order of the sections.
std::vector<ConfigDifference> differences(Config const& before, Config const& after);

/// The TOML text of every key that has a value, by its full name: "model.decoder.layer.4-6.activation".
std::map<std::string, std::string> key_values(Config const& config);

/// Reads a TOML file, then applies `overrides`, each "section.key=value" with a TOML value (a string such as "runs/x"
/// needs no quotes). Throws ConfigError that names file, line, column and key (or the override), what is wrong and
/// what would be right. On return everything has been checked that does not depend on the data, the ranks or the
/// registries.
Config load_config(std::string const& path, std::vector<std::string> const& overrides = {});

/// Reads a string as load_config reads a file; `source_name` replaces the file's name in messages.
Config parse_config(std::string_view text, std::string_view source_name,
                    std::vector<std::string> const& overrides = {});

/// The whole resolved configuration; parse_config gives it back unchanged.
std::string to_toml(Config const& config);

/// Every key with its type, default and meaning, one section after the other.
std::string describe_config();

/// The lines of describe_config about one key ("train.steps"), or about all keys of a section ("train"). Throws
/// UsageError, with the nearest names, if there is neither.
std::string explain_config(std::string const& name);

/// Throws ConfigError for a key that training needs and that is not set.
void require_supported(Config const& config);

/// A sentence for each value that is possible and probably not meant, such as a warm-up that is longer than the run.
std::vector<std::string> warnings_about(Config const& config);

}  // namespace heddle
