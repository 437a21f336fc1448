#pragma once

#include <cstdint>
#include <functional>
#include <heddle/core/tensor/pack.hpp>
#include <heddle/io/tokenizers/text_form.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace heddle {

/// The options with which `Tokenizer::train` learns a vocabulary.
struct TokenizerTraining {
  int64_t vocabulary_size = 10000;         ///< pieces, the four special ones included
  std::string type = "bpe";                ///< "bpe" or "unigram"
  bool mask_token = false;                 ///< one more special piece, <mask>
  std::vector<std::string> symbols = {};   ///< strings that are one piece wherever they occur
  bool byte_fallback = false;              ///< 256 pieces for bytes, so that no character is unknown
  double character_coverage = 1;           ///< the share of the text's characters that are pieces
  std::string normalization = "nmt_nfkc";  ///< SentencePiece's rule, by which every text is read
  int64_t sentinels = 0;                   ///< special pieces <extra_id_0>, <extra_id_1>, …
  bool split_digits = false;               ///< each digit is a piece by itself
};

/// A control piece after the last id of a vocabulary that maps pieces to ids by their text, as Marian's does. The model
/// tokenizes a text, and each piece, also an unknown word, has the id of the piece with its text before this one, or is
/// unknown: the pieces after it only affect the segmentation. Control pieces that start with `word_prefix` are pieces
/// that the model never produces, named by the rest of their text.
inline constexpr char const* end_of_ids_piece = "<end_of_ids>";
inline constexpr char const* word_prefix = "<word>";

/// A kind of vocabulary: what Tokenizer's copies share. Its functions may be called from several threads.
struct TokenizerModel {
  TokenizerModel() = default;
  TokenizerModel(TokenizerModel const&) = delete;
  TokenizerModel& operator=(TokenizerModel const&) = delete;
  virtual ~TokenizerModel() = default;

  // Tokenizer documents these functions. Ids are inside [0, size).
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  virtual std::vector<std::int32_t> sample(std::string_view text, double alpha,
                                           std::function<double()> const& draw) const;
  virtual bool can_sample() const { return false; }
  virtual bool splits_words() const { return false; }
  virtual std::string decode(std::span<std::int32_t const> ids) const = 0;
  virtual std::string piece(std::int32_t id) const = 0;

  std::string bytes;  ///< that it was made from
  std::int32_t size = 0;
  SpecialIds ids;
  std::vector<std::int32_t> sentinels;
  TextForm text_form;
};

class LineSample;

/// Converts text to token ids and back: a vocabulary as a value (copies share it; it never changes). It is a
/// SentencePiece model, or a vocabulary of Hugging Face's tokenizer.json: a unigram model, BPE of characters or of
/// bytes, or WordPiece.
class Tokenizer {
 public:
  /// The bytes are a SentencePiece model, or one that `read_json_vocabulary` returns. Throws DataError
  /// for others, and for a vocabulary without end piece; a SentencePiece model has an unknown one, too. Where there is
  /// no begin piece (Marian), the end piece is the begin piece, too.
  static Tokenizer from_model(std::string model_bytes);

  /// Learns a model, the same for the same lines on every run. Special ids: padding 0, unknown 1, begin 2, end 3.
  /// Throws DataError for texts without content, ConfigError for a vocabulary size that the texts cannot fill (naming
  /// the largest that they can) or that does not hold their characters (naming the smallest that does).
  static Tokenizer train(TokenizerTraining const& training, LineSample const& sample);

  /// Token ids, without begin and end. No text is read as a special piece.
  std::vector<int32_t> encode(std::string_view text) const { return model_->encode(text); }

  /// Token ids of a segmentation that is drawn with the caller's random numbers of [0, 1): see SubwordSampler. Throws
  /// Error for a vocabulary that cannot.
  std::vector<int32_t> sample(std::string_view text, double alpha, std::function<double()> const& draw) const {
    return model_->sample(text, alpha, draw);
  }
  bool can_sample() const { return model_->can_sample(); }
  /// Whether the tokens of a text are those of its words, which are parted by spaces, one after another.
  bool splits_words() const { return model_->splits_words(); }

  /// Decodes the text; special ids are left out. Throws Error for an id outside [0, size()).
  std::string decode(std::span<int32_t const> ids) const;

  /// The piece as the vocabulary has it: "▁house", "Ġhouse", "</s>". Throws Error for an id outside [0, size()).
  std::string piece(int32_t id) const;

  int32_t size() const noexcept { return model_->size; }
  /// There is a mask where a SentencePiece model has a piece <mask>, or the tokenizer of another system names one.
  SpecialIds const& special_ids() const noexcept { return model_->ids; }
  /// The ids of the pieces <extra_id_0>, <extra_id_1>, … that the vocabulary has.
  std::vector<int32_t> const& sentinels() const noexcept { return model_->sentinels; }
  TextForm const& form() const noexcept { return model_->text_form; }

  /// The bytes that it was made from; SentencePiece's own tools read those of its models.
  std::string const& model() const noexcept { return model_->bytes; }

 private:
  explicit Tokenizer(std::shared_ptr<TokenizerModel const> model) : model_(std::move(model)) {}
  std::shared_ptr<TokenizerModel const> model_;
};

/// The ids of a vocabulary's pieces; the lowest where several have one text.
std::unordered_map<std::string, int32_t> piece_ids(Tokenizer const& tokenizer);

/// The source's and the target's tokenizer.
struct Vocabulary {
  Tokenizer source;
  Tokenizer target;

  /// Each id is the same piece on both sides. The models may differ in which pieces they read from a text.
  bool joint() const;
  SideIds special_ids() const;
  /// Special ids without those that texts of a dataset have: a begin token that is a text's language.
  SideIds special_ids_outside_texts() const;

  /// The vocabulary's digest: SHA-256 (hexadecimal) of the two models' SHA-256 (hexadecimal), source first.
  std::string digest() const;
};

}  // namespace heddle
