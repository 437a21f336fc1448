#pragma once

#include <cstdint>
#include <filesystem>
#include <heddle/core/config/config.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <string>

namespace heddle {

/// Writes a model as CTranslate2 (github.com/OpenNMT/CTranslate2, 3.0 and newer) reads it: model.bin in its binary
/// version 6, config.json and the vocabularies. `dtype` is float32, bfloat16, float16, int8 or int16; the last two are
/// for the weights of projections and embeddings, which are quantized as CTranslate2's own converters do. Tensors are
/// written piece by piece. Returns the number of tensors. Throws ConfigError for a model that CTranslate2 cannot
/// compute, which names the key that stands in the way, UsageError for another dtype, DataError for a tensor that the
/// format cannot have.
std::int64_t write_ctranslate2(Checkpoint const& checkpoint, Config const& config, std::string const& dtype,
                               std::filesystem::path const& directory);

}  // namespace heddle
