#pragma once

#include <array>
#include <heddle/core/operations/dispatch.hpp>
#include <heddle/core/operations/kernel.hpp>
#include <memory>
#include <string>

namespace heddle {

struct AdamProblem {
  DType dtype = DType::float32;
};
/// Describes the problem, for messages.
std::string describe(AdamProblem const& problem);
/// The cost of an update of `elements` elements.
Cost cost(AdamProblem const& problem, double elements);

/// The numbers of an update that change with each step.
struct AdamStep {
  double learning_rate = 0;
  double gradient_scale = 1;  ///< multiplies the gradient first (clipping)
  std::int64_t step = 1;      ///< 1 for the first update, for the bias correction
};

/// Adam (Kingma & Ba 2015); `decoupled` weight decay is Loshchilov & Hutter 2019, otherwise the decay is added to the
/// gradient.
struct AdamCall {
  Tensor value;          ///< [n], updated
  Tensor gradient;       ///< [n]
  Tensor first_moment;   ///< [n], updated
  Tensor second_moment;  ///< [n], updated
  Tensor scalars;        ///< [4] in float64, as write_adam_scalars leaves them
  double beta1 = 0.9;
  double beta2 = 0.98;
  double epsilon = 1e-9;
  double weight_decay = 0;
  bool decoupled = false;

  AdamProblem problem() const { return {value.dtype()}; }
};

/// Columns of AdamCall::scalars.
namespace adam_scalars {

constexpr std::int64_t learning_rate = 0;
constexpr std::int64_t gradient_scale = 1;
constexpr std::int64_t correction1 = 2;  ///< 1 - beta1^step
constexpr std::int64_t correction2 = 3;  ///< 1 - beta2^step
constexpr std::int64_t count = 4;

}  // namespace adam_scalars

/// A call's scalars for a step.
std::array<double, adam_scalars::count> adam_scalars_of(double beta1, double beta2, AdamStep const& step);
/// Fills a call's scalars [4] for a step. They lie in kernels' memory, so that a step's launches can be recorded once
/// and repeated in the next step.
void write_adam_scalars(AdamCall const& call, AdamStep const& step);

class Adam : public Operation<AdamProblem> {
 public:
  static constexpr char const* operation = "adam";
  static std::shared_ptr<Adam> observed(ObservedSelection<Adam> selection);
  virtual void update(Execution& execution, AdamCall const& call) = 0;
};

/// The front end of implementations: calls `Functions::update<Real>(execution, call)`.
template <class Functions>
class AdamFrontEnd final : public Adam {
 public:
  bool supports(AdamProblem const& problem) const override {
    return problem.dtype == DType::float32 || problem.dtype == DType::float64;
  }
  void update(Execution& execution, AdamCall const& call) override {
    kernels::FloatingTypes::with_real(call.value.dtype(),
                                      [&]<class Real>(Real) { Functions::template update<Real>(execution, call); });
  }
};

}  // namespace heddle
