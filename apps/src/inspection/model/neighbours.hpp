#pragma once

#include <boost/json/array.hpp>
#include <cstdint>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <span>
#include <string>
#include <vector>

namespace heddle {

struct Neighbour {
  std::int32_t id = 0;
  double cosine = 0;
};

/// The rows of a table that point most in the direction of the mean of some rows, found in one pass over the table.
class NearestRows {
 public:
  /// `ids` are the numbers of `rows`, which are not neighbours. A mean of zeros has no direction and no
  /// neighbours.
  NearestRows(std::vector<std::int32_t> ids, std::vector<std::vector<float>> const& rows, std::size_t count);

  /// Adds adjacent rows, row major, of which `first` is the id of the first one; a row of zeros has the cosine 0.
  void add(std::span<float const> values, std::int64_t first);
  /// The largest cosine first; of equal ones the lower id.
  std::vector<Neighbour> const& found() const { return found_; }

 private:
  std::vector<std::int32_t> ids_;
  std::vector<double> mean_;
  double length_ = 0;
  std::size_t count_;
  std::vector<Neighbour> found_;
};

/// For each embedding table of the checkpoint [{"table", "words": [{"word", "pieces", "neighbours": [[piece,
/// cosine]]}]}]. Without `words`, some whole words of the vocabulary. Reads one slab of a table at a time.
boost::json::array neighbours_to_json(Checkpoint const& checkpoint, Vocabulary const& vocabulary,
                                      std::vector<std::string> const& words);

}  // namespace heddle
