#pragma once

#include <boost/json/fwd.hpp>
#include <functional>
#include <string>
#include <vector>

namespace heddle {

/// The member "decoder" of a tokenizer.json (Hugging Face): the steps that make a text of pieces.
class PieceDecoder {
 public:
  /// Null: the text has a space between two pieces; none where they are of bytes. Throws DataError for a kind of step
  /// that Heddle does not have.
  PieceDecoder(boost::json::value const* options, bool of_bytes);

  std::string operator()(std::vector<std::string> pieces) const;

 private:
  using Step = std::function<void(std::vector<std::string>& pieces)>;
  void add(boost::json::value const& options);

  std::vector<Step> steps_;
};

/// The byte that a piece "<0x41>" stands for, or -1.
int byte_of_piece(std::string_view piece);

}  // namespace heddle
