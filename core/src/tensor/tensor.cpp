#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/tensor/tensor.hpp>

#include "memory/system_memory.hpp"

namespace heddle {

namespace {

/// At least one cache line, because a tensor without elements must not be "empty" (not given).
std::size_t bytes_of(DType dtype, Shape const& shape) {
  return std::max<std::size_t>(64, static_cast<std::size_t>(shape.size()) * size_of(dtype));
}

/// The memory that `take` gives. Its own error (of Kokkos, or std::bad_alloc) does not say what to change.
template <class Take>
std::shared_ptr<void> granted(std::size_t bytes, Take const& take) {
  try {
    return take(bytes);
  } catch (std::exception const&) {
    throw ConfigError(
        "the system refuses {} of memory for one tensor; a smaller model (model.d_model, model.d_ff) or smaller "
        "micro-batches (train.micro_batch_tokens) need less, parallel.tensor and parallel.pipeline divide a model over "
        "more ranks, and `ulimit -v` or the job's memory limit may allow more",
        readable_size(static_cast<std::int64_t>(bytes)));
  }
}

}  // namespace

Shape::Shape(std::span<std::int64_t const> extents) : rank_(static_cast<int>(extents.size())) {
  if (extents.size() > max_rank) {
    throw Error("a tensor has at most {} axes, not {}", max_rank, extents.size());
  }
  for (std::size_t axis = 0; axis < extents.size(); ++axis) {
    if (extents[axis] < 0) {
      throw Error("axis {} of a tensor has the negative extent {}", axis, extents[axis]);
    }
    extents_[axis] = extents[axis];
  }
}

std::int64_t Shape::size() const {
  std::int64_t product = 1;
  for (int axis = 0; axis < rank_; ++axis) {
    product *= extents_[static_cast<std::size_t>(axis)];
  }
  return product;
}

std::string Shape::to_string() const {
  return fmt::format("[{}]", fmt::join(to_vector(), ", "));
}

Tensor Tensor::allocate(DType dtype, Shape const& shape) {
  std::shared_ptr<void> owner = granted(bytes_of(dtype, shape), take_zeroed);
  Tensor tensor = borrow(owner.get(), dtype, shape);
  tensor.owner_ = std::move(owner);
  return tensor;
}

Tensor Tensor::allocate_on_host(DType dtype, Shape const& shape) {
  std::shared_ptr<void> owner = granted(bytes_of(dtype, shape), take_on_host);
  Tensor tensor = borrow(owner.get(), dtype, shape, MemorySpace::host);
  tensor.owner_ = std::move(owner);
  return tensor;
}

Tensor Tensor::borrow(void* data, DType dtype, Shape const& shape, MemorySpace space) {
  Tensor tensor;
  tensor.data_ = data;
  tensor.dtype_ = dtype;
  tensor.space_ = space;
  tensor.shape_ = shape;
  tensor.row_stride_ = shape.rank() == 0 || shape[0] == 0 ? 1 : shape.size() / shape[0];
  if (shape.rank() == 2) {
    tensor.row_stride_ = shape[1];
  }
  return tensor;
}

Tensor Tensor::reshaped(Shape const& shape) const {
  if (!contiguous() || shape.size() != shape_.size()) {
    throw Error("a tensor of shape {}{} cannot take the shape {}", shape_.to_string(),
                contiguous() ? "" : " with strided rows", shape.to_string());
  }
  Tensor result = borrow(data_, dtype_, shape, space_);
  result.owner_ = owner_;
  return result;
}

Tensor Tensor::with_dtype(DType dtype) const {
  if (size_of(dtype) != size_of(dtype_)) {
    throw Error("elements of {} cannot be read as {}", name_of(dtype_), name_of(dtype));
  }
  Tensor result = reshaped(shape_);
  result.dtype_ = dtype;
  return result;
}

Tensor Tensor::rows(std::int64_t begin, std::int64_t count) const {
  if (shape_.rank() == 0 || begin < 0 || count < 0 || begin + count > shape_[0]) {
    throw Error("rows [{}, {}) of a tensor of shape {}", begin, begin + count, shape_.to_string());
  }
  std::array<std::int64_t, Shape::max_rank> extents{count};
  for (int axis = 1; axis < shape_.rank(); ++axis) {
    extents[static_cast<std::size_t>(axis)] = shape_[axis];
  }
  Tensor result = *this;
  result.shape_ = Shape(std::span<std::int64_t const>(extents).first(static_cast<std::size_t>(shape_.rank())));
  result.data_ = static_cast<unsigned char*>(data_) + begin * row_stride_ * static_cast<std::int64_t>(size_of(dtype_));
  return result;
}

Tensor Tensor::columns(std::int64_t begin, std::int64_t count) const {
  if (shape_.rank() != 2 || begin < 0 || count < 0 || begin + count > shape_[1]) {
    throw Error("columns [{}, {}) of a tensor of shape {}", begin, begin + count, shape_.to_string());
  }
  Tensor result = *this;
  result.shape_ = Shape{shape_[0], count};
  result.data_ = static_cast<unsigned char*>(data_) + begin * static_cast<std::int64_t>(size_of(dtype_));
  return result;
}

void Tensor::require(DType dtype, Shape const& shape, char const* what) const {
  if (empty() || dtype != dtype_ || !(shape == shape_)) {
    throw Error("{} must be {} {}, but is {} {}", what, name_of(dtype), shape.to_string(),
                empty() ? "empty" : name_of(dtype_), shape_.to_string());
  }
}

void Tensor::require_dtype(DType dtype) const {
  if (dtype != dtype_) {
    throw Error("a tensor of {} was read as {}", name_of(dtype_), name_of(dtype));
  }
}

void copy_from_host(Tensor const& destination, void const* source, Execution const* execution) {
  if (!destination.contiguous()) {
    throw Error("copy_from_host needs a contiguous tensor");
  }
  auto const bytes = static_cast<std::size_t>(destination.bytes());
  if (bytes > 0 && destination.space() == MemorySpace::host) {
    std::memcpy(destination.raw(), source, bytes);
  } else if (bytes > 0) {
    copy_in(destination.raw(), source, bytes, execution);
    count_wait();
  }
}

void copy_to_host(void* destination, Tensor const& source, Execution const* execution) {
  if (!source.contiguous()) {
    throw Error("copy_to_host needs a contiguous tensor");
  }
  auto const bytes = static_cast<std::size_t>(source.bytes());
  if (bytes > 0 && source.space() == MemorySpace::host) {
    std::memcpy(destination, source.raw(), bytes);
  } else if (bytes > 0) {
    copy_out(destination, source.raw(), bytes, execution);
    count_wait();
  }
}

void upload(Tensor const& destination, Tensor const& source) {
  if (!destination.contiguous() || !source.contiguous() || source.bytes() != destination.bytes() ||
      source.space() != MemorySpace::host) {
    throw Error("upload needs contiguous tensors of equal size, the source in host memory");
  }
  auto const bytes = static_cast<std::size_t>(destination.bytes());
  if (bytes == 0 || destination.raw() == source.raw()) {
    return;
  }
  if (destination.space() == MemorySpace::host) {
    std::memcpy(destination.raw(), source.raw(), bytes);
  } else {
    start_copy_in(destination.raw(), source.raw(), bytes);
  }
}

}  // namespace heddle
