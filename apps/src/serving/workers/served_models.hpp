#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "inference/forced_decoding.hpp"
#include "inference/token_choices.hpp"

namespace heddle {

/// The choice of models that are served.
struct ServedModelOptions {
  TrainedModelOptions first = {};                                ///< --checkpoint, with the options for all models
  TokenChoices choices = {};                                     ///< of --checkpoint alone, whose pieces they name
  std::vector<std::pair<std::string, std::string>> others = {};  ///< --model NAME=DIRECTORY
};

/// A model, perhaps with adapters, its choice of tokens and its alignments.
struct ServedModel {
  TrainedModel* model = nullptr;
  GenerationOptions const* choices = nullptr;
  ForcedDecoding const* forcing = nullptr;
};

/// The models of a server, by names: they compute in one process, one after the other.
class ServedModels {
 public:
  static constexpr char const* first_name = "default";

  /// Throws as TrainedModel::open and apply do, and ConfigError for a model that does not translate.
  explicit ServedModels(ServedModelOptions const& options);
  ~ServedModels();
  ServedModels(ServedModels const&) = delete;
  ServedModels& operator=(ServedModels const&) = delete;

  /// The model with the adapters, "" for the first one and for none. Throws UsageError for a name that there is not.
  ServedModel find(std::string const& model, std::string const& adapter) const;
  /// The answer of /v1/models: names, runs, adapters, languages and limits, as JSON.
  std::string describe() const;
  /// Translates something, so that copies of this process share the weights as kernels pack them.
  void warm_up() const;

 private:
  struct Named {
    std::string name;
    std::string run;  ///< the name of its run's directory
    ForcedDecoding forcing;
    std::unique_ptr<TrainedModel> model;
    GenerationOptions choices = {};
  };
  std::vector<Named> models_;
};

}  // namespace heddle
