#pragma once

#include <cstdint>
#include <functional>
#include <heddle/core/base/index_range.hpp>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace heddle {

/// A tensor in the files of another system.
struct ForeignTensor {
  std::vector<std::int64_t> shape;
  std::string dtype;  ///< "float32", "bfloat16" or "float16"

  std::int64_t elements() const {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  }
};

/// The tensors of a model in another system's files, read piece by piece: no reader holds a whole model.
class ForeignTensors {
 public:
  virtual ~ForeignTensors() = default;

  virtual std::map<std::string, ForeignTensor> const& tensors() const = 0;
  /// Reads consecutive elements, row major, converted to float32; `into` is [elements.count()]. Throws DataError if
  /// they cannot be read, or if one is infinite or not a number; Error for a tensor or elements that are not there.
  virtual void read(std::string const& name, IndexRange const& elements, std::span<float> into) const = 0;
};

}  // namespace heddle
