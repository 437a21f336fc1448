#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace heddle {

/// The member "pre_tokenizer" of a tokenizer.json (Hugging Face): the steps that split a normalized text into the words
/// that its model splits into pieces.
class PreTokenizer {
 public:
  /// A part of a text.
  struct Word {
    std::string text;
    bool at_start;  ///< it begins where the text does
  };

  /// The role of matches among words, by the names that tokenizer.json has.
  enum class SplitBehavior : std::uint8_t { removed, isolated, merged_with_previous, merged_with_next, contiguous };
  /// Null: a text is one word. Throws DataError for a kind of step that Heddle does not have.
  explicit PreTokenizer(boost::json::value const* options);

  /// The last step is ByteLevel: pieces are of bytes.
  bool of_bytes() const { return of_bytes_; }
  /// The words of a part of a text, none of them empty.
  std::vector<Word> split(Word part) const;

 private:
  /// Throws DataError where an expression takes this thread longer than until `deadline`.
  using Step = std::function<void(Word const& word, double deadline, std::vector<Word>& into)>;
  void add(boost::json::value const& options);
  /// Adds a step that splits words by an expression or a literal text; `invert`: matches are what lies between these.
  void add_split(std::string const& pattern, bool literal, SplitBehavior behavior, bool invert = false);

  std::vector<Step> steps_;
  std::size_t patterns_ = 0;  ///< of all steps
  bool of_bytes_ = false;
};

}  // namespace heddle
