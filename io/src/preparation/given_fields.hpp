#pragma once

#include <heddle/core/tensor/pack.hpp>
#include <heddle/io/preparation/prepare.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "given_texts.hpp"

namespace heddle {

/// A side of a pair as given, and its tokens, of which the first `frame` are not the text's.
struct EncodedSide {
  Tokenizer const& tokenizer;
  std::string_view line;
  std::vector<std::int32_t> const& ids;
  std::size_t frame = 0;
};

/// The fields that files beside a training text have for its pairs, line by line.
class GivenFields {
 public:
  explicit GivenFields(PrepareOptions const& options);

  SampleFields fields() const;
  /// The files of each field that is given.
  std::vector<TextFiles> files() const;
  /// Sets the fields of a pair from its lines of files(), which have the number `number` there: of words, which are
  /// parted by white space, they become those of their tokens. Throws DataError, with file and line, for a line that
  /// does not fit the pair.
  void set(std::vector<std::string_view> const& lines, std::int64_t number, EncodedSide const& source,
           EncodedSide const& target, Sample& pair) const;

 private:
  enum class Kind : std::uint8_t { alignments, sentence_weights, word_weights };
  struct Field {
    Kind kind;
    TextFiles files;
    std::string name;
  };
  /// A field's line of a pair.
  struct Line {
    std::string const& name;
    std::int64_t number;
    std::string_view text;
  };

  static void set_alignment(Line const& line, EncodedSide const& source, EncodedSide const& target, Sample& pair);
  static std::vector<float> read_weights(Line const& line, std::size_t count, char const* what);
  static void multiply(std::vector<float> const& of_words, EncodedSide const& target, Sample& pair);

  std::vector<Field> given_;  ///< in the order of Kind
};

}  // namespace heddle
