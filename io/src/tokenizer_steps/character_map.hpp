#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// A map of characters as SentencePiece precompiles it (`precompiled_charsmap`): a double array (Aoe 1989; its units as
/// in Darts-clone) that leads from a text to its replacement.
class CharacterMap {
 public:
  /// Throws DataError for a map that leads out of itself, and for replacements that are not UTF-8.
  explicit CharacterMap(std::string_view map);

  /// The text with its characters replaced as Hugging Face's tokenizers does: a grapheme cluster of less than six bytes
  /// is looked up as a whole, and has the replacement of its shortest beginning that the map knows; other characters
  /// are looked up one by one. (SentencePiece takes the longest beginning and keeps what follows it.)
  std::string normalize(std::string_view text) const;

  /// Throws DataError for a map by which SentencePiece would read outside of it.
  static void require_sound(std::string_view map);

 private:
  /// Appends what stands for `text`: its replacement, or itself. Returns whether there is a replacement.
  bool replace(std::string_view text, std::string& into) const;

  std::vector<std::uint32_t> units_;
  std::string texts_;  ///< the replacements, a zero after each
};

}  // namespace heddle
