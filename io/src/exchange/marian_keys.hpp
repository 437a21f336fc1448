#pragma once

/// Keys of several of Marian's options that have one meaning together.
namespace heddle {

inline constexpr char const* marian_norms = "transformer-preprocess, -postprocess, -postprocess-top";
inline constexpr char const* marian_tables = "tied-embeddings";  ///< "all", "target", "none"; else not possible

}  // namespace heddle
