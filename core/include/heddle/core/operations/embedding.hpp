#pragma once

#include <heddle/core/operations/dispatch.hpp>
#include <heddle/core/operations/dropout.hpp>
#include <heddle/core/operations/kernel.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <memory>
#include <string>
#include <type_traits>

namespace heddle {

struct EmbeddingProblem {
  DType dtype = DType::float32;  ///< dtype of the output
  /// statistics_dtype, as that of positions and of gradients; or, if that is float32, bfloat16, of a table without a
  /// gradient.
  DType table_dtype = DType::float32;
  std::int64_t d_model = 0;
};
std::string describe(EmbeddingProblem const& problem);
/// The cost of a call of `tokens` tokens. Each counts its row of the table; repeated tokens move less.
Cost forward_cost(EmbeddingProblem const& problem, double tokens);
Cost backward_cost(EmbeddingProblem const& problem, double tokens);

struct EmbeddingCall {
  Tensor table;      ///< [local vocabulary, d_model]
  Tensor positions;  ///< [max_length, d_model] or empty
  TokenIds tokens;   ///< ids outside this rank's part of the table give zero rows
  TokenRows rows;
  std::int64_t first_token = 0;  ///< the global id of the table's row 0
  double scale = 1;
  Dropout dropout{};

  EmbeddingProblem problem(DType output) const { return {output, table.dtype(), table.dim(1)}; }
};

/// output[row] = dropout(scale * table[id[row]] + positions[position[row]]).
class Embedding : public Operation<EmbeddingProblem> {
 public:
  static constexpr char const* operation = "embedding";
  static std::shared_ptr<Embedding> observed(ObservedSelection<Embedding> selection);
  /// output = [tokens, d_model].
  virtual void forward(Execution& execution, EmbeddingCall const& call, Tensor const& output) = 0;
  /// grad_table += and grad_positions +=, as sums over sorted segments: without atomics, in a fixed order. One of them
  /// may be empty: a frozen table, fixed or frozen positions.
  virtual void backward(Execution& execution, EmbeddingCall const& call, Tensor const& grad_output,
                        Tensor const& grad_table, Tensor const& grad_positions) = 0;
};

/// The front end of implementations: calls `Functions`, a class with these members.
/// - `template <class Element, class TableElement> static void forward(execution, call, output)`
/// - `template <class Element> static void backward(execution, call, grad_output, grad_table, grad_positions)`
template <class Functions>
class EmbeddingFrontEnd final : public Embedding {
 public:
  bool supports(EmbeddingProblem const& problem) const override {
    DType const real = statistics_dtype(problem.dtype);
    bool const rounded = problem.table_dtype == DType::bfloat16 && real == DType::float32;
    return problem.dtype != DType::int32 && (problem.table_dtype == real || rounded);
  }
  void forward(Execution& execution, EmbeddingCall const& call, Tensor const& output) override {
    kernels::with_floating(output.dtype(), [&]<class Element>(Element) {
      using Real = kernels::ArithmeticType<Element>;
      if constexpr (std::is_same_v<Real, float>) {
        if (call.table.dtype() == DType::bfloat16) {
          return Functions::template forward<Element, BFloat16>(execution, call, output);
        }
      }
      return Functions::template forward<Element, Real>(execution, call, output);
    });
  }
  void backward(Execution& execution, EmbeddingCall const& call, Tensor const& grad_output, Tensor const& grad_table,
                Tensor const& grad_positions) override {
    kernels::with_floating(grad_output.dtype(), [&]<class Element>(Element) {
      Functions::template backward<Element>(execution, call, grad_output, grad_table, grad_positions);
    });
  }
};

}  // namespace heddle
