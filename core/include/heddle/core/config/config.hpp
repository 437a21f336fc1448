#pragma once

#include <array>
#include <cstdint>
#include <heddle/core/base/dtype.hpp>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/base/mesh_axis.hpp>
#include <heddle/core/base/norm_kind.hpp>
#include <heddle/core/base/operation_names.hpp>
#include <heddle/core/base/pair_layout.hpp>
#include <heddle/core/config/options.hpp>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

// One plain struct per TOML section, with one member per key, initialised to the key's default. Only
// core/src/config/schema.cpp lists the keys with their accepted values and meanings: reading, printing, documenting and
// comparing follow from it.

/// The names of an enumeration's values in the file, in the order of the values.
template <class Enum>
inline constexpr int value_names = 0;

/// Where a sublayer's norms stand: on the residual sum (Vaswani et al. 2017), before the branch (Xiong et al. 2020), or
/// before the branch and on its output, before the residual sum (Ding et al. 2021: sandwich).
enum class NormPlacement : std::uint8_t { post, pre, both };
template <>
inline constexpr std::array<std::string_view, 3> value_names<NormPlacement>{"post", "pre", "both"};

enum class Positions : std::uint8_t { sinusoidal, learned, none, rotary, relative, relative_buckets, alibi };
template <>
inline constexpr std::array<std::string_view, 7> value_names<Positions>{
    "sinusoidal", "learned", "none", "rotary", "relative", "relative_buckets", "alibi"};
template <>
inline constexpr auto value_names<PairLayout> = pair_layout_names;

/// The activations that a layer's backward pass computes again instead of keeping them (Chen et al. 2016): none, those
/// of its attention sublayers, or all but the layer's input.
enum class Recompute : std::uint8_t { none, attention, layer };
template <>
inline constexpr std::array<std::string_view, 3> value_names<Recompute>{"none", "attention", "layer"};

enum class Precision : std::uint8_t { float32, bfloat16 };
template <>
inline constexpr std::array<std::string_view, 2> value_names<Precision>{"float32", "bfloat16"};

enum class OptimizerName : std::uint8_t { adam, adamw };
template <>
inline constexpr std::array<std::string_view, 2> value_names<OptimizerName>{"adam", "adamw"};

enum class Schedule : std::uint8_t { inverse_sqrt, cosine, linear, constant };
template <>
inline constexpr std::array<std::string_view, 4> value_names<Schedule>{"inverse_sqrt", "cosine", "linear", "constant"};

template <>
inline constexpr std::array<std::string_view, 2> value_names<ContextMode>{"ring", "ulysses"};

enum class PipelineSchedule : std::uint8_t { one_forward_one_backward, interleaved };
template <>
inline constexpr std::array<std::string_view, 2> value_names<PipelineSchedule>{"1f1b", "interleaved"};

/// The value's name in the file.
template <class Enum>
requires requires {
  value_names<Enum>.size();
}
constexpr std::string_view name_of(Enum value) {
  return value_names<Enum>[static_cast<std::size_t>(value)];
}

/// Precision of activations.
constexpr DType dtype_of(Precision precision) {
  return precision == Precision::bfloat16 ? DType::bfloat16 : DType::float32;
}

struct RunConfig {
  std::string directory;

  bool operator==(RunConfig const&) const = default;
};

struct DataConfig {
  std::vector<std::string> train;  ///< one dataset, in one or several files
  std::string valid;

  bool operator==(DataConfig const&) const = default;
};

/// Keys of some layers of a stack: `[model.STACK.layer."4-6"]`.
struct LayerOverride {
  IndexRange layers;      ///< counted from 0, where the file counts from 1
  Settings settings;      ///< as StackConfig::settings, and "sublayers"
  std::string name = {};  ///< the range as it was given, "4-6", for messages; not part of its value

  bool operator==(LayerOverride const& other) const { return layers == other.layers && settings == other.settings; }
};

/// `[model.encoder]` or `[model.decoder]`. Settings are named like the keys of [model] that may differ between layers
/// ("activation"), or after a sublayer and its option ("self_attention.kv_heads").
struct StackConfig {
  std::int64_t layers = 6;
  std::vector<std::string> sublayers;         ///< of each layer: names in the layer registry
  Settings settings = {};                     ///< of all its layers
  std::vector<LayerOverride> overrides = {};  ///< ascending, without overlaps

  bool operator==(StackConfig const&) const = default;
};

/// The places where keys of a section were given, "run.toml:3:1: model.heads" by "heads"; not part of its value.
struct KeyPlaces {
  std::string section = {};
  std::map<std::string, std::string> by_key = {};

