#pragma once

#include <fmt/format.h>

#include <array>
#include <heddle/core/base/activation_functions.hpp>
#include <heddle/core/config/config.hpp>
#include <limits>
#include <type_traits>

/// The only description of the configuration's keys: `visit_config` calls `visitor.section(name, meaning)` for each
/// TOML section, `visitor.key(name, member, check, meaning)` for each key in it, `visitor.stacks(model)` for the
/// tables of [model.encoder] and [model.decoder], and `visitor.groups(optimizer)` for those of [optimizer.group].
/// Reading, printing, checking, comparing and documentation are visitors.
namespace heddle::config_keys {

template <class Enum>
inline constexpr int names_of = 0;
template <>
inline constexpr std::array<std::string_view, 3> names_of<NormPlacement>{"post", "pre", "both"};
template <>
inline constexpr auto names_of<Positions> = position_names;
template <>
inline constexpr auto names_of<PairLayout> = pair_layout_names;
template <>
inline constexpr std::array<std::string_view, 3> names_of<Recompute>{"none", "attention", "layer"};
template <>
inline constexpr std::array<std::string_view, 2> names_of<Precision>{"float32", "bfloat16"};
template <>
inline constexpr std::array<std::string_view, 2> names_of<OptimizerName>{"adam", "adamw"};
template <>
inline constexpr std::array<std::string_view, 4> names_of<Schedule>{"inverse_sqrt", "cosine", "linear", "constant"};
template <>
inline constexpr std::array<std::string_view, 2> names_of<ContextMode>{"ring", "ulysses"};
template <>
inline constexpr std::array<std::string_view, 2> names_of<PipelineSchedule>{"1f1b", "interleaved"};

/// Accepts every value of the type.
struct Unchecked {};

/// Accepts a text or a list that is not empty and, in a list, texts that are not empty.
struct NotEmpty {};

/// Accepts a list of texts, none of them empty, or one text, which stands for a list of it; an empty one for none.
struct OneOrMore {};

/// Accepts numbers from `least` to `most`, including both unless they are open.
struct Range {
  double min = 0;
  double max = std::numeric_limits<double>::infinity();
  bool open_min = false;
  bool open_max = false;
  bool or_auto = false;  ///< "auto" stands for 0

