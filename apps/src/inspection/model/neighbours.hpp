#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <heddle/io/text/tokenizer.hpp>
#include <span>
#include <string>
#include <vector>

namespace heddle {

/// The rows of an embedding table, row major.
struct EmbeddingRows {
  std::span<float const> values;
  std::int64_t columns = 0;

  std::int64_t rows() const { return static_cast<std::int64_t>(values.size()) / columns; }
  std::span<float const> row(std::int64_t index) const {
    return values.subspan(static_cast<std::size_t>(index * columns), static_cast<std::size_t>(columns));
  }
};

struct Neighbour {
  std::int32_t id = 0;
  double cosine = 0;
};

/// The `count` rows whose direction is nearest to that of the mean of the rows `of`, these left out: the greatest
/// cosine first, of equal ones the lower id. Rows of zeros have the cosine 0.
std::vector<Neighbour> nearest_rows(EmbeddingRows const& table, std::span<std::int32_t const> of, std::size_t count);

/// Words for which none were asked: of the vocabulary's whole words some of medium length, evenly spread.
std::vector<std::string> example_words(Tokenizer const& tokenizer, std::size_t count);

/// For each embedding table of the checkpoint [{"table", "words": [{"word", "pieces", "neighbours": [[piece,
/// cosine]]}]}]. Without `words`, example_words.
boost::json::array neighbours_to_json(Checkpoint const& checkpoint, Vocabulary const& vocabulary,
                                      std::vector<std::string> const& words);

}  // namespace heddle