  bool given(std::string const& key) const { return by_key.contains(key); }
  /// The start of a message about a key: the place and the name that were given, or "model.heads" if it was not given.
  std::string of(std::string const& key) const;

  bool operator==(KeyPlaces const&) const { return true; }
};

struct ModelConfig {
  StackConfig encoder{.sublayers = {"self_attention", "feed_forward"}};
  StackConfig decoder{.sublayers = {"self_attention", "cross_attention", "feed_forward"}};
  std::vector<std::string> stacks{"encoder", "decoder"};  ///< the stacks of the model, in this order
  std::int64_t d_model = 512;
  std::int64_t d_ff = 2048;
  std::int64_t heads = 8;
  NormPlacement norm = NormPlacement::post;
  std::string norm_kind{NormKind::layer};  ///< any kind that a residual_norm kernel supports
  double norm_epsilon = 1e-5;              ///< added to the variance, or to the mean square
  bool embedding_norm = false;
  std::string activation = "relu";  ///< any function an activation kernel supports
  Positions positions = Positions::sinusoidal;
  PairLayout position_layout = PairLayout::interleaved;  ///< of sinusoidal and rotary positions
  double rotary_base = 10000;
  std::int64_t max_distance = 128;     ///< of relative positions, with buckets or without
  std::int64_t position_buckets = 32;  ///< of relative_buckets
  bool biases = true;
  bool scale_embedding = true;
  bool tie_embeddings = true;
  bool output_bias = false;
  double dropout = 0.1;
  double attention_dropout = 0.0;
  double activation_dropout = 0.0;
  Recompute recompute = Recompute::none;
  std::int64_t max_length = 1024;  ///< tokens, with the end token
  KeyPlaces places{.section = "model"};

  /// As KeyPlaces::of; in layer_config's result a key of that layer ("--set …: model.decoder.layer.4-6.heads").
  std::string place(std::string const& key) const { return places.of(key); }

  bool operator==(ModelConfig const&) const = default;
};

using StackMember = StackConfig ModelConfig::*;

/// A stack that a model may have.
struct StackKind {
  std::string_view name;
  StackMember config;
  bool predicts;  ///< its tokens are the target's, which the model predicts; else the source's
};

/// All kinds of stacks in the order in which a model has them: the one list of them.
inline constexpr std::array stack_kinds{StackKind{"encoder", &ModelConfig::encoder, false},
                                        StackKind{"decoder", &ModelConfig::decoder, true}};

/// Throws Error for a name that is not in stack_kinds.
StackKind const& stack_kind(std::string_view name);

/// The keys of one layer, resolved: [model], then the stack's settings, then those of the range that has the layer
/// (`layer` counts from 0; -1 stands for the stack itself, which is in no range). Its `sublayers` are those of `stack`
/// in the result, with place("sublayers"); its sublayers' options are layer_options. Throws ConfigError with the
/// setting's origin for a wrong value.
ModelConfig layer_config(ModelConfig const& model, StackMember stack, std::int64_t layer);

/// The options of one sublayer of a layer, resolved in the same order. `stack_name` is for messages.
LayerOptions layer_options(StackConfig const& stack, std::string const& stack_name, std::int64_t layer,
                           std::string const& sublayer);

/// Leaves each stack one layer without settings of its own, if it has such layers, and one of each range with some: all
/// that differs between layers.
void keep_one_of_each_kind(ModelConfig& model);

/// The places of keys that were given for a stack that model.stacks does not name.
std::vector<std::string> places_of_absent_stacks(ModelConfig const& model);

struct TrainConfig {
  std::int64_t steps = 100000;
  std::int64_t batch_tokens = 4096;
  std::int64_t micro_batch_tokens = 4096;
  Precision precision = Precision::float32;
  double label_smoothing = 0.1;
  double z_loss = 0.0;      ///< coefficient of log²Z, Z being the sum of a token's exponentiated logits
  double mask_rate = 0.15;  ///< share of tokens that an encoder alone is to predict
  std::uint64_t seed = 1;
  bool deterministic = false;
  std::int64_t validate_every = 500;  ///< steps; 0: never
  bool validate_bleu = true;
  std::int64_t validate_beam_size = 1;  ///< 1: greedy
  std::int64_t early_stopping = 0;      ///< validations without a better loss after which training ends; 0: never
  std::int64_t log_every = 10;          ///< steps between lines of metrics.jsonl
  bool reserve_memory = true;           ///< take the planned memory before the first step, refuse what does not fit
  std::int64_t check_every_steps = 0;   ///< steps between comparisons of replicas; 0: only before checkpoints
  double hang_seconds = 600;            ///< without progress on any rank after which the run ends with 86; 0: never
  KeyPlaces places{.section = "train"};

