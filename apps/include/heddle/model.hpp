#pragma once

#include <cstdint>
#include <functional>
#include <heddle/core/config/config.hpp>
#include <heddle/core/generation/generation.hpp>
#include <heddle/core/layers/registries.hpp>
#include <heddle/core/tensor/runtime.hpp>
#include <heddle/core/training/micro_batch_source.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <heddle/run.hpp>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace heddle {

class AveragedModel;

/// The user's choice of a trained model.
struct TrainedModelOptions : CheckpointChoice {
  /// Checkpoints or runs of further models, with which `checkpoint` generates together.
  std::vector<std::string> ensemble = {};
  std::vector<double> weights = {};  ///< of all models in the ensemble's log-probabilities; empty: equal ones
  /// Runs with adapters, by name, between which with_adapter chooses: they share the memory of the base.
  std::map<std::string, std::string> adapters = {};
  std::vector<std::string> overrides = {};  ///< "section.key=value" in place of the checkpoint's configuration
  std::string quantize = {};                ///< "int8": the products are; "": not
  bool trust_plugins = false;               ///< the plug-ins that the checkpoint names are loaded, and none is checked
  std::vector<std::string> plugins = {};    ///< files, by their names in place of those that the checkpoint names
  /// May add kernels and choose them; called before the model is built.
  std::function<void(KernelRegistries&, KernelChoices&)> add_kernels = {};
  /// The ranks that compute with one model: its tensor group. All of them open it together.
  Communicator group = Communicator::self();
  Execution* execution = nullptr;  ///< which outlives the model; null: the model owns the process's only Runtime
};

/// Throws ConfigError where a model cannot do what its user needs, naming both; empty: any model will do.
using ModelRequirement = std::function<void(ModelDescription const&)>;

/// A model loaded from its checkpoint, ready to compute: on one rank, or split over a tensor group, over which opening
/// it, generation and loss are collective. It reads no options of a command line and prints nothing: errors are
/// exceptions.
class TrainedModel {
 public:
  /// Opens the checkpoints, builds the model of the first one's configuration and loads the parameters, without memory
  /// for gradients. Throws as open_checkpoints does, and ConfigError before code of the checkpoint's choice
  /// would run, ConfigError if this build lacks a kernel, layer or plug-in that the model was trained with, DataError
  /// if a parameter is missing, superfluous or of another shape, for an ensemble of models with different vocabularies,
  /// and for adapters of another base than the checkpoint that is opened. The other options are for each model of an
  /// ensemble, and for the runs of adapters.
  static std::unique_ptr<TrainedModel> open(TrainedModelOptions const& options, ModelRequirement const& require = {});

  Config const& config() const { return config_; }
  Vocabulary const& vocabulary() const { return vocabulary_; }
  Execution& execution() { return *execution_; }
  /// The ranks that compute together.
  Communicator const& tensor() const { return model_->tensor(); }
  bool needs_prefixes() const { return model_->needs_prefixes(); }
  ModelDescription description() const { return describe_model(config_.model, registries_->layers); }
  MetricRegistry const& metrics() const { return registries_->metrics; }
  Task const& task() const { return registries_->tasks.of(config_); }
  /// The maximum tokens of a source sentence, without its end token: the minimum over the ensemble.
  std::int64_t longest_source() const;
  /// Sets the languages of sources and targets. Throws UsageError for one that the model does not have, and for one
  /// that it needs and is not given; the message has the names of the options that give them.
  void choose_languages(Languages const& languages, LanguageOptions const& options = {});
  /// The tokens around texts of the languages; empty before they are chosen.
  TextFrame const& frame() const { return frame_; }

  /// The model with the adapters of that name, and the same base; "": this one. One generation of all of them at a time
  /// may be in a step. Throws UsageError for a name that options.adapters did not have.
  TrainedModel& with_adapter(std::string const& name);
  /// The names of options.adapters, ascending.
  std::vector<std::string> adapters() const;
  /// The memory of its parameters, in bytes; with adapters only of what others do not have.
  std::int64_t value_bytes() const { return parameters_.values().bytes(); }

  /// The digest of its checkpoint's manifest; of an ensemble or a mean, of all of them.
  std::string digest() const;
  /// OpenedCheckpoints::skipped.
  std::vector<std::string> const& skipped() const { return skipped_; }

