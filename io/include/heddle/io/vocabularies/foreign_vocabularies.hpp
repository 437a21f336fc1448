#pragma once

#include <cstdint>
#include <heddle/io/tokenizers/sentencepiece_model.hpp>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Vocabularies of other systems as models for Heddle's Tokenizer, whose piece indices are the other system's ids. Each
// function takes the bytes of SentencePiece models, and throws DataError for what `serialize_with_ids` refuses.

namespace heddle {

/// The start of the text of pieces that stand for ids without a use.
inline constexpr std::string_view unused_piece = "<madeupword";

/// Llama, Mistral, Gemma: the model as it is, then added tokens as control pieces, which no text is read as. `rows` is
/// the number of rows of the checkpoint's tables: control pieces <madeupword0>, … fill the vocabulary up to it, here
/// and below; 0 means no more than the pieces need.
std::string extended_vocabulary(std::string_view model, std::vector<std::string> const& added, std::int64_t rows = 0);

/// Gives a SentencePiece model that has no piece for the start or the end of a text such pieces, after its last one, so
/// that the ids of the others stay; returns what was done, "" if nothing. As where Marian trained it (bos_id=-1), the
/// start is also the padding; a padding piece that is there is the start (T5).
std::string complete_start_and_end(std::string& model);

/// T5: the model's pieces, then <extra_id_COUNT-1> … <extra_id_0>; a decoder starts from the padding piece: the one
/// with the id `padding`, if there is one.
std::string t5_vocabulary(std::string_view model, std::int64_t extra_ids, std::int64_t rows = 0,
                          std::int64_t padding = -1);

/// Pegasus: the model's padding and end piece, <mask_1>, <mask_2>, <unk_2> … <unk_(offset-1)>, the model's pieces from
/// its index 2 on; a decoder starts from the padding piece.
std::string pegasus_vocabulary(std::string_view model, std::int64_t offset = 103, std::int64_t rows = 0);

/// The tokens that fairseq has beside a model's pieces.
struct FairseqTokens {
  std::vector<std::string> languages;  ///< "eng_Latn", "en_XX", …, in the order of the ids
  std::string mask = "<mask>";         ///< after the languages; empty: none
  std::string start = "</s>";          ///< the token that a decoder starts from; <s> for encoder-only models
};

/// NLLB, mBART, XLM-R: <s>, <pad>, </s>, <unk>, the model's pieces from its index 3 on, languages, mask.
std::string fairseq_vocabulary(std::string_view model, FairseqTokens const& tokens, std::int64_t rows = 0);

/// CamemBERT: <s>NOTUSED, <pad>, </s>NOTUSED, <unk>, <unk>NOTUSED, the model's pieces from its index 1 on, <mask>.
std::string camembert_vocabulary(std::string_view model, std::int64_t rows = 0);

/// The pieces of a vocab.json ({"piece": id}) in the order of their ids. Throws DataError unless these are 0 to N-1.
std::vector<std::string> pieces_of_vocab_json(std::string_view json);

/// A vocabulary that maps pieces to ids by their text, as Marian and M2M100 do: `texts` in the order of the ids. Of
/// those that `model` lacks, special ones and those among `control` become control pieces. The others have ids for the
/// other side, or for words that were unknown when the vocabulary was made: they are decoded, and an unknown word of
/// that text has their id. A piece of `model` that `texts` lacks is read as unknown. See `end_of_ids_piece`.
std::string vocabulary_by_text(std::string_view model, std::vector<std::string> const& texts,
                               std::vector<std::string> const& control, SpecialPieces const& special);

/// Marian and OPUS-MT in Hugging Face's form: source.spm, target.spm and one vocab.json for both. The source's and the
/// target's model have equal ids. Language codes (">>fra<<") are control pieces; a decoder starts from <pad>. `added`
/// are tokens by their ids, of which those that follow the ids of vocab.json count. Throws DataError where most pieces
/// of a model are not in vocab.json, or the other way round.
std::pair<std::string, std::string> marian_vocabulary(std::string_view source, std::string_view target,
                                                      std::string_view vocab_json,
                                                      std::map<std::int64_t, std::string> const& added = {},
                                                      std::int64_t rows = 0);

/// M2M100: vocab.json by text, then the languages ("en" or "__en__", as __en__).
std::string m2m100_vocabulary(std::string_view model, std::string_view vocab_json,
                              std::vector<std::string> const& languages, std::int64_t rows = 0);

}  // namespace heddle
