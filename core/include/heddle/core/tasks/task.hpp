#pragma once

#include <algorithm>
#include <cstdint>
#include <heddle/core/base/named_registry.hpp>
#include <heddle/core/config/config.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// Tokens of a sample's sides, end tokens included.
struct SampleCost {
  std::int64_t source = 0;
  std::int64_t target = 0;

  /// The cost in a token budget: the longer side.
  std::int64_t longer() const { return std::max(source, target); }
};

/// The samples that are made of a dataset's pairs.
enum class PairForm : std::uint8_t {
  pairs,    ///< the pairs
  targets,  ///< the targets, for a model that has no encoder: sources cost nothing and are not read
  /// Single sequences for a decoder-only model (Raffel et al. 2020, "prefix LM"), of a joint vocabulary: start token,
  /// source, end token and target. All up to the source's end token is the prefix; the target and its end token are
  /// predicted.
  prefixed,
  /// Single sequences for an encoder-only model, of a joint vocabulary, of which Task::text makes samples: begin token,
  /// source, end token, target, end token (Devlin et al. 2019).
  joined,
};

/// A sequence of text before its tokens are read: adjacent lines, each with its end token, or a piece of a long line.
struct TextShape {
  std::int64_t epoch = 0;
  std::int64_t index = 0;  ///< with the epoch, the key of the sequence's random numbers
  std::int64_t length = 0;
  bool complete = true;  ///< its last token is an end token
  /// The positions of its end tokens, ascending, where TextTask::needs_ends; in two texts also that of the begin token.
  std::vector<std::int64_t> ends;
  std::int64_t second = 0;  ///< the position where the second of two texts begins; 0: there is one
};

struct TextSequence : TextShape {
  std::int32_t number = 0;  ///< the number of the sample
  std::vector<std::int32_t> tokens;
};

/// Makes samples of sequences of text. Costs and content are pure functions of the sequence, its epoch and its index.
class TextTask {
 public:
  virtual ~TextTask() = default;

  /// Tokens by which the longest sequence must be shorter than model.max_length, so that its sample fits.
  virtual std::int64_t reserved_tokens() const { return 0; }
  /// Whether `predicted` and `fill` ask for the positions of end tokens.
  virtual bool needs_ends() const { return false; }
  /// A message where samples of sequences with up to `longest` tokens are not as the keys of [train] say; empty: they
  /// are.
  virtual std::string warning(std::int64_t /*longest*/) const { return ""; }
  /// The sample's cost; `shape.ends` is not set.
  virtual SampleCost cost(TextShape const& shape) const = 0;
  /// The tokens that the sample's rows are to predict.
  virtual std::int64_t predicted(TextShape const& shape) const = 0;
  /// into = the samples' tokens.
  virtual void fill(PackFields& into, std::vector<TextSequence> sequences) const = 0;
};

/// The vocabulary and the circumstances of samples that are made of text.
struct TextTaskSpec {
  TrainConfig const& train;
  SpecialIds ids;
  std::vector<std::int32_t> sentinels;  ///< ids of `<extra_id_0>`, `<extra_id_1>`, …
  std::int64_t vocabulary = 0;
  bool prefixes = false;              ///< samples have prefixes (ModelDescription::needs_prefixes)
  std::optional<std::uint64_t> seed;  ///< seed of random numbers; none: those of validation, which no key changes
  std::string where;                  ///< place_of_task, the start of a message
  std::string dataset;                ///< the text's name, for messages

  std::uint64_t random_key(std::string_view use) const;
};

/// A task that a model learns: which samples it makes of a dataset, which of their rows have a loss, and what
/// validation measures besides the loss.
class Task {
 public:
  virtual ~Task() = default;

  /// One sentence for `heddle kernels`.
  virtual std::string meaning() const = 0;
  /// Why a model with these stacks cannot learn it, such as "needs an encoder and a decoder"; empty if it can.
  virtual std::string unsupported_reason(ModelConfig const& model) const = 0;
  /// The samples that it makes of sentence pairs; none if it is trained on text only.
  virtual std::optional<PairForm> pairs(bool /*prefixes*/) const { return std::nullopt; }
  /// The fields that its samples of sentence pairs have in training where their dataset does.
  virtual SampleFields fields() const { return {}; }
  /// Makes samples of text; null if it is trained on pairs only. Throws ConfigError where the vocabulary lacks a token.
  virtual std::unique_ptr<TextTask> text(TextTaskSpec const& /*spec*/) const { return nullptr; }
  /// The keys of [train] that its samples depend on.
  virtual std::vector<std::string> keys() const { return {}; }
  /// Whether validation measures the accuracy of the rows that have a loss.
  virtual bool measures_accuracy() const { return false; }
  /// Whether the model translates: validation can measure BLEU.
  virtual bool translates() const { return false; }
};

struct TaskEntry : NamedEntry {
  std::shared_ptr<Task const> task;
};

/// The tasks by name: those that train.task may name.
class TaskRegistry : public NamedRegistry<TaskEntry> {
 public:
  /// Throws ConfigError if the name is taken or empty.
  void add(std::string name, std::shared_ptr<Task const> task);
  /// The task of a configuration: train.task or, if that is not set, by the model's stacks. Throws ConfigError with the
  /// place, if it is not registered or if the model cannot learn it.
  Task const& of(Config const& config) const;
};

/// "run.toml:3:1: train.task = "denoising"", or model.stacks where the task follows from them: the start of a message.
std::string place_of_task(Config const& config);

void register_tasks(TaskRegistry& registry);

}  // namespace heddle
