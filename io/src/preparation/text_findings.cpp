#include "text_findings.hpp"

#include <fmt/format.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <heddle/io/preparation/prepare.hpp>
#include <heddle/io/text/text.hpp>
#include <numeric>
#include <tuple>

namespace heddle {

bool has_control_characters(std::string_view text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    auto const byte = static_cast<unsigned char>(text[at]);
    bool const c1 = byte == 0xC2 && at + 1 < text.size() && static_cast<unsigned char>(text[at + 1]) < 0xA0;
    if ((byte < 0x20 && byte != '\t') || byte == 0x7F || c1) {
      return true;
    }
  }
  return false;
}

std::string describe_character(std::string const& character) {
  auto const code = static_cast<UChar32>(decode_utf8(character).front());
  bool const visible = u_isgraph(code) != 0 && u_getCombiningClass(code) == 0;
  return fmt::format("{}U+{:04X}", visible ? character + " " : "", code);
}

std::uint64_t hash_of_sample(std::string_view sample) {
  return std::hash<std::string_view>()(sample);
}

void RepeatCounter::add(std::uint64_t hash) {
  if ((hash & mask_) != 0) {
    return;
  }
  ++times_[hash];
  while (times_.size() > max_kept_) {
    mask_ = mask_ * 2 + 1;
    std::erase_if(times_, [this](auto const& entry) { return (entry.first & mask_) != 0; });
  }
}

std::int64_t RepeatCounter::repeats() const {
  std::int64_t repeats = 0;
  for (auto const& [hash, times] : times_) {
    repeats += times - 1;
  }
  return repeats * static_cast<std::int64_t>(mask_ + 1);
}

void RatioCounter::add(std::int64_t source, std::int64_t target) {
  ++pairs_[std::llround(100 * std::log2(static_cast<double>(target) / static_cast<double>(source)))];
}

double RatioCounter::quantile(double share) const {
  auto const all = std::accumulate(pairs_.begin(), pairs_.end(), std::int64_t{0},
                                   [](std::int64_t sum, auto const& one) { return sum + one.second; });
  auto left = static_cast<std::int64_t>(share * static_cast<double>(all - 1));
  auto const found = std::ranges::find_if(pairs_, [&](auto const& one) { return (left -= one.second) < 0; });
  return std::exp2(static_cast<double>(found->first) / 100);
}

void UnknownCharacters::add(std::size_t side, std::string_view text, Tokenizer const& tokenizer) {
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80) {
      ++end;
    }
    std::string const character(text.substr(at, end - at));
    at = end;
    auto const [found, is_new] = unknown_.at(side).try_emplace(character, false);
    if (is_new) {
      std::vector<std::int32_t> const ids = tokenizer.encode(character);
      found->second = std::ranges::find(ids, tokenizer.special_ids().unknown) != ids.end();
    }
    if (found->second) {
      ++counts_[character];
    }
  }
}

void UnknownCharacters::add(std::vector<UnknownCharacter> const& counted) {
  for (auto const& [character, times] : counted) {
    counts_[character] += times;
  }
}

std::vector<UnknownCharacter> UnknownCharacters::take() {
  std::vector<UnknownCharacter> counted;
  for (auto const& [character, times] : counts_) {
    counted.push_back({character, times});
  }
  counts_.clear();
  return counted;
}

std::vector<std::pair<std::string, std::int64_t>> UnknownCharacters::frequent(std::size_t max) const {
  std::vector<std::pair<std::string, std::int64_t>> found(counts_.begin(), counts_.end());
  std::ranges::sort(found, [](auto const& one, auto const& other) {
    return std::tie(other.second, one.first) < std::tie(one.second, other.first);
  });
  found.resize(std::min(found.size(), max));
  return found;
}

}  // namespace heddle
