#include <cstdint>
#include <heddle/core/tensor/doubles.hpp>

namespace heddle {

namespace {

template <class Element>
void append_row(std::vector<double>& to, Tensor const& row) {
  for (Element const element : to_host<Element>(row)) {
    if constexpr (std::is_same_v<Element, BFloat16>) {
      to.push_back(static_cast<float>(element));
    } else {
      to.push_back(static_cast<double>(element));
    }
  }
}

template <class Element>
void copy_row(Tensor const& row, double const* values) {
  std::vector<Element> elements(static_cast<std::size_t>(row.size()));
  for (Element& element : elements) {
    if constexpr (std::is_same_v<Element, BFloat16>) {
      element = BFloat16(static_cast<float>(*values++));
    } else {
      element = static_cast<Element>(*values++);
    }
  }
  copy_from_host(row, elements.data());
}

/// Calls `work(part, Element{})` for each contiguous part of the tensor.
template <class Work>
void for_each_part(Tensor const& tensor, Work const& work) {
  bool const whole = tensor.empty() || tensor.contiguous();
  std::int64_t const parts = tensor.size() == 0 ? 0 : (whole ? 1 : tensor.dim(0));
  for (std::int64_t index = 0; index < parts; ++index) {
    Tensor const part = whole ? tensor : tensor.rows(index, 1);
    switch (tensor.dtype()) {
      case DType::float32:
        work(part, float{});
        break;
      case DType::float64:
        work(part, double{});
        break;
      case DType::bfloat16:
        work(part, BFloat16{});
        break;
      case DType::int32:
        work(part, std::int32_t{});
        break;
    }
  }
}

}  // namespace

std::vector<double> to_doubles(Tensor const& tensor) {
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(tensor.size()));
  for_each_part(tensor, [&]<class Element>(Tensor const& part, Element) { append_row<Element>(values, part); });
  return values;
}

void copy_from_doubles(Tensor const& tensor, std::vector<double> const& values) {
  double const* next = values.data();
  for_each_part(tensor, [&]<class Element>(Tensor const& part, Element) {
    copy_row<Element>(part, next);
    next += part.size();
  });
}

Tensor from_doubles(std::vector<double> const& values, DType dtype, Shape const& shape) {
  Tensor tensor = Tensor::allocate(dtype, shape);
  copy_from_doubles(tensor, values);
  return tensor;
}

}  // namespace heddle
