#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace heddle {

/// The tokens that a translation is chosen from, by its source: some for every source and some for each of its tokens
/// (a lexical shortlist, as Marian and fairseq have it).
struct Shortlist {
  std::vector<std::int32_t> always = {};                     ///< for every source
  std::vector<std::vector<std::int32_t>> translations = {};  ///< by source token; a token after the last one has none

  /// A source's tokens, each once: `ends` first, the others ascending.
  std::vector<std::int32_t> tokens(std::span<std::int32_t const> source, std::span<std::int32_t const> ends) const;
};

}  // namespace heddle
