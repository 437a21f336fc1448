#include <functional>
#include <heddle/io/formats/foreign_tensors.hpp>
#include <numeric>

namespace heddle {

std::int64_t ForeignTensor::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace heddle
