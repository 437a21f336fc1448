#include "neighbours.hpp"

#include <algorithm>
#include <cmath>
#include <heddle/io/text/text.hpp>

namespace heddle {
namespace {

constexpr std::size_t shown_neighbours = 12;
constexpr std::size_t shown_examples = 6;
constexpr std::string_view word_start = "\u2581";

/// The dot product of two vectors of equal length.
double product(std::span<float const> a, std::span<double const> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<double>(a[i]) * b[i];
  }
  return sum;
}

double length(std::span<float const> row) {
  double squares = 0;
  for (float const value : row) {
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  return std::sqrt(squares);
}

boost::json::object word_to_json(EmbeddingRows const& table, Tokenizer const& tokenizer, std::string const& word) {
  auto const ids = tokenizer.encode(word);
  boost::json::array pieces;
  for (std::int32_t const id : ids) {
    pieces.emplace_back(tokenizer.piece(id));
  }
  boost::json::array neighbours;
  for (Neighbour const& neighbour : nearest_rows(table, ids, shown_neighbours)) {
    neighbours.push_back(boost::json::array{tokenizer.piece(neighbour.id), neighbour.cosine});
  }
  return {{"word", word}, {"pieces", std::move(pieces)}, {"neighbours", std::move(neighbours)}};
}

}  // namespace

std::vector<Neighbour> nearest_rows(EmbeddingRows const& table, std::span<std::int32_t const> of, std::size_t count) {
  std::vector<double> mean(static_cast<std::size_t>(table.columns));
  for (std::int32_t const id : of) {
    auto const row = table.row(id);
    for (std::size_t i = 0; i < mean.size(); ++i) {
      mean[i] += static_cast<double>(row[i]) / static_cast<double>(of.size());
    }
  }
  double squares = 0;
  for (double const value : mean) {
    squares += value * value;
  }
  std::vector<Neighbour> all;
  for (std::int64_t row = 0; row < table.rows() && squares > 0; ++row) {
    auto const id = static_cast<std::int32_t>(row);
    if (std::ranges::find(of, id) == of.end()) {
      double const size = length(table.row(row)) * std::sqrt(squares);
      all.push_back({id, size > 0 ? product(table.row(row), mean) / size : 0});
    }
  }
  count = std::min(count, all.size());
  std::ranges::partial_sort(all, all.begin() + static_cast<std::ptrdiff_t>(count), [](auto const& a, auto const& b) {
    return a.cosine != b.cosine ? a.cosine > b.cosine : a.id < b.id;
  });
  all.resize(count);
  return all;
}

std::vector<std::string> example_words(Tokenizer const& tokenizer, std::size_t count) {
  constexpr std::size_t shortest = 4;
  constexpr std::size_t longest = 9;
  std::vector<std::string> words;
  for (std::int32_t id = 0; id < tokenizer.size(); ++id) {
    std::string const piece = tokenizer.piece(id);
    if (!piece.starts_with(word_start)) {
      continue;
    }
    std::string const word = piece.substr(word_start.size());
    bool const letters = std::ranges::all_of(word, [](char c) { return (c >= 'a' && c <= 'z') || (c & 0x80) != 0; });
    std::size_t const size = decode_utf8(word).size();
    if (letters && size >= shortest && size <= longest && word.find(word_start) == std::string::npos) {
      words.push_back(word);
    }
  }
  std::vector<std::string> chosen;
  for (std::size_t index = 0; index < std::min(count, words.size()); ++index) {
    chosen.push_back(words[index * words.size() / std::min(count, words.size())]);
  }
  return chosen;
}

boost::json::array neighbours_to_json(Checkpoint const& checkpoint, Vocabulary const& vocabulary,
                                      std::vector<std::string> const& words) {
  boost::json::array tables;
  for (TensorInfo const& tensor : checkpoint.tensors()) {
    if (tensor.shape.size() != 2 ||
        (tensor.name != "embedding.weight" && !tensor.name.ends_with(".embedding.weight"))) {
      continue;
    }
    Tokenizer const& tokenizer = tensor.name.starts_with("decoder") ? vocabulary.target : vocabulary.source;
    std::vector<float> const values = checkpoint.read(tensor.name, Checkpoint::Part::value);
    EmbeddingRows const table{values, tensor.shape[1]};
    if (table.rows() != tokenizer.size()) {
      continue;
    }
    boost::json::array entries;
    for (std::string const& word : words.empty() ? example_words(tokenizer, shown_examples) : words) {
      entries.push_back(word_to_json(table, tokenizer, word));
    }
    tables.push_back({{"table", tensor.name}, {"words", std::move(entries)}});
  }
  return tables;
}

}  // namespace heddle
