#pragma once

#include <array>
#include <cstdint>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace heddle {

/// Whether the UTF-8 text has control characters (C0, C1 or delete), except for tabs.
bool has_control_characters(std::string_view text);

/// The hash by which RepeatCounter knows a sample.
std::uint64_t hash_of_sample(std::string_view sample);

/// Counts samples that occurred before, in bounded memory: exactly up to `max_kept` different ones, then as an estimate
/// from an even share of them, chosen by their hashes.
class RepeatCounter {
 public:
  explicit RepeatCounter(std::size_t max_kept = std::size_t{1} << 20) : max_kept_(max_kept) {}

  void add(std::uint64_t hash);
  std::int64_t repeats() const;
  bool is_estimate() const { return mask_ != 0; }

 private:
  std::size_t max_kept_;
  std::uint64_t mask_ = 0;  ///< a hash with one of these bits is not kept
  std::unordered_map<std::uint64_t, std::int64_t> times_;
};

/// Counts pairs by target tokens for each source token, in steps of 0.7 %.
class RatioCounter {
 public:
  void add(std::int64_t source, std::int64_t target);
  /// The ratio that `share` of the pairs do not exceed; there must be a pair.
  double quantile(double share) const;

 private:
  std::map<std::int64_t, std::int64_t> pairs_;  ///< by 100 times the ratio's binary logarithm
};

/// A character that a vocabulary cannot express, and how often it occurred.
struct UnknownCharacter {
  std::string character;
  std::int64_t times;
};

/// Counts the characters that a vocabulary cannot express.
class UnknownCharacters {
 public:
  /// Adds those of a UTF-8 text of side 0 or 1, each of which has its tokenizer.
  void add(std::size_t side, std::string_view text, Tokenizer const& tokenizer);
  void add(std::vector<UnknownCharacter> const& counted);
  /// Returns the counts so far, and forgets them.
  std::vector<UnknownCharacter> take();
  /// How many different ones there were.
  std::int64_t kinds() const { return std::ssize(counts_); }
  /// The most frequent ones with their counts, at most `max`.
  std::vector<std::pair<std::string, std::int64_t>> frequent(std::size_t max) const;

 private:
  std::array<std::unordered_map<std::string, bool>, 2> unknown_;  ///< by side and character
  std::unordered_map<std::string, std::int64_t> counts_;
};

}  // namespace heddle
