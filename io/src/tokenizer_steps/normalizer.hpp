#pragma once

#include <boost/json/fwd.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// The member "normalizer" of a tokenizer.json (Hugging Face): the steps that bring a text into the form in which
/// pieces are looked for.
class TextNormalizer {
 public:
  /// Null: texts stay as they are. Throws DataError for a kind of step that Heddle does not have.
  explicit TextNormalizer(boost::json::value const* options);

  /// The normalized text. `at_start` is set to false where the text's first character is not the first of the given
  /// one (which was removed, or is the last of several that became one). Throws DataError where steps multiply a text.
  std::string operator()(std::string_view text, bool& at_start) const;

 private:
  using Step = std::function<void(std::string& text, bool& at_start)>;
  void add(boost::json::value const& options);

  std::vector<Step> steps_;
  std::size_t patterns_ = 0;  ///< of all steps
};

}  // namespace heddle
