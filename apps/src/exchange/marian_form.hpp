#pragma once

#include "exchange/model_form.hpp"

namespace heddle {

/// The form in which Marian has a model whose vocabulary is not Marian's (io/exchange/marian.hpp): its decoder starts
/// from a vector of zeros. All embeddings are moved by that of the begin token, and moved back in the stacks; models
/// with pre-norm have one more layer for it. Keys that Marian fixes (position_frequencies, norm_epsilon) have its
/// values. Throws ConfigError, with all keys that stand in the way, for a model that Marian cannot have.
ModelForm form_for_marian(Checkpoint const& checkpoint, Config const& config);

}  // namespace heddle
