#pragma once

#include <array>
#include <cstdint>
#include <heddle/core/base/dtype.hpp>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace heddle {

/// Up to four extents, outermost first.
class Shape {
 public:
  static constexpr int max_rank = 4;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}
  explicit Shape(std::span<std::int64_t const> extents);

  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const { return extents_[static_cast<std::size_t>(axis)]; }
  /// The product of the extents; 1 for rank 0.
  std::int64_t size() const;
  std::vector<std::int64_t> to_vector() const { return {extents_.begin(), extents_.begin() + rank_}; }
  std::string to_string() const;
  bool operator==(Shape const&) const = default;

 private:
  std::array<std::int64_t, max_rank> extents_{};
  int rank_ = 0;
};

/// The memory space of a tensor's elements. In `host` memory kernels are finished when their calls return.
enum class MemorySpace : std::uint8_t { host, device };

/// The memory that kernels compute in: that of Kokkos's default execution space, or of an emulated device.
MemorySpace kernel_memory_space();

/// A handle to elements in kernels' memory (or, where stated, the host's), row major. Copies share the elements, like
/// those of a Kokkos::View; a `Tensor const` protects the handle, not the elements. Only axis 0 may be strided
/// (`row_stride`), so that a column range of a matrix is also a Tensor. Host code may dereference `data()` only of a
/// tensor in host memory; for others it uses copy_to_host/copy_from_host.
class Tensor {
 public:
  /// A tensor without elements; `empty()` is true. Means "not given" where a call has optional tensors.
  Tensor() = default;
  /// A zeroed allocation in kernels' memory, 64-byte aligned, which the tensor owns.
  static Tensor allocate(DType dtype, Shape const& shape);
  /// An uninitialised allocation in host memory, 64-byte aligned, which the tensor owns: a buffer for data that leaves
  /// or enters the process.
  static Tensor allocate_on_host(DType dtype, Shape const& shape);
  /// A handle to elements with another owner (an arena), which must outlive the handle.
  static Tensor borrow(void* data, DType dtype, Shape const& shape, MemorySpace space = kernel_memory_space());

  bool empty() const { return data_ == nullptr; }
  DType dtype() const { return dtype_; }
  MemorySpace space() const { return space_; }
  Shape const& shape() const { return shape_; }
  std::int64_t dim(int axis) const { return shape_[axis]; }
  std::int64_t size() const { return empty() ? 0 : shape_.size(); }
  std::int64_t bytes() const { return size() * static_cast<std::int64_t>(size_of(dtype_)); }
  /// Elements between the starts of consecutive indices of axis 0.
  std::int64_t row_stride() const { return row_stride_; }
  bool contiguous() const { return shape_.rank() == 0 || shape_[0] <= 1 || row_stride_ * shape_[0] == shape_.size(); }
  /// Whether this handle is the only one to elements that it owns.
  bool sole_owner() const { return owner_.use_count() == 1; }

  void* raw() const { return data_; }
  /// Throws where Element is not the tensor's dtype.
  template <class Element>
  Element* data() const {
    require_dtype(DTypeOf<Element>::value);
    return static_cast<Element*>(data_);
  }

  /// The same elements under another shape of the same size; contiguous tensors only.
  Tensor reshaped(Shape const& shape) const;
  /// The same bits as elements of another type of the same size; contiguous tensors only.
  Tensor with_dtype(DType dtype) const;
  /// Indices [begin, begin + count) of axis 0.
  Tensor rows(std::int64_t begin, std::int64_t count) const;
  /// Columns [begin, begin + count) of a matrix.
  Tensor columns(std::int64_t begin, std::int64_t count) const;

  /// Throws unless the tensor has this dtype and shape; `what` names the tensor in the message.
  void require(DType dtype, Shape const& shape, char const* what) const;

 private:
  void require_dtype(DType dtype) const;

  std::shared_ptr<void> owner_;
  void* data_ = nullptr;
  DType dtype_ = DType::float32;
  MemorySpace space_ = MemorySpace::host;
  Shape shape_;
  std::int64_t row_stride_ = 0;
};

struct Execution;

/// Copies `bytes()` of a contiguous tensor between host memory and the tensor's memory space, after the kernels that
/// `execution` launched before or, if it is null, after all kernels; waits for the copy.
void copy_from_host(Tensor const& destination, void const* source, Execution const* execution = nullptr);
void copy_to_host(void* destination, Tensor const& source, Execution const* execution = nullptr);

/// Copies a contiguous tensor in host memory to one in kernels' memory between the kernels launched before and those
/// launched later by the calling thread; may return before it is done: the source stays as it is until the host has
/// waited for kernels (waits_for_kernels in device_work.hpp). Copies nothing if the two are the same memory.
void upload(Tensor const& destination, Tensor const& source);

/// The elements of a contiguous tensor, copied to the host. Throws if Element is not its dtype.
template <class Element>
std::vector<Element> to_host(Tensor const& tensor) {
  static_cast<void>(tensor.data<Element>());
  std::vector<Element> host(static_cast<std::size_t>(tensor.size()));
  copy_to_host(host.data(), tensor);
  return host;
}

/// A new tensor with these elements.
template <class Element>
Tensor from_host(std::span<Element const> elements, Shape const& shape) {
  Tensor tensor = Tensor::allocate(DTypeOf<Element>::value, shape);
  tensor.require(DTypeOf<Element>::value, shape, "from_host");
  copy_from_host(tensor, elements.data());
  return tensor;
}

}  // namespace heddle