  bool operator==(TrainConfig const&) const = default;
};

/// How a parameter is updated, as far as parameters may differ.
struct UpdateRule {
  double learning_rate_factor = 1;  ///< of the schedule's learning rate
  double weight_decay = 0;
  bool frozen = false;  ///< never updated, and no part of the gradient's norm

  bool operator==(UpdateRule const&) const = default;
};

/// `[optimizer.group."NAME"]`: parameters with a rule of their own.
struct ParameterGroup {
  std::string name;
  std::vector<std::string> parameters = {};  ///< patterns of their names, in which * matches any text
  UpdateRule rule = {};                      ///< its weight_decay is optimizer.weight_decay unless the group sets it
  KeyPlaces places = {};

  bool operator==(ParameterGroup const&) const = default;
};

struct OptimizerConfig {
  OptimizerName name = OptimizerName::adam;
  double learning_rate = 0.0007;  ///< the peak
  Schedule schedule = Schedule::inverse_sqrt;
  std::int64_t warmup_steps = 4000;
  double beta1 = 0.9;
  double beta2 = 0.98;
  double epsilon = 1e-9;
  double weight_decay = 0.0;
  double clip_norm = 0.0;                   ///< 0: no clipping
  std::vector<ParameterGroup> groups = {};  ///< by name; no parameter is in two

  bool operator==(OptimizerConfig const&) const = default;
};

struct ParallelConfig {
  int tensor = 1;
  int pipeline = 1;
  int context = 1;
  int data = 0;  ///< 0 is "auto": as many as the ranks leave
  bool sequence_parallel = false;
  ContextMode context_mode = ContextMode::ring;
  PipelineSchedule pipeline_schedule = PipelineSchedule::one_forward_one_backward;
  std::vector<std::int64_t> stage_layers;  ///< see plan_pipeline; empty: cut by cost
  bool shard_optimizer = false;
  bool checked = false;  ///< ranks compare what they call before each collective
  KeyPlaces places{.section = "parallel"};

  bool operator==(ParallelConfig const&) const = default;
};

struct CheckpointConfig {
  std::int64_t every_steps = 1000;  ///< 0: only at the end and on a signal
  std::int64_t keep = 3;
  std::int64_t writers = 0;                   ///< ranks that write tensors; 0: one for each node
  bool async = false;                         ///< files are written while training goes on, from a copy in memory
  std::int64_t memory_every_steps = 0;        ///< steps between copies in the hosts' memory; 0: none
  std::string memory_directory = "/dev/shm";  ///< where those copies are: a file system in memory, of each host

  bool operator==(CheckpointConfig const&) const = default;
};

/// `[kernels]`: an implementation for each operation, and where times are kept. Operations are listed by name:
/// Heddle's own, and those that a plug-in adds, which are known when it is loaded (KernelRegistries::require_known).
class KernelChoices {
 public:
  struct Choice {
    std::string implementation = "auto";
    std::string origin = {};  ///< where it was made: "run.toml:3:1"; not part of its value

    bool operator==(Choice const& other) const { return implementation == other.implementation; }
  };
  using Operation = std::pair<std::string, Choice>;

  KernelChoices() : KernelChoices("auto") {}
  /// The same implementation for every operation of operation_names.
  explicit KernelChoices(std::string const& implementation);

  /// The implementation for an operation; "auto" if none was named.
  std::string const& of(std::string_view operation) const { return choice(operation).implementation; }
  Choice const& choice(std::string_view operation) const;
  void choose(std::string_view operation, std::string implementation, std::string origin = "");

  /// Heddle's own operations, then added ones, in that order.
  std::vector<Operation> const& operations() const { return operations_; }
  std::vector<Operation>& operations() { return operations_; }

  bool operator==(KernelChoices const&) const = default;

  std::string cache = "auto";  ///< a file of measured times; "auto": the user's, "": none

 private:
  std::vector<Operation> operations_;
};

struct PluginsConfig {
  std::vector<std::string> paths;
  std::vector<std::string> sha256;  ///< of the files, in the order of paths; "": any file; empty: any files

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

  bool operator==(Config const&) const = default;
};

/// A key whose value differs.
struct ConfigDifference {
  std::string key;     ///< "train.steps", "model.decoder.layer.4-6.activation"
  std::string before;  ///< the TOML text of its value, or "(not set)"
  std::string after;
};

/// The keys by which `after` differs from `before`, in the order of the sections.
std::vector<ConfigDifference> differences(Config const& before, Config const& after);

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
