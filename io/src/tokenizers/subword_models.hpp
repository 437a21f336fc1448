#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace heddle {

/// The member "model" of a tokenizer.json (Hugging Face): splits words into pieces. May be used by several threads.
class SubwordModel {
 public:
  virtual ~SubwordModel() = default;
  /// Appends the ids of a word's pieces.
  virtual void encode(std::string const& word, std::vector<std::int32_t>& ids) const = 0;
};

/// Whether it is byte-pair encoding by its member "type", which older files may lack.
bool is_bpe(boost::json::object const& model);
/// Passes the pieces of a model and their ids: a list of pieces with scores, or an object.
void for_each_piece(boost::json::object const& model,
                    std::function<void(std::string const& text, std::int64_t id)> const& take);
/// Whether the id is that of a special piece, which no text is read as.
using IsSpecial = std::function<bool(std::int64_t id)>;
/// A unigram model, byte-pair encoding of characters or of bytes (`of_bytes`), or WordPiece. Throws DataError for an
/// option that no model here has, or what Boost.JSON throws.
std::unique_ptr<SubwordModel> make_subword_model(boost::json::object const& model, IsSpecial const& is_special,
                                                 bool of_bytes);

}  // namespace heddle
