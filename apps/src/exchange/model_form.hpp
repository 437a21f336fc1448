#pragma once

#include <cstdint>
#include <filesystem>
#include <heddle/core/config/config.hpp>
#include <heddle/core/parallel/tensor_stream.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <heddle/io/families/family.hpp>
#include <map>
#include <string>
#include <vector>

// Other systems have one form of a model, where Heddle has several that compute the same: the order of the columns that
// travel from layer to layer, positions that are computed or a table, a bias of 0 or none.

namespace heddle {

struct Execution;

/// The configuration of the model in the form that the family has, as far as there is one that computes the same.
Config in_form_of(Family const& family, Config const& config);

/// A form of a checkpoint's model.
struct ModelForm {
  Config config;
  std::string source_model = {}, target_model = {};  ///< its vocabularies
  std::map<std::string, std::string> origin = {};    ///< CheckpointContents::origin
  /// The pieces of the checkpoint's vocabularies by their ids in the form's; -1: a piece that the checkpoint lacks,
  /// with an embedding of 0, and never generated. Empty: the same ids.
  std::vector<std::int64_t> source_pieces = {}, target_pieces = {};
  /// The stacks with one more layer before the others, which computes nothing.
  std::vector<std::string> longer_stacks = {};
  std::map<std::string, std::vector<float>> added = {};  ///< to a vector, or to each row of a matrix, by parameter
};

/// The form in which Marian has a model whose vocabulary is not Marian's (io/exchange/marian.hpp): its decoder starts
/// from a vector of zeros. All embeddings are moved by that of the begin token, and moved back in the stacks; models
/// with pre-norm have one more layer for it. Keys that Marian fixes (position_frequencies, norm_epsilon) have its
/// values. Throws ConfigError, with all keys that stand in the way, for a model that Marian cannot have.
ModelForm form_for_marian(Checkpoint const& checkpoint, Config const& config);

/// Writes the model, which has the configuration `before`, in that form as the checkpoint of a run. Returns the
/// checkpoint's directory.
std::filesystem::path write_form(Execution& execution, Checkpoint const& checkpoint, Config const& before,
                                 ModelForm const& form, std::filesystem::path const& run);

}  // namespace heddle
