#pragma once

#include <cstdint>
#include <heddle/core/parallel/tensor_stream.hpp>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

/// A tensor and its place in a checkpoint. Its name has no '/': "encoder.layers.0.self_attention.q.weight".
struct TensorInfo : StreamedTensor {
  std::size_t file = 0;               ///< the number of its file
  std::vector<std::int64_t> offsets;  ///< where its arrays' bytes start in the file, in the order of the keys

  std::int64_t elements(std::string const& key = value_key) const;
  std::int64_t element_bytes() const { return static_cast<std::int64_t>(size_of(dtype)); }
  /// The bytes of all its arrays.
  std::int64_t bytes() const;
  /// The place of a key among `keys`, if it is there.
  std::optional<std::size_t> find(std::string const& key) const;
};

}  // namespace heddle
