#pragma once

#include <cstdint>
#include <filesystem>
#include <heddle/core/config/config.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <heddle/io/exchange/exchanged_tensors.hpp>
#include <string>

#include "exchange/exporting.hpp"
#include "exchange/importing.hpp"

namespace heddle {

/// Writes a checkpoint of a model with adapters as one without, W + alpha / rank · B A in place of each weight W with
/// an adapter, as the run `run`. Returns the new checkpoint's directory. For one rank.
std::filesystem::path merge_adapters(Checkpoint const& checkpoint, std::filesystem::path const& run);

/// Writes a checkpoint's adapters as PEFT (github.com/huggingface/peft) does: adapter_config.json and
/// adapter_model.safetensors, with the names of `model`'s family. PEFT's name of the base is `options.base`, or else
/// the name that the base had where it was imported. Returns the number of tensors. Throws ConfigError for an adapter
/// of a weight that the family has in another form.
std::int64_t write_peft(Checkpoint const& checkpoint, ExchangedModel const& model, ExportOptions const& options,
                        std::filesystem::path const& directory);

/// Whether the place is a directory with an adapter of PEFT.
bool is_peft(std::filesystem::path const& place);

/// Makes a run of PEFT's adapter `from` and the run `base`, whose own adapters, if it has some, are not taken; as
/// import_model does. With adapter.save_base = false among the overrides it has the adapters alone. Throws DataError
/// for tensors that are not adapters of the base's projections, ConfigError for a variant that LowRank does not
/// compute.
ImportedModel import_peft(Execution& execution, std::filesystem::path const& from, std::string const& base,
                          std::filesystem::path const& run, ImportOptions const& options = {});

}  // namespace heddle
