#pragma once

#include <cstdint>
#include <heddle/io/tokenizers/token_words.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// Pairs of a token of the source and one of the target, both counted from 0.
using Alignment = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// For each token of a target the token of its source to which it attends most, of equals the first. `attention` is
/// [target tokens, source tokens and the source's end], whose end is left out.
Alignment hard_alignment(std::span<double const> attention, std::size_t source_tokens);
/// The alignment of the words that the tokens are parts of, each pair once.
Alignment between_words(Alignment const& alignment, std::span<std::int64_t const> source_words,
                        std::span<std::int64_t const> target_words);
/// The sum over the source's tokens of log(min(1, attention of all target tokens to it)), at most 0: the coverage of Wu
/// et al. 2016, equation 14, without its factor.
double coverage(std::span<double const> attention, std::size_t source_tokens);
/// The alignment in Pharaoh's format: "0-0 1-2".
std::string to_text(Alignment const& alignment);

}  // namespace heddle