  /// Generates sentence by sentence. One generation at a time may be in a step; the model must outlive it.
  std::unique_ptr<Generation> generation(GenerationOptions const& options);
  /// `starts` are what targets start with; empty: the begin token.
  std::vector<std::vector<Hypothesis>> generate(std::span<std::vector<std::int32_t> const> sources,
                                                GenerationOptions const& options,
                                                std::span<std::vector<std::int32_t> const> starts = {});
  /// The unsmoothed loss of the tokens to predict over all micro-batches, of an ensemble the weighted sum of its
  /// models' losses. The caller must leave out sides that are too long for the model.
  LossSums loss(MicroBatchSource const& micro_batches);
  /// The weight of each model of an ensemble; {1} without others.
  std::vector<double> weights() const;
  /// [models of an ensemble][target tokens and the end]: negative log-likelihoods.
  using ModelLosses = std::vector<std::vector<double>>;
  /// The losses of each pair's target tokens and its end. Empty for a pair that is too long for the model. The pairs
  /// are computed in packs; `packed` is called with the indices of each pack's pairs, after this model has computed it
  /// and before others of an ensemble do.
  using PackObserver = std::function<void(std::span<std::size_t const> indices)>;
  std::vector<ModelLosses> token_losses(std::span<Sample const> pairs, PackObserver const& packed = {});
  /// The mean over a sequence's tokens of what the encoder or, of a model of one stack, the last layer computes:
  /// [sequences][d_model]. A sequence gets the end token of a source or the begin token of a target.
  std::vector<std::vector<float>> embed(std::span<std::vector<std::int32_t> const> sequences);
  /// The logits [tokens to predict, vocabulary] of a pack.
  std::vector<float> logits(Pack const& pack);

 private:
  /// The checkpoint that a parameter's values are read from: equal ones have equal values.
  struct Origin {
    std::string checkpoint;  ///< the digest of its manifest
    std::string name;
    bool rounded = false;

    bool operator==(Origin const&) const = default;
  };

  TrainedModel(Config config, Vocabulary vocabulary, TrainedModelOptions const& options);
  /// `base`, if it is not null, is an open model whose kernels, memory and parameters this one uses, too.
  static std::unique_ptr<TrainedModel> open(TrainedModelOptions const& options, ModelRequirement const& require,
                                            TrainedModel const* base);
  void build(ModelRequirement const& require);
  void register_all(Checkpoint const& checkpoint, TrainedModelOptions const& options);
  void load(AveragedModel const& model, TrainedModel const* base);
  /// Takes the values that the base has, or adapters on it, from there.
  void share_values(AveragedModel const& model, TrainedModel const* base);
  void open_others(TrainedModelOptions const& options, ModelRequirement const& require);
  void open_adapters(TrainedModelOptions const& options, ModelRequirement const& require);
  GenerationModel generation_model() const;

  Config config_;
  Vocabulary vocabulary_;
  std::unique_ptr<Runtime> own_runtime_;
  Execution* execution_;
  std::shared_ptr<Registries> registries_;
  ParallelState parallel_;
  ParameterSet parameters_{parallel_.mesh};
  std::unique_ptr<Model> model_;
  std::shared_ptr<Arena> arena_;
  std::string digest_;                     ///< of the base's manifest or, without adapters, of the checkpoint's
  std::map<std::string, Origin> origins_;  ///< of parameters that other models may have, too
  std::string digests_;                    ///< of the checkpoints' manifests
  std::vector<std::string> skipped_;
  TextFrame frame_;
  double weight_ = 1;
  std::vector<std::unique_ptr<TrainedModel>> others_;  ///< of an ensemble
  std::map<std::string, std::unique_ptr<TrainedModel>> adapted_;
};

/// A translation of a line, or the continuation of a prompt.
struct Translation {
  std::string text = {};  ///< starts with the prefix as it was given; where that was cut, with the text of its tokens
  double score = 0;
  double log_probability = 0;
  std::vector<std::int32_t> tokens = {};  ///< with the prefix, which counts neither in the score nor in the probability
  /// The prefix as it was given; 0 where there is none or it was cut.
  std::size_t prefix_bytes = 0, prefix_tokens = 0;
};

// Text in, text out, each line by itself: what `heddle translate`, `generate` and `score` do with a text in memory. All
// are collective over the model's group.

/// The translations of each line, the best of options.n_best first; of a line with only white space one empty
/// translation. A line that is too long for the model loses its end. Throws UsageError as choose_languages does, and as
/// Generation does.
std::vector<std::vector<Translation>> translate(TrainedModel& model, std::span<std::string const> lines,
                                                GenerationOptions const& options = {}, Languages const& languages = {});
/// The continuations of each prompt by a decoder-only model, otherwise as translate.
std::vector<std::vector<Translation>> generate(TrainedModel& model, std::span<std::string const> prompts,
                                               GenerationOptions const& options = {});
/// The natural logarithm of the probability of each target, with its end, as the translation of the source of the same
/// index; NaN where a side is too long for the model. Throws UsageError for unequal numbers of lines, and as
/// choose_languages does.
std::vector<double> score(TrainedModel& model, std::span<std::string const> sources,
                          std::span<std::string const> targets, Languages const& languages = {});
/// A vector of d_model values for each line, by TrainedModel::embed.
std::vector<std::vector<float>> embed(TrainedModel& model, std::span<std::string const> lines,
                                      Languages const& languages = {});

}  // namespace heddle
