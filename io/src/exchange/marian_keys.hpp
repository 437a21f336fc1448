#pragma once

/// Keys of several of Marian's options that have one meaning together.
namespace heddle {

inline constexpr char const* marian_norms = "transformer-preprocess, -postprocess, -postprocess-top";
/// The sublayer in place of a decoder's self-attention, with the options by which Marian computes another one.
inline constexpr char const* marian_recurrence = "transformer-decoder-autoreg";
inline constexpr char const* marian_ssru = "rnn of ssru";
inline constexpr char const* marian_tables = "tied-embeddings";  ///< "all", "target", "none"; else not possible

}  // namespace heddle
