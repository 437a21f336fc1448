#pragma once

#include <cstdint>
#include <functional>
#include <heddle/io/tokenizers/sentencepiece_model.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizers/prefix_tree.hpp"

namespace heddle {

/// Returns a random number of [0, 1).
using DrawNumber = std::function<double()>;

/// Draws segmentations of normalized text into the pieces of a SentencePiece model, as its SampleEncode does, from
/// numbers that the caller gives.
class SubwordSampler {
 public:
  explicit SubwordSampler(SentencePieceModel const& model);

  /// Whether no piece has a space after its start: then words are segmented by themselves.
  bool splits_words() const { return splits_words_; }
  /// Whether texts are segmented by the piece. Symbols, bytes, special and unused pieces are not normal ones.
  bool is_normal(std::int32_t id) const { return normal_[static_cast<std::size_t>(id)]; }
  /// Appends the ids of a text of such pieces. BPE leaves out each merge with probability `alpha` (Provilkov
  /// et al. 2020); a unigram model draws a segmentation with its probability to the power of alpha (Kudo 2018).
  void sample(std::string_view text, double alpha, DrawNumber const& draw, std::vector<std::int32_t>& ids) const {
    bpe_ ? merge(text, alpha, draw, ids) : draw_path(text, alpha, draw, ids);
  }

 private:
  struct Symbol;
  void merge(std::string_view text, double alpha, DrawNumber const& draw, std::vector<std::int32_t>& ids) const;
  void draw_path(std::string_view text, double alpha, DrawNumber const& draw, std::vector<std::int32_t>& ids) const;
  /// The id of a piece; -1: there is none.
  std::int32_t find(std::string_view text) const;

  /// Finds strings by views.
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  bool bpe_;
  bool splits_words_;
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> ids_;  ///< of pieces that are in texts
  std::vector<bool> normal_;                                                  ///< by id
  std::vector<double> scores_;                                                ///< by id
  PrefixTree tree_;                                                           ///< of a unigram model
};

}  // namespace heddle
