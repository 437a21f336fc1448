#pragma once

#include <cstdint>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <string>
#include <vector>

/// The index of a state file: the tensors, and where their arrays' bytes are in the other files.
namespace heddle {

/// The version of an index: 3 if an array has another shape than its parameter's value, 4 if one is not float32,
/// else 2.
std::int64_t tensor_index_version(std::vector<TensorInfo> const& tensors);
/// The index as JSON.
std::string tensor_index(std::vector<TensorInfo> const& tensors);
/// Reads an index of this version; `file_bytes` are the lengths of the files. Throws Error, or what Boost.JSON throws,
/// unless the tensors of each file are what fills it.
std::vector<TensorInfo> parse_tensor_index(std::string const& text, std::int64_t version,
                                           std::vector<std::int64_t> const& file_bytes);

}  // namespace heddle
