#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <heddle/io/files/file_lock.hpp>
#include <heddle/io/text/text_writer.hpp>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "corpus/chunks.hpp"

namespace heddle {

/// Where the results of chunks go: the standard output, or a file, compressed as its name asks for (".gz", ".zst").
///
/// A file appears when it is complete. Until then there are FILE.partial, with the chunks so far, and FILE.journal, a
/// line of JSON for each of them: the digests of its lines and of its bytes. A command that was killed and is given
/// again continues after the last chunk that both have; so nothing is computed twice but what was not written, and the
/// file is the same byte for byte.
class CorpusOutput {
 public:
  using Restored = std::function<void(Chunk const& chunk, ChunkResult const& result)>;

  /// `path` "" is the standard output. `identity` says in one line what decides the output: the model and the options.
  /// `inputs` are the texts that are read. Throws UsageError if `path` is one of those, under any name, if there are
  /// files of a command with another identity, or if another process writes them; Error if a file cannot be written.
  CorpusOutput(std::filesystem::path path, std::string const& identity, std::vector<std::string> const& inputs);
  ~CorpusOutput();
  CorpusOutput(CorpusOutput const&) = delete;
  CorpusOutput& operator=(CorpusOutput const&) = delete;

  /// The next chunk of `read` that is not there yet; nothing at the end of the text. `restored` is called for those
  /// that are there, with the texts and sums of their results. Throws DataError if one that is there was made of other
  /// lines, or if the text ends before it.
  std::optional<Chunk> next(std::function<std::optional<Chunk>()> const& read, Restored const& restored = {});
  /// Writes the result of the chunk that follows the one that was written last. Throws Error if not all of it could be
  /// written.
  void write(ChunkResult const& result);
  /// Gives a file its name. Throws Error if that fails.
  void finish();

 private:
  struct Done {
    std::int64_t end = 0;  ///< bytes of the file up to the chunk's end
    std::string lines;     ///< digest of its lines
    std::vector<double> sums = {};
  };

  std::filesystem::path partial() const { return path_.string() + ".partial"; }
  std::filesystem::path journal() const { return path_.string() + ".journal"; }
  /// Finds the chunks that both files have, and returns the part of the journal that is of them.
  std::string restore(std::string const& identity, std::string const& earlier);
  /// The result of the chunk that was read last, from the file.
  ChunkResult result_there() const;

  std::filesystem::path path_;
  Compression compression_ = Compression::none;
  bool restartable_ = false;  ///< a regular file
  std::vector<Done> done_;
  std::size_t restored_ = 0;         ///< chunks that were there at the start
  std::size_t read_ = 0;             ///< those of them that have been read again
  std::deque<std::string> digests_;  ///< the digests of the lines of chunks that are being computed
  std::optional<FileLock> lock_;     ///< against another process with the same output
  std::unique_ptr<std::ostream> file_, journal_file_;
};

/// Throws UsageError if `path` is one of the texts that are still to be read, under any name.
void require_other_file(std::filesystem::path const& path, std::vector<std::string> const& inputs);

/// Throws Error if something could not be written to the file, or it could not be opened.
void require_written(std::ostream const& stream, std::filesystem::path const& path);

/// Identifies all that decides the output of a command: the model and the arguments, except those that choose files and
/// processes.
std::string output_identity(std::string const& command, std::vector<std::string> const& arguments,
                            std::string const& model_digest);

}  // namespace heddle
