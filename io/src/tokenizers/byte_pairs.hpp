#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizers/pair_merges.hpp"

namespace heddle {

/// GPT-2's alphabet, a printable character for each byte: the text of its pieces for bytes.
std::string in_byte_alphabet(std::string_view bytes);
/// The way back; nothing if a character is not of the alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view text);

/// Byte-pair encoding of the bytes of words.
class BytePairs {
 public:
  /// `ids` are the pieces' ids by their bytes; each byte is a piece. Throws DataError for a byte that is none.
  explicit BytePairs(std::unordered_map<std::string, std::int32_t> ids);

  /// The next merge, of pieces by their bytes. Throws DataError if one of them or both together are not a piece.
  void add_merge(std::string const& left, std::string const& right);

  /// The id of a piece by its bytes.
  std::optional<std::int32_t> find(std::string const& bytes) const;

  /// Appends the ids of a word, of less than 4 GiB.
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const;

 private:
  std::int32_t require(std::string const& bytes) const;

  std::unordered_map<std::string, std::int32_t> ids_;
  std::array<std::int32_t, 256> bytes_{};
  PairMerges merges_;
};

}  // namespace heddle
