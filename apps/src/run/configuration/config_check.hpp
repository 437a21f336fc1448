#pragma once

#include <heddle/core/config/config.hpp>
#include <heddle/core/layers/registries.hpp>
#include <heddle/core/model/description.hpp>
#include <heddle/core/model/model_chunk.hpp>
#include <heddle/dist/state/whole_model.hpp>
#include <optional>
#include <string_view>

namespace heddle {

/// By default there is BLEU where the model translates and train.validate_metrics lists nothing; only a key that was
/// given asks for it otherwise.
void resolve_validate_bleu(Config& config, Registries const& registries);

/// Throws ConfigError where the data is a stream, which `reader` would take from the run.
void require_read_again(Config const& config, std::string_view reader);

/// Describes a model that can be trained and, if [train] asks for metrics of translations, translate. Throws
/// ConfigError for any other, and for metrics that are not there.
ModelDescription describe_trainable(Config const& config, Registries const& registries);

/// The model's parameters on one rank, which needs an implementation of all that the model computes; their memory is
/// not allocated. Throws ConfigError as building the model does. Kokkos must be initialised.
WholeModel whole_model(Config config, Registries const& registries, VocabularySizes const& sizes);

/// Checks a configuration as training does, as far as neither data nor ranks are needed: the kernels' names, the layers
/// with their options and keys, the layout, an implementation for all that the model computes, the patterns of
/// [optimizer.group]. Allocates no parameters. Throws ConfigError. Kokkos must be initialised. Without a number of
/// `ranks` there are as many as the layout needs.
void check_config(Config config, Registries const& registries, std::optional<int> ranks = std::nullopt);

}  // namespace heddle
