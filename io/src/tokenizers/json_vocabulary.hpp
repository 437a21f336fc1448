#pragma once

#include <boost/json.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizers/prefix_tree.hpp"
#include "tokenizers/tokenizer_model.hpp"

namespace heddle {

/// Tokens that are found in a text before it is split into words: the leftmost, of those that start there the longest.
class AddedTokens {
 public:
  struct Token {
    std::string text;
    std::int32_t id;
    bool special = false;      ///< text where it occurs, and no token that overlaps it there is found
    bool single_word = false;  ///< only where no letter or digit is beside it
    bool lstrip = false;       ///< with the white space before it
    bool rstrip = false;
  };
  AddedTokens() = default;
  /// Throws DataError for a text of more than 1024 bytes.
  explicit AddedTokens(std::vector<Token> tokens);
  /// Appends the ids of the tokens in the text; calls `others` for what lies between them, `first` for a part that
  /// begins where the text does.
  void split(std::string_view text, std::vector<std::int32_t>& ids,
             std::function<void(std::string_view, bool first)> const& others) const;

 private:
  Token const* longest_at(std::string_view text) const;

  std::vector<Token> tokens_;
  PrefixTree tree_;
};

/// The parts that vocabularies of Hugging Face's tokenizer.json have in common: pieces by their ids, added tokens and
/// the member "heddle" (see tokenizer_json.hpp). Derived classes read the member "model", then call
/// read_added_tokens and read_special. All of these throw DataError, or what Boost.JSON throws.
class JsonVocabulary : public TokenizerModel {
 protected:
  struct Piece {
    std::string bytes;
    bool raw = false;      ///< its text is not of the bytes' alphabet, and is `bytes` itself
    bool special = false;  ///< neither read from a text nor written to one
  };
  /// Brings a text into the form in which pieces are looked for; empty: texts stay as they are.
  using Normalizer = std::function<std::string(std::string_view)>;

  explicit JsonVocabulary(Piece (*piece_of)(std::string const& text)) : piece_of_(piece_of) {}

  /// Sets a piece's text. Throws DataError if another piece has its id.
  Piece& set_piece(boost::json::value const& number, std::string const& text);
  void read_added_tokens(boost::json::object const& document, boost::json::object const& special,
                         Normalizer const& normalize);
  /// Sets `size`, `ids` and `text_form`; the pieces that `ids` name, and those that nothing names, are special.
  void read_special(boost::json::object const& special);
  /// Appends the ids of added tokens; calls `others` for the normalized text between them, `first` for a part that
  /// begins where the text does.
  void cut_out_added(std::string_view text, Normalizer const& normalize, std::vector<std::int32_t>& tokens,
                     std::function<void(std::string_view, bool first)> const& others) const;

  /// Throws DataError for an option of byte-pair encoding ("BPE") that no vocabulary here has.
  static void require_plain_pairs(boost::json::object const& model);
  /// The two pieces of a merge: an array of both, or a text with a space between them.
  static std::pair<std::string, std::string> merge_of(boost::json::value const& merge);

  std::vector<Piece> pieces_;

 private:
  Piece (*piece_of_)(std::string const& text);
  AddedTokens added_;
  AddedTokens added_normal_;  // found in the normalized text
};

std::unique_ptr<TokenizerModel> make_byte_level_bpe(boost::json::object const& document);
std::unique_ptr<TokenizerModel> make_word_piece(boost::json::object const& document);
std::unique_ptr<TokenizerModel> make_piece_vocabulary(boost::json::object const& document);

}  // namespace heddle
