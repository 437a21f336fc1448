#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/io/metrics/bleu.hpp>
#include <heddle/io/text/text.hpp>
#include <unordered_map>
#include <vector>

namespace heddle {
namespace {

constexpr std::size_t max_order = 4;

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}
bool is_period_or_comma(char c) noexcept {
  return c == '.' || c == ',';
}

/// ASCII punctuation that is always a separate word: all except apostrophe, comma, hyphen and full stop (and
/// the space).
bool stands_alone(char c) noexcept {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') ||
         (c >= ':' && c <= '@') || c == '/';
}

/// Rewrites each pair of neighbours that `matches`, left to right, without overlap: as a regular expression of two
/// character classes does. Works on bytes, since no class distinguishes the bytes of a multi-byte character.
template <typename Matches, typename Rewrite>
std::string rewrite_pairs(std::string const& text, Matches matches, Rewrite rewrite) {
  std::string result;
  result.reserve(text.size() * 2);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i + 1 < text.size() && matches(text[i], text[i + 1])) {
      rewrite(result, text[i], text[i + 1]);
      ++i;
    } else {
      result.push_back(text[i]);
    }
  }
  return result;
}

std::string join(std::vector<std::string_view> const& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

std::string strip_right(std::string_view sentence) {
  std::vector<std::string_view> const words = split_words(sentence);
  if (words.empty()) {
    return {};
  }
  return {sentence.data(), words.back().data() + words.back().size()};
}

using Counts = std::unordered_map<std::string_view, int64_t>;

/// Counts the n-grams of one order. `sentence` has single spaces, so an n-gram is a substring of it.
Counts count_ngrams(std::vector<std::string_view> const& words, std::size_t order) {
  Counts counts;
  for (std::size_t i = 0; i + order <= words.size(); ++i) {
    std::string_view const last = words[i + order - 1];
    auto const length = static_cast<std::size_t>(last.data() + last.size() - words[i].data());
    ++counts[std::string_view(words[i].data(), length)];
  }
  return counts;
}

}  // namespace

std::string BleuScore::text() const {
  double const ratio =
      reference_length > 0 ? static_cast<double>(hypothesis_length) / static_cast<double>(reference_length) : 0.0;
  return fmt::format("BLEU = {:.2f} {:.1f} (BP = {:.3f} ratio = {:.3f} hyp_len = {} ref_len = {})", score,
                     fmt::join(precisions, "/"), brevity_penalty, ratio, hypothesis_length, reference_length);
}

std::string tokenize_13a(std::string_view sentence) {
  std::string text = strip_right(sentence);
  replace_all(text, "<skipped>", "");
  replace_all(text, "-\n", "");
  replace_all(text, "\n", " ");
  replace_all(text, "&quot;", "\"");
  replace_all(text, "&amp;", "&");
  replace_all(text, "&lt;", "<");
  replace_all(text, "&gt;", ">");

  std::string spaced = " ";
  for (char const c : text) {
    spaced += stands_alone(c) ? std::string{' ', c, ' '} : std::string{c};
  }
  spaced += ' ';
  // A full stop or comma stays attached to its neighbour only between two digits.
  spaced = rewrite_pairs(
      spaced, [](char a, char b) { return !is_digit(a) && is_period_or_comma(b); },
      [](std::string& out, char a, char b) {
        out.append({a, ' ', b, ' '});
      });
  spaced = rewrite_pairs(
      spaced, [](char a, char b) { return is_period_or_comma(a) && !is_digit(b); },
      [](std::string& out, char a, char b) {
        out.append({' ', a, ' ', b});
      });
  spaced = rewrite_pairs(
      spaced, [](char a, char b) { return is_digit(a) && b == '-'; },
      [](std::string& out, char a, char b) {
        out.append({a, ' ', b, ' '});
      });
  return join(split_words(spaced));
}

void BleuCounter::add(std::string const& hypothesis, std::string const& reference) {
  auto const tokenize = [&](std::string const& sentence) {
    return tokenization_ == BleuTokenization::mteval_13a ? tokenize_13a(sentence) : join(split_words(sentence));
  };
  std::string const hypothesis_text = tokenize(hypothesis);
  std::string const reference_text = tokenize(reference);
  std::vector<std::string_view> const hypothesis_words = split_words(hypothesis_text);
  std::vector<std::string_view> const reference_words = split_words(reference_text);
  counts_.hypothesis_length += static_cast<int64_t>(hypothesis_words.size());
  counts_.reference_length += static_cast<int64_t>(reference_words.size());
  for (std::size_t n = 0; n < max_order; ++n) {
    Counts const expected = count_ngrams(reference_words, n + 1);
    for (auto const& [ngram, count] : count_ngrams(hypothesis_words, n + 1)) {
      counts_.totals[n] += count;
      auto const found = expected.find(ngram);
      counts_.matches[n] += found == expected.end() ? 0 : std::min(count, found->second);
    }
  }
}

BleuScore BleuCounter::score() const {
  BleuScore result = counts_;
  auto const hypothesis_length = static_cast<double>(result.hypothesis_length);
  auto const reference_length = static_cast<double>(result.reference_length);
  if (result.hypothesis_length < result.reference_length) {
    result.brevity_penalty = result.hypothesis_length > 0 ? std::exp(1.0 - reference_length / hypothesis_length) : 0.0;
  }
  if (std::all_of(result.matches.begin(), result.matches.end(), [](int64_t count) { return count == 0; })) {
    return result;
  }
  double smoothing = 1.0;
  for (std::size_t n = 0; n < max_order && result.totals[n] > 0; ++n) {
    auto const total = static_cast<double>(result.totals[n]);
    if (result.matches[n] == 0) {
      smoothing *= 2.0;
      result.precisions[n] = 100.0 / (smoothing * total);
    } else {
      result.precisions[n] = 100.0 * static_cast<double>(result.matches[n]) / total;
    }
  }
  double log_sum = 0.0;
  for (double const precision : result.precisions) {
    log_sum += precision > 0.0 ? std::log(precision) : -9999999999.0;
  }
  result.score = result.brevity_penalty * std::exp(log_sum / static_cast<double>(max_order));
  return result;
}

}  // namespace heddle
