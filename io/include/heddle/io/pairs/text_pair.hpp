#pragma once

#include <cstdint>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

/// A pair of texts from which a sample is made. The words of a text are parted by white space (see split_words).
struct TextPair {
  std::string source = {};
  std::string target = {};
  /// Links of words, counted from 0: TokenLink has the number of a word of each side.
  std::vector<TokenLink> links = {};
  /// Factors of the losses: of each word of the target and, last, of its end; one element: of all; empty: 1.
  std::vector<float> weights = {};
  /// A pair of a dataset that no modifier has changed: its tokens, in place of the above.
  std::optional<Sample> tokens = {};
  std::optional<std::string> tag = {};  ///< text before the source in place of the corpus's tag
  /// The share of merges that BPE-dropout leaves out, or the exponent of a unigram sample; 0: the best segmentation.
  double source_sampling = 0;
  double target_sampling = 0;

  bool empty() const { return !tokens && (source.empty() || target.empty()); }
  /// Decodes `tokens`, if there are any, into texts, and their links and weights into those of words.
  void make_text(Vocabulary const& vocabulary);
};

/// The number of a text's words.
std::int64_t count_words(std::string_view text);

/// Numbered pairs of text, as files or a dataset have them. Its functions may be called from several threads.
class TextPairs {
 public:
  TextPairs() = default;
  virtual ~TextPairs() = default;
  TextPairs(TextPairs const&) = delete;
  TextPairs& operator=(TextPairs const&) = delete;

  /// Whether pairs are read once and in their order, by one thread. Their number is then not known.
  virtual bool is_stream() const { return false; }
  /// The number of pairs, at least 1; of a stream the largest possible one. Some may have an empty side.
  virtual std::int64_t size() const = 0;
  /// The pairs of a range; of a stream, which then begins where the last one ended or later, fewer where it ends.
  /// Throws DataError, which names file and line, where they cannot be read.
  virtual std::vector<TextPair> read(IndexRange range) const = 0;
  /// Ends a wait for a stream in another thread: `read` throws there.
  virtual void interrupt() const {}
  /// The fields that pairs have.
  virtual SampleFields fields() const = 0;
  /// The file, or the first of several.
  virtual std::string const& name() const = 0;
  /// Identifies the content.
  virtual std::string const& digest() const = 0;
  /// A warning about the files, such as an index that could not be written; empty: none.
  virtual std::string warning() const { return ""; }
};

}  // namespace heddle
