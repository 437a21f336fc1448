#include "tokenizers/unigram.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <limits>

#include "tokenizer_steps/characters.hpp"

namespace heddle {

Unigram::Unigram(std::vector<Piece> const& pieces) {
  constexpr double penalty = 10;
  constexpr std::size_t max_bytes = 1024;  // the time for a text grows with its longest piece
  double lowest = std::numeric_limits<double>::infinity();
  std::vector<std::pair<std::string, std::int32_t>> texts;
  for (Piece const& piece : pieces) {
    if (piece.text.size() > max_bytes) {
      throw DataError("a piece has {} bytes", piece.text.size());
    }
    lowest = std::min(lowest, piece.score);
    if (piece.id >= 0) {
      scores_.resize(std::max(scores_.size(), static_cast<std::size_t>(piece.id) + 1));
      scores_[static_cast<std::size_t>(piece.id)] = piece.score;
      texts.emplace_back(piece.text, piece.id);
    }
  }
  tree_ = PrefixTree(std::move(texts));
  unknown_score_ = lowest - penalty;
}

std::vector<Unigram::Part> Unigram::split(std::string_view word) const {
  constexpr std::size_t none = -1;
  struct Best {
    double score = 0;
    std::int32_t id = unknown;
    std::size_t begin = none;
  };
  std::vector<Best> best(word.size() + 1);  // of the parts that end there
  for (std::size_t begin = 0; begin < word.size();) {
    std::size_t const letter = first_character(word.substr(begin)).size();
    bool known = false;
    auto const offer = [&](std::size_t length, double score, std::int32_t id) {
      Best& end = best[begin + length];
      score += best[begin].score;
      if (end.begin == none || score > end.score) {
        end = {score, id, begin};
      }
    };
    tree_.for_each_prefix(word.substr(begin), [&](std::size_t length, std::int32_t id) {
      offer(length, scores_[static_cast<std::size_t>(id)], id);
      known = known || length == letter;
    });
    if (!known) {
      offer(letter, unknown_score_, unknown);
    }
    begin += letter;
  }
  std::vector<Part> parts;
  for (std::size_t end = word.size(); end > 0; end = best[end].begin) {
    Best const& last = best[end];
    if (last.id == unknown && !parts.empty() && parts.back().id == unknown) {
      parts.back().text = word.substr(last.begin, end - last.begin + parts.back().text.size());
    } else {
      parts.push_back({word.substr(last.begin, end - last.begin), last.id});
    }
  }
  std::ranges::reverse(parts);
  return parts;
}

}  // namespace heddle
