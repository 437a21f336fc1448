#pragma once

#include <heddle/core/operations/dispatch.hpp>
#include <heddle/core/operations/kernel.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <memory>
#include <string>

namespace heddle {

struct RecurrenceProblem {
  DType dtype = DType::float32;
};
std::string describe(RecurrenceProblem const& problem);
Cost forward_cost(RecurrenceProblem const& problem, double elements);

struct RecurrenceCall {
  Tensor input;         ///< x [rows, columns], rows may be strided
  Tensor gate{};        ///< z [rows, columns], rows may be strided; empty: the plain mean
  Sequences sequences;  ///< every row is of one sequence
  Tensor position{};    ///< int32 [rows]: how many tokens of its sequence precede a row's; read without a gate
  /// [sequences, columns] in statistics_dtype: c before each sequence's first row, replaced by c after its last one.
  /// Empty: zeros, and not kept. A backward pass takes none.
  Tensor state{};

  RecurrenceProblem problem() const { return {input.dtype()}; }
};

struct RecurrenceGradients {
  Tensor input;   ///< =, [rows, columns], rows may be strided; may be the same memory as grad_output
  Tensor gate{};  ///< =, as input, where the call has a gate; never the same memory as another tensor of the call
};

/// The running mean of each sequence's rows, column by column:
///
///     c_t = f_t c_{t-1} + (1 - f_t) x_t
///
/// with f_t = 1 / (1 + exp(-z_t)), the recurrence of SRU (Lei et al. 2018) and SSRU (Kim et al. 2019), or without a
/// gate f_t = t / (t + 1) for the row of position t: the mean of all rows so far (Zhang et al. 2018). Computed in
/// statistics_dtype. With g_t = grad_output_t + f_{t+1} g_{t+1}, from the last row to the first, the gradients are
/// (1 - f_t) g_t of x_t and g_t (c_{t-1} - x_t) f_t (1 - f_t) of z_t.
class Recurrence : public Operation<RecurrenceProblem> {
 public:
  static constexpr char const* operation = "recurrence";
  static std::shared_ptr<Recurrence> observed(ObservedSelection<Recurrence> selection);
  /// output = c [rows, columns]; the gradients need it.
  virtual void forward(Execution& execution, RecurrenceCall const& call, Tensor const& output) = 0;
  /// `output` is forward's.
  virtual void backward(Execution& execution, RecurrenceCall const& call, Tensor const& output,
                        Tensor const& grad_output, RecurrenceGradients const& gradients) = 0;
};

/// Throws Error where the tensors of a call do not have the dtype and the shape of the input.
void require_call(RecurrenceCall const& call, Tensor const& output);
void require_gradients(RecurrenceCall const& call, Tensor const& grad_output, RecurrenceGradients const& gradients);

/// The front end of implementations: checks a call's tensors and calls `Functions`, a class with these members.
/// - `template <class Element> static void forward(execution, call, output)`
/// - `template <class Element> static void backward(execution, call, output, grad_output, gradients)`
template <class Functions>
class RecurrenceFrontEnd final : public Recurrence {
 public:
  bool supports(RecurrenceProblem const& problem) const override { return problem.dtype != DType::int32; }
  void forward(Execution& execution, RecurrenceCall const& call, Tensor const& output) override {
    require_call(call, output);
    kernels::with_floating(call.input.dtype(), [&]<class Element>(Element) {
      Functions::template forward<Element>(execution, call, output);
    });
  }
  void backward(Execution& execution, RecurrenceCall const& call, Tensor const& output, Tensor const& grad_output,
                RecurrenceGradients const& gradients) override {
    require_call(call, output);
    require_gradients(call, grad_output, gradients);
    kernels::with_floating(call.input.dtype(), [&]<class Element>(Element) {
      Functions::template backward<Element>(execution, call, output, grad_output, gradients);
    });
  }
};

}  // namespace heddle
