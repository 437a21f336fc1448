#include "inference/alignment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace heddle {

Alignment hard_alignment(std::span<double const> attention, std::size_t source_tokens) {
  Alignment alignment;
  std::size_t const columns = source_tokens + 1;
  for (std::size_t row = 0; source_tokens > 0 && row < attention.size() / columns; ++row) {
    auto const weights = attention.subspan(row * columns, source_tokens);
    alignment.emplace_back(std::ranges::max_element(weights) - weights.begin(), row);
  }
  return alignment;
}

Alignment between_words(Alignment const& alignment, std::span<std::int64_t const> source_words,
                        std::span<std::int64_t const> target_words) {
  std::set<std::pair<std::int64_t, std::int64_t>> pairs;  // of target and source: in the order of the target
  for (auto const& [source, target] : alignment) {
    pairs.emplace(target_words[static_cast<std::size_t>(target)], source_words[static_cast<std::size_t>(source)]);
  }
  Alignment words;
  std::ranges::transform(pairs, std::back_inserter(words),
                         [](auto const& pair) { return std::pair(pair.second, pair.first); });
  return words;
}

double coverage(std::span<double const> attention, std::size_t source_tokens) {
  static constexpr double min_attention = 1e-10;  // a token without any attention costs much, not everything
  std::vector<double> sums(source_tokens);
  for (std::size_t at = 0; at + source_tokens < attention.size(); at += source_tokens + 1) {
    std::ranges::transform(attention.subspan(at, source_tokens), sums, sums.begin(), std::plus<>());
  }
  return std::accumulate(sums.begin(), sums.end(), 0.0, [](double sum, double attended) {
    return sum + std::log(std::clamp(attended, min_attention, 1.0));
  });
}

std::string to_text(Alignment const& alignment) {
  std::string text;
  for (auto const& [source, target] : alignment) {
    text += fmt::format("{}{}-{}", text.empty() ? "" : " ", source, target);
  }
  return text;
}

}  // namespace heddle
