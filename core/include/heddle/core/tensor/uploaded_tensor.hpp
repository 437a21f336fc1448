#pragma once

#include <heddle/core/tensor/tensor.hpp>

namespace heddle {

/// A tensor that the host writes and kernels read: where kernels' memory is a device's, it has as much host memory
/// beside it, in which the host writes.
class UploadedTensor {
 public:
  UploadedTensor() = default;
  UploadedTensor(DType dtype, Shape const& shape);

  /// In kernels' memory.
  Tensor const& tensor() const { return tensor_; }
  /// In host memory: the same elements if kernels compute there. It must not be written between an upload and the
  /// next time that the host waits for kernels.
  Tensor const& host() const { return host_; }
  /// Copies what the host has written, all of it or rows [0, rows), in the order of the kernels' launches.
  void upload() const;
  void upload(std::int64_t rows) const;

 private:
  Tensor tensor_;
  Tensor host_;
};

}  // namespace heddle
