#include <algorithm>
#include <array>
#include <cstring>
#include <heddle/core/base/digest.hpp>
#include <heddle/core/base/random.hpp>

namespace heddle {

namespace {

/// Independent chains: an addition need not wait for the neighbours' additions.
constexpr std::size_t lanes = 4;
constexpr std::size_t row = lanes * sizeof(std::uint64_t);
/// A word is rotated by another amount for each of the 64 rows that follow it, so that equal flips in two rows do not
/// cancel. Then the amounts repeat, and the chains are mixed.
constexpr std::size_t rows = 64;
constexpr int rotation = 29;

using Chains = std::array<std::uint64_t, lanes>;

/// The chains after `count` rows. They are variables of their own, which stay in registers.
Chains after_rows(Chains const& chains, std::byte const* bytes, std::size_t count) {
  auto [first, second, third, fourth] = chains;
  for (; count > 0; --count, bytes += row) {
    Chains words;
    std::memcpy(words.data(), bytes, row);
    first = std::rotl(first + words[0], rotation);
    second = std::rotl(second + words[1], rotation);
    third = std::rotl(third + words[2], rotation);
    fourth = std::rotl(fourth + words[3], rotation);
  }
  return {first, second, third, fourth};
}

}  // namespace

std::uint64_t digest(std::span<std::byte const> bytes) {
  Chains chains{};
  std::size_t const whole = bytes.size() / row;
  for (std::size_t begin = 0; begin < whole; begin += rows) {
    chains = after_rows(chains, bytes.data() + begin * row, std::min(rows, whole - begin));
    std::ranges::transform(chains, chains.begin(), mix_bits);
  }
  std::array<std::byte, row> rest{};
  std::ranges::copy(bytes.subspan(whole * row), rest.begin());
  chains = after_rows(chains, rest.data(), 1);
  std::uint64_t result = mix_bits(bytes.size());
  for (std::uint64_t const chain : chains) {
    result = mix_bits(result ^ chain) + chain;
  }
  return result;
}

}  // namespace heddle
