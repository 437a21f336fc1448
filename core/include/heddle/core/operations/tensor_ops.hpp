#pragma once

#include <heddle/core/operations/kernel.hpp>
#include <memory>
#include <string>

namespace heddle {

struct TensorOpsProblem {
  DType dtype = DType::float32;
};
/// The problem in words, for messages.
std::string describe(TensorOpsProblem const& problem);
/// The part of a problem that measured times depend on (KernelTimings).
std::string timing_key(TensorOpsProblem const& problem);

/// Small passes over memory that belong to no other operation. Tensors are contiguous unless stated otherwise.
class TensorOps : public Kernel {
 public:
  static constexpr char const* operation = "tensor_ops";
  using Problem = TensorOpsProblem;
  virtual bool supports(TensorOpsProblem const& problem) const = 0;
  static std::shared_ptr<TensorOps> observed(ObservedSelection<TensorOps> selection);
  /// tensor = value everywhere; rows may be strided.
  virtual void fill(Execution& execution, Tensor const& tensor, double value) = 0;
  /// into += from, same shape; rows of both may be strided.
  virtual void add(Execution& execution, Tensor const& into, Tensor const& from) = 0;
  /// to = from, same shape; rows of both may be strided; the dtypes may be any two floating-point ones.
  virtual void copy(Execution& execution, Tensor const& from, Tensor const& to) = 0;
  /// sums [columns] in statistics_dtype += the column sums of matrix [rows, columns] (a bias gradient).
  virtual void add_column_sums(Execution& execution, Tensor const& matrix, Tensor const& sums) = 0;
  /// Σ x² in float64, on the host, always summed in the same order.
  virtual double sum_of_squares(Execution& execution, Tensor const& tensor) = 0;
  /// to[i] = from[index[i]] for int32 index [n]; from and to are matrices with equal columns and distinct memory,
  /// their rows may be strided.
  virtual void gather_rows(Execution& execution, Tensor const& from, Tensor const& index, Tensor const& to) = 0;
  /// Rotates pairs of columns (2i, 2i + 1) of matrix [rows, n * w] in place: those of row r by the angles whose cosines
  /// and sines row position[r] of `table` has in the columns 2i and 2i + 1 (Su et al. 2021), for each of the n groups
  /// of w columns. position: int32 [rows]; table: [positions, w] in statistics_dtype, w even. `back`: by the negative
  /// angles. The matrix's rows may be strided.
  virtual void rotate(Execution& execution, Tensor const& matrix, Tensor const& position, Tensor const& table,
                      bool back) = 0;
};

}  // namespace heddle
