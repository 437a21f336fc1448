#pragma once

#include <heddle/core/config/config.hpp>
#include <string>

#include "document.hpp"

namespace heddle {

/// Reads [model.encoder], [model.decoder] and the tables in them. Throws ConfigError with file, line and key for an
/// unknown or wrong key, for a key given here and as its shorthand in [model], and for overlapping ranges.
void read_stacks(ConfigDocument const& document, ModelConfig& model);

/// The tables of a model's stacks as TOML; "" where no stack has any.
std::string stacks_to_toml(ModelConfig const& model);

/// "4-6", or "4": a range of layers as in the file, counted from 1.
std::string range_name(IndexRange const& layers);

}  // namespace heddle
