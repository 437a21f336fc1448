#pragma once

#include <span>
#include <string>

namespace heddle {

/// Corpus chrF2, 0 to 100, as sacreBLEU computes it by default: character n-grams up to order 6, beta 2, no word
/// n-grams, white space left out. Throws DataError when the numbers of sentences differ or are zero, or for text that
/// is not UTF-8.
double corpus_chrf(std::span<std::string const> hypotheses, std::span<std::string const> references);

}  // namespace heddle
