#pragma once

#include <boost/json/fwd.hpp>
#include <functional>
#include <string>
#include <vector>

namespace heddle {

/// The member "pre_tokenizer" of a tokenizer.json (Hugging Face) of a vocabulary whose pieces are characters: the steps
/// that split a normalized text into the words that its model splits into pieces.
class PreTokenizer {
 public:
  /// A part of a text.
  struct Word {
    std::string text;
    bool at_start;  ///< it begins where the text does
  };

  /// Null: a text is one word. Throws DataError for a kind of step that Heddle does not have.
  explicit PreTokenizer(boost::json::value const* options);

  /// The words of a part of a text, none of them empty.
  std::vector<Word> split(Word part) const;

 private:
  /// Throws DataError where an expression takes this thread longer than until `deadline`.
  using Step = std::function<void(Word const& word, double deadline, std::vector<Word>& into)>;
  void add(boost::json::value const& options);

  std::vector<Step> steps_;
  std::size_t patterns_ = 0;  ///< of all steps
};

}  // namespace heddle
