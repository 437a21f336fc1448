#pragma once

#include <heddle/core/trials/trials.hpp>

namespace heddle {

// The trials of the operations that no other header declares.
void add_gemm_trials(KernelRegistries& registries);
void add_attention_trials(KernelRegistries& registries);
void add_cross_entropy_trials(KernelRegistries& registries);
void add_embedding_trials(KernelRegistries& registries);
void add_token_ranking_trials(KernelRegistries& registries);
void add_adam_trials(KernelRegistries& registries);
void add_tensor_ops_trials(KernelRegistries& registries);

}  // namespace heddle