  bool holds(double value) const {
    return (open_min ? value > min : value >= min) && (open_max ? value < max : value <= max) &&
           value < std::numeric_limits<double>::infinity();
  }
  std::string describe() const {
    std::string const low = fmt::format("{} {}", open_min ? "above" : "at least", min);
    if (max == std::numeric_limits<double>::infinity()) {
      return low;
    }
    return open_min || open_max ? fmt::format("{} and {} {}", low, open_max ? "below" : "at most", max)
                                : fmt::format("{} to {}", min, max);
  }
};

constexpr Range at_least(double min) {
  return {.min = min};
}
constexpr Range between(double min, double max) {
  return {.min = min, .max = max};
}
constexpr Range above_zero() {
  return {.min = 0, .open_min = true};
}
constexpr Range inside_zero_and_one() {
  return {.min = 0, .max = 1, .open_min = true, .open_max = true};
}
constexpr Range below_one() {
  return {.min = 0, .max = 1, .open_max = true};
}

// Steps, samples and tokens are int32 where ranks exchange them, and 32 bits of random numbers' counters (random.hpp).
inline constexpr double max_steps = 2147483647.0;
inline constexpr double max_tokens = 2147483647.0;
inline constexpr double max_width = 1048576;
inline constexpr double max_ranks = 1048576;
inline constexpr double max_layers = 4096;

template <class Member, class Config>
using like = std::conditional_t<std::is_const_v<Config>, Member const, Member>;

template <class Visitor, class Config>
void visit_paths(Visitor& visitor, Config& config) {
  visitor.section("run", "one training run");
  visitor.key("directory", config.run.directory, Unchecked{}, "where its checkpoints, metrics and resolved config go");
  visitor.section("data", "written by `heddle prepare`");
  visitor.key("train", config.data.train, OneOrMore{}, "the training dataset, or its files in order");
  visitor.key("valid", config.data.valid, Unchecked{}, "the validation dataset");
}

/// Keys of [model] that may differ between layers.
template <class Visitor, class Model>
void visit_layer_keys(Visitor& visitor, Model& model) {
  visitor.key("d_ff", model.d_ff, between(1, max_width), "width inside the feed-forward sublayers");
  visitor.key("heads", model.heads, between(1, max_layers), "attention heads; a divisor of d_model, or set head_dim");
  visitor.key("biases", model.biases, Unchecked{}, "of the projections in attention and feed-forward sublayers");
  visitor.key("activation", model.activation, NotEmpty{}, activation_help().c_str());
  visitor.key("dropout", model.dropout, below_one(), "of embeddings and of each sublayer's output");
  visitor.key("attention_dropout", model.attention_dropout, below_one(), "of attention weights");
  visitor.key("activation_dropout", model.activation_dropout, below_one(), "inside the feed-forward sublayers");
  visitor.key("norm_kind", model.norm_kind, NotEmpty{},
              "of every norm: layer (LayerNorm), rms (RMSNorm, which has no bias), or a plug-in's");
  visitor.key("norm_epsilon", model.norm_epsilon, above_zero(), "added to the square that a norm takes the root of");
  visitor.key("recompute", model.recompute, Unchecked{}, "what backward computes again to save memory");
}

template <class Visitor, class Config>
void visit_model(Visitor& visitor, Config& config) {
  like<ModelConfig, Config>& model = config.model;
  visitor.section("model", "the Transformer");
  visitor.key("stacks", model.stacks, NotEmpty{}, "of layers, both or one of them");
  visitor.key("encoder_layers", model.encoder.layers, between(0, max_layers), "layers of the encoder");
  visitor.key("decoder_layers", model.decoder.layers, between(0, max_layers), "layers of the decoder");
  visitor.key("d_model", model.d_model, between(1, max_width), "width of the residual stream");
  visit_layer_keys(visitor, model);
  visitor.key("norm", model.norm, Unchecked{}, "on residual sums, before sublayers, or around them");
  visitor.key("embedding_norm", model.embedding_norm, Unchecked{}, "a norm on the embeddings of each stack");
  visitor.key("positions", model.positions, Unchecked{}, "see Positions");
  visitor.key("position_layout", model.position_layout, Unchecked{},
              "of pairs of columns in sinusoidal and rotary positions");
  visitor.key("rotary_base", model.rotary_base, above_zero(), "of rotary: pair i of p turns by base^(-i / p) a token");
  visitor.key("max_distance", model.max_distance, between(1, max_width),
              "of relative positions; larger distances count as it");
  visitor.key("position_buckets", model.position_buckets, between(4, max_width),
              "of relative_buckets: ranges of distances");
  visitor.key("scale_embedding", model.scale_embedding, Unchecked{},
              "embeddings are multiplied by the root of d_model");
  visitor.key("tie_embeddings", model.tie_embeddings, Unchecked{}, "one matrix embeds both sides and gives the logits");
  visitor.key("output_bias", model.output_bias, Unchecked{}, "a bias for each token's logit");
  visitor.key("max_length", model.max_length, between(2, max_width), "most tokens of a sentence, with its end token");
  visitor.key("encoder_sublayers", model.encoder.sublayers, NotEmpty{}, "of each encoder layer, by registered name");
  visitor.key("decoder_sublayers", model.decoder.sublayers, NotEmpty{}, "of each decoder layer, by registered name");
  visitor.stacks(model);
}

template <class Visitor, class Config>
void visit_train(Visitor& visitor, Config& config) {
  like<TrainConfig, Config>& train = config.train;
  visitor.section("train", "how the model is trained");
  visitor.key("steps", train.steps, between(1, max_steps), "optimizer updates");
  visitor.key("batch_tokens", train.batch_tokens, between(1, max_tokens),
              "tokens of a global batch, each pair counting its longer side");
  visitor.key("micro_batch_tokens", train.micro_batch_tokens, between(1, max_tokens),
              "tokens computed at once; when not given no more than batch_tokens");
  visitor.key("precision", train.precision, Unchecked{}, "of activations; bfloat16 keeps float32 parameters beside it");
  visitor.key("label_smoothing", train.label_smoothing, below_one(), "probability spread over the whole vocabulary");
  visitor.key("z_loss", train.z_loss, at_least(0), "added to a token's loss times log²Z, Z the sum of exp(logits)");
  visitor.key("mask_rate", train.mask_rate, inside_zero_and_one(),
              "share of tokens that an encoder without decoder is to predict");
  visitor.key("seed", train.seed, between(0, 9007199254740992.0), "of initial weights, batch order and dropout");
  visitor.key("deterministic", train.deterministic, Unchecked{}, "bitwise the same on any number of data ranks");
  visitor.key("validate_every", train.validate_every, at_least(0), "steps between validations; 0: never");
  visitor.key("validate_bleu", train.validate_bleu, Unchecked{}, "translate the validation set for BLEU, too");
  visitor.key("validate_beam_size", train.validate_beam_size, at_least(1),
              "hypotheses of those translations; 1: greedy");
  visitor.key("early_stopping", train.early_stopping, at_least(0),
              "validations without a better loss that end the training; 0: never");
  visitor.key("log_every", train.log_every, at_least(1), "steps between lines of metrics.jsonl");
  visitor.key("reserve_memory", train.reserve_memory, Unchecked(),
              "take the planned memory before the first step, and refuse a run that does not fit");
  visitor.key("check_every_steps", train.check_every_steps, at_least(0),
              "steps between comparisons of replicas; 0: only before checkpoints");
  visitor.key("hang_seconds", train.hang_seconds, at_least(0),
              "without progress on any rank, then the run ends with 86; 0: never");
}

/// Keys of [optimizer.group."NAME"]; `Group` is a ParameterGroup or const.
template <class Visitor, class Group>
void visit_group_keys(Visitor& visitor, Group& group) {
  visitor.key("parameters", group.parameters, NotEmpty{}, "patterns of names: * stands for any text");
  visitor.key("learning_rate_factor", group.rule.learning_rate_factor, at_least(0), "of the schedule's learning rate");
  visitor.key("weight_decay", group.rule.weight_decay, at_least(0), "when not given optimizer.weight_decay");
  visitor.key("frozen", group.rule.frozen, Unchecked{}, "not updated, and no part of the gradient's norm");
}

template <class Visitor, class Config>
void visit_optimizer(Visitor& visitor, Config& config) {
  like<OptimizerConfig, Config>& optimizer = config.optimizer;
  visitor.section("optimizer", "how parameters are updated");
  visitor.key("name", optimizer.name, Unchecked{}, "adamw takes weight_decay off the weights, not into the gradient");
  visitor.key("learning_rate", optimizer.learning_rate, at_least(0), "the highest, reached when the warm-up ends");
  visitor.key("schedule", optimizer.schedule, Unchecked{}, "how it falls; cosine and linear reach 0 at train.steps");
  visitor.key("warmup_steps", optimizer.warmup_steps, at_least(0), "steps of linear growth from 0");
  visitor.key("beta1", optimizer.beta1, below_one(), "decay of the gradient's mean");
  visitor.key("beta2", optimizer.beta2, below_one(), "decay of the squared gradient's mean");
  visitor.key("epsilon", optimizer.epsilon, above_zero(), "added to the denominator");
  visitor.key("weight_decay", optimizer.weight_decay, at_least(0), "pull of the parameters towards 0");
  visitor.key("clip_norm", optimizer.clip_norm, at_least(0), "highest global norm of the gradient; 0: any");
  visitor.groups(optimizer);
}

template <class Visitor, class Config>
void visit_parallel(Visitor& visitor, Config& config) {
  like<ParallelConfig, Config>& parallel = config.parallel;
  Range data = between(1, max_ranks);
  data.or_auto = true;
  visitor.section("parallel", "the grid of ranks: pipeline x data x context x tensor");
  visitor.key("tensor", parallel.tensor, between(1, max_ranks), "ranks that share each layer's heads and columns");
  visitor.key("pipeline", parallel.pipeline, between(1, max_ranks), "stages of layers");
  visitor.key("context", parallel.context, between(1, max_ranks), "ranks that share each sentence's tokens");
  visitor.key("data", parallel.data, data, "replicas; \"auto\": as many as the ranks leave");
  visitor.key("sequence_parallel", parallel.sequence_parallel, Unchecked{},
              "tensor ranks share the tokens between layers");
  visitor.key("context_mode", parallel.context_mode, Unchecked{}, "how context ranks exchange keys and values");
  visitor.key("pipeline_schedule", parallel.pipeline_schedule, Unchecked{}, "order of micro-batches in a stage");
  visitor.key("stage_layers", parallel.stage_layers, between(1, 2 * max_layers),
              "layers of each stage; []: cut by cost");
  visitor.key("shard_optimizer", parallel.shard_optimizer, Unchecked{}, "data ranks share the optimizer's state");
  visitor.key("checked", parallel.checked, Unchecked{},
              "ranks compare what they call before each collective; slow, to find faults");
}

template <class Visitor, class Config>
void visit_checkpoint(Visitor& visitor, Config& config) {
  visitor.section("checkpoint", "in DIRECTORY/checkpoints");
  visitor.key("every_steps", config.checkpoint.every_steps, at_least(0),
              "steps between two; 0: only at the end and on SIGUSR1");
  visitor.key("keep", config.checkpoint.keep, at_least(2), "newest ones that are kept");
  visitor.key("writers", config.checkpoint.writers, at_least(0), "ranks that write tensors; 0: one on each node");
  visitor.key("async", config.checkpoint.async, Unchecked{},
              "written while training goes on, from a copy in memory_directory");
  visitor.key("memory_every_steps", config.checkpoint.memory_every_steps, at_least(0),
              "steps between copies in memory_directory, for a restart; 0: none");
  visitor.key("memory_directory", config.checkpoint.memory_directory, NotEmpty{},
              "a file system in memory, on each node");
}

template <class Visitor, class Config>
void visit_extensions(Visitor& visitor, Config& config) {
  like<KernelChoices, Config>& kernels = config.kernels;
  char const* const choice = "an implementation, or auto: the fastest that can";
  visitor.section("kernels", "which implementation computes an operation; `heddle kernels` lists them");
  for (auto& [operation, chosen] : kernels.operations()) {
    visitor.key(operation.c_str(), chosen.implementation, NotEmpty{}, choice);
  }
  visitor.key("cache", kernels.cache, Unchecked{}, "what `heddle kernels --benchmark` measured; \"\": nothing");
  visitor.section("plugins", "shared libraries with kernels and layers");
  visitor.key("paths", config.plugins.paths, Unchecked{}, "loaded in this order before anything is built");
  visitor.key("sha256", config.plugins.sha256, Unchecked{}, "digests that those files must have; \"\": any");
}

/// `config` is a Config or a Config const; the visitor gets references to its members.
template <class Visitor, class Config>
void visit_config(Visitor& visitor, Config& config) {
  visit_paths(visitor, config);
  visit_model(visitor, config);
  visit_train(visitor, config);
  visit_optimizer(visitor, config);
  visit_parallel(visitor, config);
  visit_checkpoint(visitor, config);
  visit_extensions(visitor, config);
}

}  // namespace heddle::config_keys
