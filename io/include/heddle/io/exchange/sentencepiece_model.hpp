#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
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
  /// Throws DataError for bytes that are not such a model: fields cut short, lengths beyond the end, empty pieces,
  /// scores that are not finite. Whether the pieces make a whole vocabulary is checked by `serialize_with_ids`.
  static SentencePieceModel parse(std::string_view bytes);

  /// Equal to the bytes that were parsed where they have SentencePiece's own order of fields.
  std::string serialize() const;

  /// The special pieces by the names that the model has, or SentencePiece's own ones where it has none.
  SpecialPieces special() const;
  bool bpe() const;

  std::vector<SentencePiece> pieces;

 private:
  friend std::string serialize_with_ids(SentencePieceModel, std::vector<SentencePiece>, SpecialPieces const&);

  std::string trainer_;  // the message trainer_spec
  std::string rest_;     // all other fields, whole
};

/// A model whose piece indices are the ids of another system: `pieces` in the order of these ids. Texts are segmented
/// as by `model`: this depends on scores and types, not on indices. An empty `special.padding` means none.
/// Throws DataError if texts could be segmented otherwise: a piece of `model` has no id, another type or another score,
/// or one was added that texts are segmented by (in BPE also an unused one, which it merges through); if a piece has
/// two ids; if there is not one unknown piece; if another special one is not a control piece.
std::string serialize_with_ids(SentencePieceModel model, std::vector<SentencePiece> pieces,
                               SpecialPieces const& special);

/// T5: the model's pieces, then <extra_id_COUNT-1> … <extra_id_0>; a decoder starts from the padding piece. `rows` is
/// the number of rows of the checkpoint's tables: control pieces <madeupword0>, … fill the vocabulary up to it, here
/// and below; 0 means no more than the pieces need.
std::string t5_vocabulary(std::string_view model, std::int64_t extra_ids, std::int64_t rows = 0);

/// The tokens that fairseq has beside a model's pieces.
struct FairseqTokens {
  std::vector<std::string> languages;  ///< "eng_Latn", "en_XX", …, in the order of the ids
  std::string mask = "<mask>";         ///< after the languages; empty: none
  std::string start = "</s>";          ///< the token that a decoder starts from; <s> for encoder-only models
};

/// NLLB, mBART, XLM-R: <s>, <pad>, </s>, <unk>, the model's pieces from its index 3 on, languages, mask.
std::string fairseq_vocabulary(std::string_view model, FairseqTokens const& tokens, std::int64_t rows = 0);

/// The pieces of a vocab.json ({"piece": id}) in the order of their ids. Throws DataError unless these are 0 to N-1.
std::vector<std::string> pieces_of_vocab_json(std::string_view json);

/// A vocabulary that maps pieces to ids by their text, as Marian and M2M100 do: `texts` in the order of the ids. Of
/// those that `model` lacks, special ones and those among `control` become control pieces. The others have ids for the
/// other side, or for words that were unknown when the vocabulary was made: they are decoded, and an unknown word of
/// that text has their id. A piece of `model` that `texts` lacks is read as unknown. See `end_of_ids_piece`.
std::string vocabulary_by_text(std::string_view model, std::vector<std::string> const& texts,
                               std::vector<std::string> const& control, SpecialPieces const& special);

/// Marian and OPUS-MT in Hugging Face's form: source.spm, target.spm and one vocab.json for both. The source's and the
/// target's model have equal ids. Language codes (">>fra<<") are control pieces; a decoder starts from <pad>.
std::pair<std::string, std::string> marian_vocabulary(std::string_view source, std::string_view target,
                                                      std::string_view vocab_json);

/// M2M100: vocab.json by text, then the languages ("en" as __en__).
std::string m2m100_vocabulary(std::string_view model, std::string_view vocab_json,
                              std::vector<std::string> const& languages, std::int64_t rows = 0);

}  // namespace heddle
