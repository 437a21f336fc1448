#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <heddle/core/config/config.hpp>
#include <heddle/core/generation/generation.hpp>
#include <heddle/core/layers/registries.hpp>
#include <heddle/core/tensor/runtime.hpp>
#include <heddle/core/training/micro_batch_source.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/text/tokenizer.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "command_line/options.hpp"
#include "registration.hpp"

namespace heddle {

/// The user's choice of a trained model.
struct TrainedModelOptions {
  std::string checkpoint;              ///< a run's directory, its checkpoints directory, or one checkpoint's
  std::string which = "auto";          ///< "best", "last", or "auto": the best where there is one, else the last
  std::int64_t average = 1;            ///< the number of newest checkpoints whose parameters are averaged
  std::vector<std::string> overrides;  ///< "section.key=value" in place of the checkpoint's configuration
  bool trust_plugins = false;          ///< those that the checkpoint names are loaded, and none is checked
  std::vector<std::string> plugins;    ///< see trusted_plugins
  /// May add kernels and choose them; called before the model is built.
  std::function<void(KernelRegistries&, KernelChoices&)> add_kernels = {};
};

/// Throws ConfigError where a model cannot do what a command needs, naming both.
using ModelRequirement = std::function<void(ModelDescription const&)>;

/// The options --checkpoint, --which, --average, --set, --plugin, --trust-plugins. TrainedModel::open throws
/// UsageErrors for their values.
void add_model_options(OptionsDescription& description, TrainedModelOptions& options);

/// The checkpoints that `options` name, verified as far as these keys need it; the first one's configuration is used.
/// Standard error names each that was skipped because it did not verify. Throws DataError if none is left, or fewer
/// than are to be averaged; UsageError for an impossible choice. Rank 0 chooses; collective over `world`.
std::vector<Checkpoint> open_checkpoints(TrainedModelOptions const& options, WantedKeys const& keys = {value_key},
                                         Communicator const& world = Communicator::self());

/// A model loaded from its checkpoint, ready to compute; it also owns the process's Kokkos. Without MPI: one rank.
class TrainedModel {
 public:
  /// Opens the checkpoints, builds the model of the first one's configuration and loads the parameters, without memory
  /// for gradients. Throws as open_checkpoints does, and UntrustedPluginsError before code of the checkpoint's choice
  /// would run, ConfigError if this build lacks a kernel, layer or plug-in that the model was trained with, DataError
  /// if a parameter is missing, superfluous or of another shape.
  static std::unique_ptr<TrainedModel> open(TrainedModelOptions const& options, ModelRequirement const& require);

  Config const& config() const { return config_; }
  Vocabulary const& vocabulary() const { return vocabulary_; }
  Execution& execution() { return runtime_.execution(); }
  bool needs_prefixes() const { return model_->needs_prefixes(); }
  Task const& task() const { return registries_.tasks.of(config_); }
  /// The maximum tokens of a source sentence, without its end token.
  std::int64_t longest_source() const { return config_.model.max_length - 1; }

  std::vector<std::vector<Hypothesis>> generate(std::span<std::vector<std::int32_t> const> sources,
                                                GenerationOptions const& options);
  /// The unsmoothed loss of the tokens to predict over all micro-batches. The caller must leave out sides that are too
  /// long for the model.
  LossSums loss(MicroBatchSource const& micro_batches);

 private:
  TrainedModel(Config config, Vocabulary vocabulary);
  void build(Registration const& registration, TrainedModelOptions const& options, ModelRequirement const& require);
  void load(std::vector<Checkpoint> const& checkpoints);

  Config config_;
  Vocabulary vocabulary_;
  Runtime runtime_;
  Registries registries_;
  ParallelState parallel_;
  ParameterSet parameters_{parallel_.mesh};
  std::unique_ptr<Model> model_;
  Arena arena_;
};

}  // namespace heddle
