#pragma once

#include <boost/json.hpp>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer_model.hpp"

namespace heddle {

/// A member of an object that is neither missing nor null.
boost::json::value const* json_member(boost::json::object const& object, std::string_view key);
/// The boolean at a key, `absent` where there is none. Throws what Boost.JSON throws for a value of another kind.
bool json_flag(boost::json::object const& object, std::string_view key, bool absent = false);
std::string json_string(boost::json::value const& value);
/// Throws DataError for an option that a tokenizer does not have here.
[[noreturn]] void refuse_option(std::string const& key, boost::json::value const& value);

/// Tokens that are found in a text before it is cut into words: the leftmost, of those that start there the longest.
class AddedTokens {
 public:
  /// Throws DataError for a text of more than 1024 bytes.
  void add(std::string text, std::int32_t id);
  /// After the last `add`.
  void sort();
  /// Appends the ids of the tokens in the text; calls `others` for what lies between them.
  void cut(std::string_view text, std::vector<std::int32_t>& ids,
           std::function<void(std::string_view)> const& others) const;

 private:
  using Token = std::pair<std::string, std::int32_t>;
  Token const* longest_at(std::string_view text) const;

  std::vector<Token> tokens_;
};

/// The parts that vocabularies of Hugging Face's tokenizer.json have in common: pieces by their ids, added tokens and
/// the member "heddle" (see byte_level_vocabularies.hpp). Derived classes read the member "model", then call
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
  /// Appends the ids of added tokens; calls `others` for the normalized text between them.
  void cut_out_added(std::string_view text, Normalizer const& normalize, std::vector<std::int32_t>& tokens,
                     std::function<void(std::string_view)> const& others) const;

  std::vector<Piece> pieces_;

 private:
  Piece (*piece_of_)(std::string const& text);
  AddedTokens added_;
  AddedTokens added_normal_;  // found in the normalized text
};

std::unique_ptr<TokenizerModel> make_byte_level_bpe(boost::json::object const& document);
std::unique_ptr<TokenizerModel> make_word_piece(boost::json::object const& document);

}  // namespace heddle
