#pragma once

#include <heddle/core/config/config.hpp>
#include <optional>
#include <string>
#include <vector>

#include "document.hpp"

namespace heddle {

/// Reads [model.encoder], [model.decoder] and the tables in them. Throws ConfigError with file, line and key for an
/// unknown or wrong key, for a key given here and as its shorthand in [model], and for overlapping ranges.
void read_stacks(ConfigDocument const& document, ModelConfig& model);

/// The tables of a model's stacks as TOML; "" where no stack has any.
std::string stacks_to_toml(ModelConfig const& model);

/// Throws where a sublayer occurs twice in a layer: parameters are named after it. `place` begins the message.
void require_each_once(std::vector<std::string> const& sublayers, std::string const& place);

/// The other name of a key of [model] that has two, "decoder_layers" for "decoder.layers" and the reverse.
std::optional<std::string> other_spelling(std::string const& key);

/// The places of the keys of a section.
KeyPlaces places_of(ConfigDocument const& document, std::string const& section);

/// The places of the keys of [model]. Those of a stack's table that have a shorthand are listed under it.
KeyPlaces places_of_model(ConfigDocument const& document);

/// "4-6", or "4": a range of layers as in the file, counted from 1.
std::string range_name(IndexRange const& layers);

}  // namespace heddle
