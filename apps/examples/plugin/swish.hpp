#pragma once

#include <heddle/core/operations/activation.hpp>
#include <memory>

namespace swish {

/// The activation function "swish", also known as SiLU: x / (1 + exp(-x)) (Elfwing et al. 2017, Ramachandran et al.
/// 2017).
std::shared_ptr<heddle::Activation> make_swish();

}  // namespace swish
