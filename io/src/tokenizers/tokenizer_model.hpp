#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <memory>
#include <string>
#include <string_view>

namespace heddle {

/// The texts of special pieces, beside those of SpecialPieces.
inline constexpr char const* mask_piece = "<mask>";
inline std::string sentinel_piece(std::int64_t number) {
  return fmt::format("<extra_id_{}>", number);
}

/// Datasets and checkpoints refuse larger models.
inline constexpr std::int64_t max_model_bytes = std::int64_t{64} << 20;

/// The maximum number of ids of a vocabulary that comes from another system: eight times those of the largest known.
inline constexpr std::int64_t max_foreign_ids = std::int64_t{1} << 21;

/// Whether a vocabulary's bytes are those of `load_json_vocabulary`; else they are a SentencePiece model.
bool is_json(std::string_view bytes) noexcept;

/// A vocabulary of Hugging Face's tokenizer.json, with its member "heddle" (see
/// tokenizer_json.hpp). Throws DataError for a document that is not such a vocabulary, and for a tokenizer
/// that does more than these do.
std::unique_ptr<TokenizerModel> load_json_vocabulary(std::string bytes);

}  // namespace heddle
