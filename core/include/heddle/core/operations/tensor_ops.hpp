#pragma once

#include <heddle/core/base/enumerations.hpp>
#include <heddle/core/operations/dispatch.hpp>
#include <heddle/core/operations/kernel.hpp>
#include <memory>
#include <string>

namespace heddle {

struct TensorOpsProblem {
  DType dtype = DType::float32;
};
std::string describe(TensorOpsProblem const& problem);

/// Angles by which pairs of columns turn (Su et al. 2021).
struct Rotation {
  Tensor position;  ///< int32 [rows]
  /// [positions, w] in statistics_dtype, w even: columns 2i and 2i + 1 of a position's row are the cosine and the sine
  /// of pair i's angle.
  Tensor table;
  PairLayout layout = PairLayout::interleaved;  ///< which of the w columns are pairs
  bool back = false;                            ///< by the negative angles
};

/// Small passes over memory that belong to no other operation. Tensors are contiguous unless stated otherwise. Whatever
/// the dtype that an implementation is selected for, fill, add and copy also take float64, in which losses are summed.
class TensorOps : public Operation<TensorOpsProblem> {
 public:
  static constexpr char const* operation = "tensor_ops";
  static std::shared_ptr<TensorOps> observed(ObservedSelection<TensorOps> selection);
  /// tensor = value everywhere; rows may be strided.
  virtual void fill(Execution& execution, Tensor const& tensor, double value) = 0;
  /// tensor *= factor; rows may be strided.
  virtual void scale(Execution& execution, Tensor const& tensor, double factor) = 0;
  /// into += from, same shape; rows of both may be strided.
  virtual void add(Execution& execution, Tensor const& into, Tensor const& from) = 0;
  /// into += share * (from - into), same shape, for a share [1] in float64; rows of both may be strided.
  virtual void mix(Execution& execution, Tensor const& into, Tensor const& from, Tensor const& share) = 0;
  /// to = from, same shape; rows of both may be strided; the dtypes may be any two floating-point ones.
  virtual void copy(Execution& execution, Tensor const& from, Tensor const& to) = 0;
  /// sums [columns] in statistics_dtype += the column sums of matrix [rows, columns] (a bias gradient).
  virtual void add_column_sums(Execution& execution, Tensor const& matrix, Tensor const& sums) = 0;
  /// sum [1] in float64 += Σ x² of a contiguous tensor, always summed in the same order.
  virtual void add_sum_of_squares(Execution& execution, Tensor const& tensor, Tensor const& sum) = 0;
  /// to[place[i]] = from[index[i]] for int32 index and place [n]; an empty one stands for 0 to n - 1, and n is then the
  /// rows of the other tensor. Matrices with equal columns, whose rows may be strided. They may be one matrix if no row
  /// is both read and written.
  virtual void copy_rows(Execution& execution, Tensor const& from, Tensor const& index, Tensor const& to,
                         Tensor const& place) = 0;
  /// to[i] = from[index[i]].
  void gather_rows(Execution& execution, Tensor const& from, Tensor const& index, Tensor const& to) {
    copy_rows(execution, from, index, to, Tensor());
  }
  /// to[:, j] = from[:, index[j]] for int32 index [m], from [rows, n] and to [rows, m].
  virtual void gather_columns(Execution& execution, Tensor const& from, Tensor const& index, Tensor const& to) = 0;
  /// into[:, index[j]] += from[:, j], in the order of j: gather_columns' gradient. from [rows, m], into [rows, n].
  virtual void add_gathered_columns(Execution& execution, Tensor const& from, Tensor const& index,
                                    Tensor const& into) = 0;
  /// Rotates pairs of columns of matrix [rows, n * w] in place, those of row r by the angles of position[r], for each
  /// of the n groups of w columns. The matrix's rows may be strided.
  virtual void rotate(Execution& execution, Tensor const& matrix, Rotation const& rotation) = 0;
  /// values = limit * tanh(values / limit), for a limit above 0 (Bello et al. 2017).
  virtual void cap(Execution& execution, Tensor const& values, double limit) = 0;
  /// gradient *= 1 - (capped / limit)², the backward pass of cap, whose results are `capped`.
  virtual void cap_backward(Execution& execution, Tensor const& capped, Tensor const& gradient, double limit) = 0;

