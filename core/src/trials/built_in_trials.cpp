#include "built_in_trials.hpp"

#include <heddle/core/base/activation_functions.hpp>
#include <heddle/core/base/norm_kind.hpp>

namespace heddle {

void add_built_in_trials(KernelRegistries& registries) {
  add_gemm_trials(registries);
  add_attention_trials(registries);
  for (NormTraits const& kind : norm_kinds) {
    add_norm_trials(registries, std::string(kind.name));
  }
  for (ActivationFunction const& function : activation_functions) {
    add_activation_trials(registries, std::string(function.name));
  }
  add_cross_entropy_trials(registries);
  add_embedding_trials(registries);
  add_token_ranking_trials(registries);
  add_adam_trials(registries);
  add_tensor_ops_trials(registries);
}

}  // namespace heddle
