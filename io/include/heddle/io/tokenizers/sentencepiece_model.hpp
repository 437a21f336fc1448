#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// A piece of a SentencePiece model. Texts are segmented by pieces of the types normal, user_defined and byte only; an
/// unused piece is decoded, but no text has it; a control piece is neither read nor decoded.
struct SentencePiece {
  enum class Type : std::uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

  std::string text;
  float score = 0;
  Type type = Type::normal;
  std::string extensions;  ///< fields that SentencePiece has no name for, as they were
};

/// The texts of the special pieces. A tokenizer's start piece is the token that a decoder starts from.
struct SpecialPieces {
  std::string begin;
  std::string end;
  std::string unknown;
  std::string padding;
};

/// The file of a SentencePiece model, of which the pieces and the special ones can be changed. All else (the
/// normalizer, the options of training) is kept byte for byte.
class SentencePieceModel {
 public:
  /// Throws DataError for bytes that are not such a model: truncated fields, lengths beyond the end, empty pieces,
  /// scores that are not finite. Whether the pieces make a whole vocabulary is checked by `serialize_with_ids`.
  static SentencePieceModel parse(std::string_view bytes);

  /// Equal to the bytes that were parsed where they have SentencePiece's own order of fields.
  std::string serialize() const;

  /// The special pieces by the names that the model has, or SentencePiece's own ones where it has none.
  SpecialPieces special() const;
  bool bpe() const;

  /// The preparation of a text before it is segmented.
  struct Normalizer {
    std::string character_map;   ///< compiled; empty: characters are taken as they are
    bool adds_space = true;      ///< at the start of a text
    bool removes_spaces = true;  ///< at both ends, and repeated ones
  };
  Normalizer normalizer() const;

  std::vector<SentencePiece> pieces;
  std::string text_form;  ///< TextForm as JSON, in a field that SentencePiece has no name for; empty: none

 private:
  friend std::string serialize_with_ids(SentencePieceModel, std::vector<SentencePiece>, SpecialPieces const&);

  std::string trainer_;  // the message trainer_spec
  std::string rest_;     // all other fields, whole
};

/// Throws DataError for bytes that are not a SentencePiece model, and for one whose maps of characters lead out of
/// themselves, which SentencePiece follows without a check.
void require_sound_normalizers(std::string_view bytes);
/// SentencePieceModel::text_form of a model's bytes, of which its pieces are not read. Throws as parse does.
std::string_view text_form_of_model(std::string_view bytes);

/// A model whose piece indices are the ids of another system: `pieces` in the order of these ids. Texts are segmented
/// as by `model`: this depends on scores and types, not on indices. An empty `special.padding` means none.
/// Throws DataError if texts could be segmented otherwise: a piece of `model` has no id, another type or another score,
/// or one was added that texts are segmented by (in BPE also an unused one, which it merges through); if a piece has
/// two ids; if there is not one unknown piece; if another special one is not a control piece.
std::string serialize_with_ids(SentencePieceModel model, std::vector<SentencePiece> pieces,
                               SpecialPieces const& special);

}  // namespace heddle
