#include "built_in_trials.hpp"

#include <heddle/core/base/norm_kind.hpp>

namespace heddle {

void add_built_in_trials(KernelRegistries& registries) {
  add_gemm_trials(registries);
  add_attention_trials(registries);
  for (NormTraits const& kind : norm_kinds) {
    add_norm_trials(registries, std::string(kind.name));
  }
  for (char const* const function : {"relu", "gelu", "gelu_tanh", "silu"}) {
    add_activation_trials(registries, function);
  }
  add_cross_entropy_trials(registries);
  add_embedding_trials(registries);
  add_token_ranking_trials(registries);
  add_adam_trials(registries);
  add_tensor_ops_trials(registries);
}

}  // namespace heddle
