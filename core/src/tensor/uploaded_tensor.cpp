#include <heddle/core/tensor/uploaded_tensor.hpp>

namespace heddle {

UploadedTensor::UploadedTensor(DType dtype, Shape const& shape)
    : tensor_(Tensor::allocate(dtype, shape)),
      // Without ownership, so that users of the elements can be counted by the other handle.
      host_(tensor_.space() == MemorySpace::host ? Tensor::borrow(tensor_.raw(), dtype, shape, MemorySpace::host)
                                                 : Tensor::allocate_on_host(dtype, shape)) {}

void UploadedTensor::upload() const {
  heddle::upload(tensor_, host_);
}

void UploadedTensor::upload(std::int64_t rows) const {
  heddle::upload(tensor_.rows(0, rows), host_.rows(0, rows));
}

}  // namespace heddle
