#pragma once

#include <heddle/core/operations/kernel.hpp>
#include <memory>
#include <string>

namespace heddle {

struct GemmProblem {
  DType dtype = DType::float32;  ///< dtype of a
  /// a's; or float32 where a is bfloat16, to which b's elements are rounded first; or bfloat16 where a is float32, b
  /// being a weight that is kept so.
  DType b_dtype = DType::float32;
  DType output_dtype = DType::float32;  ///< dtype of c
  std::int64_t m = 0, n = 0, k = 0;     ///< m of a problem to select by: approximate, it differs from call to call
  bool transpose_a = false, transpose_b = false, accumulate = false, bias = false;
  bool gaps = false;  ///< rows of a or c are apart: parts of wider matrices
};
std::string describe(GemmProblem const& problem);
std::string timing_key(GemmProblem const& problem);
/// 2 m n k operations. b counts as a packed copy in a's type: a weight is read in that form.
Cost cost(GemmProblem const& problem);

struct GemmCall {
  Tensor a;     ///< [m, k], or [k, m] when transposed; rows may be strided
  Tensor b;     ///< [k, n], or [n, k] when transposed; rows may be strided; see GemmProblem::b_dtype
  Tensor c;     ///< [m, n]; rows may be strided
  Tensor bias;  ///< [n] in parameter_dtype(c's), or empty
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;   ///< c += instead of c =
  WeightVersion b_weight{};  ///< set where b is a parameter's value

  GemmProblem problem() const;
};

/// c = op(a) op(b) + bias, or c += op(a) op(b) + bias.
class Gemm : public Operation<GemmProblem> {
 public:
  static constexpr char const* operation = "gemm";
  static std::shared_ptr<Gemm> observed(ObservedSelection<Gemm> selection);
  virtual void multiply(Execution& execution, GemmCall const& call) = 0;
  /// Bytes of the copy of b that a call keeps where its b_weight is set (see Kernel::kept_bytes); 0: none.
  virtual std::size_t packed_bytes(GemmProblem const& problem) const {
    static_cast<void>(problem);
    return 0;
  }
};

}  // namespace heddle
