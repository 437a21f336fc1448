#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <heddle/io/text/tokenizer.hpp>
#include <span>
#include <string>
#include <vector>

namespace heddle {

/// Adjacent rows of an embedding table, row major.
struct EmbeddingRows {
  std::span<float const> values;
  std::int64_t columns = 0;
  std::int64_t first = 0;  ///< the id of the first one

  std::int64_t rows() const { return static_cast<std::int64_t>(values.size()) / columns; }
  std::span<float const> row(std::int64_t index) const {
    return values.subspan(static_cast<std::size_t>(index * columns), static_cast<std::size_t>(columns));
  }
};

struct Neighbour {
  std::int32_t id = 0;
  double cosine = 0;
};

/// The `count` rows of a table whose direction is nearest to that of a vector, found while the table passes by.
class NearestRows {
 public:
  /// `leave_out`: rows that do not count. A vector of zeros has no direction and no neighbours.
  NearestRows(std::vector<double> vector, std::vector<std::int32_t> leave_out, std::size_t count);

  /// Looks at these rows; a row of zeros has the cosine 0.
  void add(EmbeddingRows const& rows);
  /// The greatest cosine first, of equal ones the lower id.
  std::vector<Neighbour> const& found() const { return found_; }

 private:
  std::vector<double> vector_;
  std::vector<std::int32_t> leave_out_;
  std::size_t count_;
  double length_ = 0;
  std::vector<Neighbour> found_;
};

/// The mean of rows, each given by itself.
std::vector<double> mean_of(std::vector<std::vector<float>> const& rows);

/// Words for which none were asked: of the vocabulary's whole words some of medium length, evenly spread.
std::vector<std::string> example_words(Tokenizer const& tokenizer, std::size_t count);

/// For each embedding table of the checkpoint [{"table", "words": [{"word", "pieces", "neighbours": [[piece,
/// cosine]]}]}]. Without `words`, example_words. Reads one slab of a table at a time.
boost::json::array neighbours_to_json(Checkpoint const& checkpoint, Vocabulary const& vocabulary,
                                      std::vector<std::string> const& words);

}  // namespace heddle
