#pragma once

#include <heddle/core/attention/context_attention.hpp>
#include <heddle/core/operations/tensor_ops.hpp>

namespace heddle {

/// A matrix with the columns of keys and of values side by side, and a view of it with fewer rows.
struct KeysAndValues {
  Tensor both;  ///< [rows, 2 * width]

  KeysAndValues first(std::int64_t rows) const { return {both.rows(0, rows)}; }
  Tensor keys() const { return both.columns(0, both.dim(1) / 2); }
  Tensor values() const { return both.columns(both.dim(1) / 2, both.dim(1) / 2); }
};

/// Tensors in a dtype, that of a kernel's operands or of its sums: unchanged, or copied to the arena.
class Widened {
 public:
  Widened(ContextAttention::Task const& task, TensorOps& tensor_ops, DType dtype)
      : task_(task), tensor_ops_(tensor_ops), dtype_(dtype) {}

  bool copies(Tensor const& tensor) const { return tensor.dtype() != dtype_; }
  /// `tensor` itself, or room for its elements.
  Tensor room_for(Tensor const& tensor) const {
    return copies(tensor) ? task_.arena.allocate(dtype_, tensor.shape()) : tensor;
  }
  Tensor operator()(Tensor const& tensor) const {
    Tensor const wide = room_for(tensor);
    copy(tensor, wide);
    return wide;
  }
  void copy(Tensor const& from, Tensor const& to) const {
    if (from.dtype() != to.dtype()) {
      tensor_ops_.copy(task_.execution, from, to);
    }
  }

 private:
  ContextAttention::Task const& task_;
  TensorOps& tensor_ops_;
  DType dtype_;
};

}  // namespace heddle