 protected:
  // The front end's checks.
  static void require_same_shape(Tensor const& from, Tensor const& to, char const* method);
  static void require_sum_of_squares(Tensor const& tensor, Tensor const& sum);
  static void require_rotation(Tensor const& matrix, Rotation const& rotation);
  static void require_row_copy(Tensor const& from, Tensor const& index, Tensor const& to, Tensor const& place);
  /// `wide` has a column for each index, `narrow` those that the indices name.
  static void require_column_gather(Tensor const& wide, Tensor const& index, Tensor const& narrow);
};

/// The front end of implementations: checks the tensors and calls the methods' namesakes in `Functions`, static
/// templates whose parameter is the element type; copy has two, those of `from` and `to`.
template <class Functions>
class TensorOpsFrontEnd final : public TensorOps {
 public:
  bool supports(TensorOpsProblem const& problem) const override { return problem.dtype != DType::int32; }
  void fill(Execution& execution, Tensor const& tensor, double value) override {
    kernels::with_floating(
        tensor.dtype(), [&]<class Element>(Element) { Functions::template fill<Element>(execution, tensor, value); });
  }
  void scale(Execution& execution, Tensor const& tensor, double factor) override {
    kernels::with_floating(
        tensor.dtype(), [&]<class Element>(Element) { Functions::template scale<Element>(execution, tensor, factor); });
  }
  void add(Execution& execution, Tensor const& into, Tensor const& from) override {
    require_same_shape(from, into, "add");
    kernels::with_floating(into.dtype(),
                           [&]<class Element>(Element) { Functions::template add<Element>(execution, into, from); });
  }
  void mix(Execution& execution, Tensor const& into, Tensor const& from, Tensor const& share) override {
    require_same_shape(from, into, "mix");
    share.require(DType::float64, {1}, "mix's share");
    kernels::with_floating(
        into.dtype(), [&]<class Element>(Element) { Functions::template mix<Element>(execution, into, from, share); });
  }
  void copy(Execution& execution, Tensor const& from, Tensor const& to) override {
    require_same_shape(from, to, "copy");
    kernels::with_floating(from.dtype(), [&]<class From>(From) {
      kernels::with_floating(to.dtype(),
                             [&]<class To>(To) { Functions::template copy<From, To>(execution, from, to); });
    });
  }
  void add_column_sums(Execution& execution, Tensor const& matrix, Tensor const& sums) override {
    sums.require(statistics_dtype(matrix.dtype()), Shape{matrix.dim(1)}, "add_column_sums' sums");
    kernels::with_floating(matrix.dtype(), [&]<class Element>(Element) {
      Functions::template add_column_sums<Element>(execution, matrix, sums);
    });
  }
  void add_sum_of_squares(Execution& execution, Tensor const& tensor, Tensor const& sum) override {
    require_sum_of_squares(tensor, sum);
    kernels::with_floating(tensor.dtype(), [&]<class Element>(Element) {
      Functions::template add_sum_of_squares<Element>(execution, tensor, sum);
    });
  }
  void copy_rows(Execution& execution, Tensor const& from, Tensor const& index, Tensor const& to,
                 Tensor const& place) override {
    require_row_copy(from, index, to, place);
    kernels::with_floating(from.dtype(), [&]<class Element>(Element) {
      Functions::template copy_rows<Element>(execution, from, index, to, place);
    });
  }
  void gather_columns(Execution& execution, Tensor const& from, Tensor const& index, Tensor const& to) override {
    require_column_gather(to, index, from);
    kernels::with_floating(from.dtype(), [&]<class Element>(Element) {
      Functions::template gather_columns<Element>(execution, from, index, to);
    });
  }
  void add_gathered_columns(Execution& execution, Tensor const& from, Tensor const& index,
                            Tensor const& into) override {
    require_column_gather(from, index, into);
    kernels::with_floating(into.dtype(), [&]<class Element>(Element) {
      Functions::template add_gathered_columns<Element>(execution, from, index, into);
    });
  }
  void rotate(Execution& execution, Tensor const& matrix, Rotation const& rotation) override {
    require_rotation(matrix, rotation);
    kernels::with_floating(matrix.dtype(), [&]<class Element>(Element) {
      Functions::template rotate<Element>(execution, matrix, rotation);
    });
  }
  void cap(Execution& execution, Tensor const& values, double limit) override {
    kernels::with_floating(values.dtype(),
                           [&]<class Element>(Element) { Functions::template cap<Element>(execution, values, limit); });
  }
  void cap_backward(Execution& execution, Tensor const& capped, Tensor const& gradient, double limit) override {
    require_same_shape(capped, gradient, "cap_backward");
    kernels::with_floating(gradient.dtype(), [&]<class Element>(Element) {
      Functions::template cap_backward<Element>(execution, capped, gradient, limit);
    });
  }
};

}  // namespace heddle
