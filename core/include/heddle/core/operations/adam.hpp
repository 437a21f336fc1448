#pragma once

#include <heddle/core/operations/kernel.hpp>
#include <memory>
#include <string>

namespace heddle {

struct AdamProblem {
  DType dtype = DType::float32;
};
/// In words, for messages.
std::string describe(AdamProblem const& problem);
/// The part of a problem that measured times depend on (KernelTimings).
std::string timing_key(AdamProblem const& problem);
/// Of an update of so many elements.
Cost cost(AdamProblem const& problem, double elements);

/// Kingma & Ba 2015; `decoupled` weight decay is Loshchilov & Hutter 2019, otherwise the decay joins the gradient.
struct AdamCall {
  Tensor value;               ///< [n], updated
  Tensor gradient;            ///< [n]
  Tensor first_moment;        ///< [n], updated
  Tensor second_moment;       ///< [n], updated
  double gradient_scale = 1;  ///< multiplies the gradient first (clipping)
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.98;
  double epsilon = 1e-9;
  double weight_decay = 0;
  bool decoupled = false;
  std::int64_t step = 1;  ///< 1 for the first update, for the bias correction
};

class Adam : public Kernel {
 public:
  static constexpr char const* operation = "adam";
  using Problem = AdamProblem;
  virtual bool supports(AdamProblem const& problem) const = 0;
  static std::shared_ptr<Adam> observed(ObservedSelection<Adam> selection);
  virtual void update(Execution& execution, AdamCall const& call) = 0;
};

}  // namespace heddle
