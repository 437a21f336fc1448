#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <heddle/core/base/spelling.hpp>
#include <numeric>
#include <utility>

namespace heddle {
namespace {

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

std::string lower_case(std::string_view text) {
  std::string result(text);
  for (char& letter : result) {
    letter = letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  }
  return result;
}

/// Names that other programs use, and Heddle's.
constexpr std::array<std::pair<std::string_view, std::string_view>, 11> other_names{{{"bf16", "bfloat16"},
                                                                                     {"fp32", "float32"},
                                                                                     {"f32", "float32"},
                                                                                     {"float", "float32"},
                                                                                     {"swish", "silu"},
                                                                                     {"gelu_new", "gelu_tanh"},
                                                                                     {"layernorm", "layer"},
                                                                                     {"rmsnorm", "rms"},
                                                                                     {"rope", "rotary"},
                                                                                     {"noam", "inverse_sqrt"},
                                                                                     {"invsqrt", "inverse_sqrt"}}};

/// The only candidate that a word of at least three letters begins; "" if there is none or more than one.
std::string only_continuation(std::string_view word, std::vector<std::string> const& candidates) {
  auto const continues = [&](std::string const& candidate) { return candidate.starts_with(word); };
  return word.size() >= 3 && std::ranges::count_if(candidates, continues) == 1
             ? *std::ranges::find_if(candidates, continues)
             : "";
}

}  // namespace

std::string nearest_spelling(std::string_view word, std::vector<std::string> const& candidates) {
  std::string const lower = lower_case(word);
  auto const other = std::ranges::find(other_names, lower, &std::pair<std::string_view, std::string_view>::first);
  for (std::string const& candidate : candidates) {
    if (lower_case(candidate) == lower || (other != other_names.end() && other->second == candidate)) {
      return candidate;
    }
  }
  std::string best = only_continuation(lower, candidates);
  if (!best.empty()) {
    return best;
  }
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (std::string const& candidate : candidates) {
    std::size_t const distance = edit_distance(lower, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string nearest_or_all(std::string_view word, std::vector<std::string> const& candidates, std::string_view others) {
  if (candidates.empty()) {
    return fmt::format("expected {}", others);
  }
  std::string const nearest = nearest_spelling(word, candidates);
  return nearest.empty() ? fmt::format("expected one of: {}{}{}", fmt::join(candidates, ", "),
                                       others.empty() ? "" : ", or ", others)
                         : fmt::format("did you mean {}?", nearest);
}

}  // namespace heddle
