#pragma once

#include <string_view>

/// Keys of several of Marian's options that have one meaning together.
namespace heddle {

inline constexpr std::string_view marian_norms = "transformer-preprocess, -postprocess, -postprocess-top";
inline constexpr std::string_view marian_tables = "tied-embeddings";  ///< "all", "target", "none"; else not possible

}  // namespace heddle
