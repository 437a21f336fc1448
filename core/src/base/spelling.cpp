#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/spelling.hpp>
#include <numeric>

namespace heddle {
namespace {

/// The Levenshtein distance.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      std::size_t const replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_spelling(std::string_view word, std::vector<std::string> const& candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (std::string const& candidate : candidates) {
    std::size_t const distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string nearest_or_all(std::string_view word, std::vector<std::string> const& candidates, std::string_view others) {
  std::string const nearest = nearest_spelling(word, candidates);
  return nearest.empty() ? fmt::format("expected one of: {}{}", fmt::join(candidates, ", "), others)
                         : fmt::format("did you mean {}?", nearest);
}

}  // namespace heddle
