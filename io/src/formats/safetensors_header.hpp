#pragma once

#include <cstdint>
#include <heddle/io/formats/foreign_tensors.hpp>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The header of a safetensors file: its length, 8 bytes with the lowest first, and JSON.
namespace heddle {

inline constexpr std::int64_t safetensors_length_bytes = 8;
inline constexpr std::int64_t max_safetensors_header_bytes = 100'000'000;  ///< the library's limit
inline constexpr std::size_t max_safetensors_names = 1'000'000;            ///< bounds the memory of a forged header

/// A tensor and its first byte, counted from the end of the header.
struct StoredTensor {
  ForeignTensor tensor;
  std::int64_t begin = 0;
};

/// Reads the tensors in the JSON of a header that `data_bytes` follow. Throws DataError, which begins with `where`,
/// unless its tensors cover them exactly.
std::map<std::string, StoredTensor> parse_safetensors_header(std::string_view text, std::int64_t data_bytes,
                                                             std::string const& where);

/// The header as the library writes it, with its length and the padding; `tensors` are in the order of their bytes.
std::string safetensors_header_text(std::vector<std::pair<std::string, StoredTensor>> const& tensors);

/// The bytes of a tensor. Throws DataError, which begins with `where`, for a dtype that the format does not have and a
/// shape that is negative, of more than 64 dimensions or too large.
std::int64_t safetensors_bytes(std::string const& name, ForeignTensor const& tensor, std::string const& where);

/// Throws DataError, which begins with `where`, for a name that contains NUL or is longer than 1,000 bytes.
void check_safetensors_name(std::string const& name, std::string const& where);

}  // namespace heddle
