#pragma once

#include <heddle/core/tensor/pack.hpp>
#include <heddle/io/dataset/prepare.hpp>
#include <heddle/io/text/text_files.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <optional>
#include <string>

namespace heddle {

/// A side of a pair as given, and its tokens, of which the first `frame` are not the text's.
struct EncodedSide {
  Tokenizer const& tokenizer;
  std::string const& line;
  std::vector<std::int32_t> const& ids;
  std::size_t frame = 0;
};

/// The fields that files beside a training text have for its pairs, line by line.
class GivenFields {
 public:
  explicit GivenFields(PrepareOptions const& options);

  SampleFields fields() const;
  /// Reads the lines of the next pair. Throws DataError where a file has fewer.
  void next();
  /// Sets the fields of a pair from the lines read last: of words, which are parted by white space, they become those
  /// of their tokens. Throws DataError, with file and line, for a line that does not fit the pair.
  void set(EncodedSide const& source, EncodedSide const& target, Sample& pair) const;
  /// Throws DataError where a file has more lines than have been read.
  void require_all_read();

 private:
  struct File {
    TextFilesReader reader;
    std::string name;
    std::string line = {};
  };
  static std::optional<File> open(PrepareOptions::Paths const& paths);
  std::vector<File*> files();
  void set_alignment(EncodedSide const& source, EncodedSide const& target, Sample& pair) const;
  void set_weights(EncodedSide const& target, Sample& pair) const;

  std::optional<File> alignments_, sentence_weights_, word_weights_;
};

}  // namespace heddle
