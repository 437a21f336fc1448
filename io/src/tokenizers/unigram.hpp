#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/prefix_tree.hpp"

namespace heddle {

/// The unigram model (Kudo 2018): a word is split into the pieces whose scores have the largest sum. Sums are in double
/// precision, and of equal ones the first found counts, as in Hugging Face's tokenizers.
class Unigram {
 public:
  /// The pieces of a text, each with its score and the id by which it is found; a negative id is never found.
  struct Piece {
    std::string text;
    double score;
    std::int32_t id;
  };
  /// Throws DataError for a piece of more than 1024 bytes.
  explicit Unigram(std::vector<Piece> const& pieces);

  /// A part of a word: a piece, or what lies between pieces, without an id.
  struct Part {
    std::string_view text;
    std::int32_t id;
  };
  static constexpr std::int32_t unknown = -1;
  std::vector<Part> split(std::string_view word) const;

 private:
  PrefixTree tree_;
  std::vector<double> scores_;  ///< by id
  double unknown_score_;        ///< of a character that has no piece
};

}  // namespace heddle
