#pragma once

#include <heddle/core/config/config.hpp>
#include <heddle/core/layers/registries.hpp>
#include <heddle/core/model/description.hpp>

namespace heddle {

/// By default there is BLEU where the model translates; only a key that was given asks for it otherwise.
void resolve_validate_bleu(Config& config, Registries const& registries);

/// Describes a model that can be trained and, if [train] asks for BLEU, translate. Throws ConfigError for any other.
ModelDescription describe_trainable(Config const& config, Registries const& registries);

/// Checks a configuration as training does, as far as neither data nor ranks are needed: the kernels' names, the layers
/// with their options and keys, the layout, an implementation for all that the model computes, the patterns of
/// [optimizer.group]. Allocates no parameters. Throws ConfigError. Kokkos must be initialised.
void check_config(Config config, Registries const& registries);

}  // namespace heddle
