#pragma once

#include <heddle/io/preparation/prepare.hpp>
#include <heddle/io/text/text_files.hpp>
#include <iosfwd>
#include <string>
#include <vector>

namespace heddle {

/// A side of a text: its files, one after another.
using TextFiles = std::vector<TextFile>;

/// A text's file, or its first one of several: "a.en and 2 more".
std::string describe_files(TextFiles const& parts);

/// The bytes of these files, as far as they are known.
std::int64_t file_bytes(TextFiles const& parts);

/// The texts of one dataset.
struct GivenTexts {
  std::string name;                 ///< "train" or "valid"
  std::vector<TextFiles> sides;     ///< source and target, with one file of each beside one of the other, or one text
  std::int64_t lines = 0;           ///< of each side, once they have been read; before 0
  std::vector<bool> left_out = {};  ///< for each line, or empty: whether readers leave it out

  std::string describe() const;
};

/// The texts that the options name: for training and validation, or one of the two.
std::vector<GivenTexts> given_texts(PrepareOptions const& options);

/// How many of the texts can be read only once.
std::int64_t pipes(std::vector<GivenTexts> const& texts);

class FileDescriptor;

/// Copies of texts that can be read only once: pipes, and what comes from the standard input or a terminal. They are
/// files without a name, which are gone when this object or the process is.
class CopiedTexts {
 public:
  /// Copies them, all at the same time because one program may write several of them, and lets the parts read the
  /// copies. Throws DataError for a text that cannot be read, Error where `directory` has no room for it.
  CopiedTexts(std::vector<GivenTexts>& texts, std::filesystem::path const& directory, std::ostream& progress);
  ~CopiedTexts();
  CopiedTexts(CopiedTexts const&) = delete;
  CopiedTexts& operator=(CopiedTexts const&) = delete;

 private:
  std::vector<FileDescriptor> copies_;
};

}  // namespace heddle
