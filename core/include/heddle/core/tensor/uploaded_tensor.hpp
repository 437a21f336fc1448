#pragma once

#include <heddle/core/tensor/tensor.hpp>

namespace heddle {

/// A tensor that the host writes and kernels read: where kernels' memory is a device's, it has as much host memory
/// beside it, in which the host writes.
class UploadedTensor {
 public:
  UploadedTensor() = default;
  UploadedTensor(DType dtype, Shape const& shape)
      : tensor_(Tensor::allocate(dtype, shape)),
        // Without ownership, so that users of the elements can be counted by the other handle.
        host_(tensor_.space() == MemorySpace::host ? Tensor::borrow(tensor_.raw(), dtype, shape, MemorySpace::host)
                                                   : Tensor::allocate_on_host(dtype, shape)) {}

  Tensor const& tensor() const { return tensor_; }
  /// The elements in host memory: the same memory if kernels compute there. They must not be written between an upload
  /// and the next time that the host waits for kernels.
  Tensor const& host() const { return host_; }
  /// Copies what the host has written, all of it or rows [0, rows), in the order of the kernels' launches.
  void upload() const { heddle::upload(tensor_, host_); }
  void upload(std::int64_t rows) const { heddle::upload(tensor_.rows(0, rows), host_.rows(0, rows)); }

 private:
  Tensor tensor_;
  Tensor host_;
};

}  // namespace heddle
