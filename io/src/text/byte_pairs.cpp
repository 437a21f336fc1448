#include "text/byte_pairs.hpp"

#include <fmt/format.h>

#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/io/text/text.hpp>
#include <queue>
#include <tuple>

namespace heddle {
namespace {

struct ByteAlphabet {
  std::array<std::string, 256> text;                    // of each byte
  std::unordered_map<char32_t, unsigned char> numbers;  // of each character
};

/// Printable bytes of Latin-1 are themselves; the others are the characters from U+0100 on, in their order.
ByteAlphabet make_alphabet() {
  ByteAlphabet alphabet;
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    bool const printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    char32_t const character = printable ? byte : next++;
    std::string& text = alphabet.text.at(byte);
    if (character >= 0x80) {
      text += static_cast<char>(0xc0U | (character >> 6U));
      text += static_cast<char>(0x80U | (character & 0x3fU));
    } else {
      text += static_cast<char>(character);
    }
    alphabet.numbers[character] = static_cast<unsigned char>(byte);
  }
  return alphabet;
}

ByteAlphabet const& alphabet() {
  static ByteAlphabet const made = make_alphabet();
  return made;
}

std::uint64_t key(std::int32_t left, std::int32_t right) noexcept {
  return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32U) | static_cast<std::uint32_t>(right);
}

}  // namespace

std::string in_byte_alphabet(std::string_view bytes) {
  std::string text;
  for (char const byte : bytes) {
    text += alphabet().text.at(static_cast<unsigned char>(byte));
  }
  return text;
}

std::optional<std::string> from_byte_alphabet(std::string_view text) {
  std::string bytes;
  for (char32_t const character : decode_utf8(text)) {
    auto const found = alphabet().numbers.find(character);
    if (found == alphabet().numbers.end()) {
      return std::nullopt;
    }
    bytes += static_cast<char>(found->second);
  }
  return bytes;
}

BytePairs::BytePairs(std::unordered_map<std::string, std::int32_t> ids) : ids_(std::move(ids)) {
  for (std::size_t byte = 0; byte < bytes_.size(); ++byte) {
    bytes_.at(byte) = require(std::string(1, static_cast<char>(byte)));
  }
}

std::optional<std::int32_t> BytePairs::find(std::string const& bytes) const {
  auto const found = ids_.find(bytes);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

std::int32_t BytePairs::require(std::string const& bytes) const {
  auto const id = find(bytes);
  if (!id) {
    throw DataError(fmt::format("the vocabulary has no piece \"{}\"", in_byte_alphabet(bytes)));
  }
  return *id;
}

void BytePairs::add_merge(std::string const& left, std::string const& right) {
  std::int32_t const id = require(left + right);
  merges_[key(require(left), require(right))] = {rank_++, id};
}

BytePairs::Merge const* BytePairs::merge_of(std::int32_t left, std::int32_t right) const {
  auto const found = merges_.find(key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BytePairs::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  struct Symbol {
    std::int32_t id;
    std::uint32_t before;
    std::uint32_t after;
  };
  constexpr std::int32_t merged = -1;  // into the symbol before
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  for (char const byte : word) {
    auto const at = static_cast<std::uint32_t>(symbols.size());
    symbols.push_back({bytes_.at(static_cast<unsigned char>(byte)), at - (at == 0 ? 0 : 1), at + 1});
  }
  using Candidate = std::tuple<std::uint32_t, std::uint32_t, std::int32_t>;  // rank, place of the left one, id
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  auto const merge_at = [&](std::uint32_t at) {
    std::uint32_t const next = symbols[at].after;
    return next < symbols.size() ? merge_of(symbols[at].id, symbols[next].id) : nullptr;
  };
  auto const add = [&](std::uint32_t at) {
    if (Merge const* const merge = merge_at(at)) {
      candidates.emplace(merge->rank, at, merge->id);
    }
  };
  for (std::uint32_t at = 0; at < symbols.size(); ++at) {
    add(at);
  }
  while (!candidates.empty()) {
    auto const [rank, at, id] = candidates.top();
    candidates.pop();
    Merge const* const merge = symbols[at].id == merged ? nullptr : merge_at(at);
    if (merge == nullptr || merge->rank != rank) {
      continue;  // one of the two was merged with another
    }
    std::uint32_t const right = symbols[at].after;
    symbols[at].id = id;
    symbols[at].after = symbols[right].after;
    symbols[right].id = merged;
    if (symbols[at].after < symbols.size()) {
      symbols[symbols[at].after].before = at;
    }
    add(at);
    if (at > 0) {
      add(symbols[at].before);
    }
  }
  for (Symbol const& symbol : symbols) {
    if (symbol.id != merged) {
      ids.push_back(symbol.id);
    }
  }
}

}  // namespace heddle
