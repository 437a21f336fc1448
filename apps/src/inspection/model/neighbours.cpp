#include "neighbours.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <heddle/io/text/text.hpp>
#include <numeric>
#include <utility>

namespace heddle {
namespace {

constexpr std::size_t shown_neighbours = 12;
constexpr std::size_t shown_examples = 6;
constexpr std::string_view word_start = "\u2581";

double length(auto const& vector) {
  double squares = 0;
  for (auto const value : vector) {
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  return std::sqrt(squares);
}

bool nearer(Neighbour const& a, Neighbour const& b) {
  return a.cosine != b.cosine ? a.cosine > b.cosine : a.id < b.id;
}

/// A word, the pieces that it consists of, and the search for its neighbours.
struct Word {
  std::string text;
  std::vector<std::int32_t> pieces;
  NearestRows nearest;
};

Word word_of(Checkpoint const& checkpoint, TensorInfo const& table, Tokenizer const& tokenizer,
             std::string const& text) {
  std::vector<std::int32_t> const pieces = tokenizer.encode(text);
  std::vector<std::vector<float>> rows;
  for (std::int32_t const piece : pieces) {
    rows.push_back(checkpoint.read(table.name, Checkpoint::Part::value, 0, piece, 1));
  }
  return {text, pieces, NearestRows(mean_of(rows), pieces, shown_neighbours)};
}

boost::json::object to_json(Word const& word, Tokenizer const& tokenizer) {
  boost::json::array pieces;
  for (std::int32_t const id : word.pieces) {
    pieces.emplace_back(tokenizer.piece(id));
  }
  boost::json::array neighbours;
  for (Neighbour const& neighbour : word.nearest.found()) {
    neighbours.push_back(boost::json::array{tokenizer.piece(neighbour.id), neighbour.cosine});
  }
  return {{"word", word.text}, {"pieces", std::move(pieces)}, {"neighbours", std::move(neighbours)}};
}

}  // namespace

NearestRows::NearestRows(std::vector<double> vector, std::vector<std::int32_t> leave_out, std::size_t count)
    : vector_(std::move(vector)), leave_out_(std::move(leave_out)), count_(count), length_(length(vector_)) {}

void NearestRows::add(EmbeddingRows const& rows) {
  for (std::int64_t index = 0; index < rows.rows() && length_ > 0 && count_ > 0; ++index) {
    Neighbour row{static_cast<std::int32_t>(rows.first + index), 0};
    if (std::ranges::find(leave_out_, row.id) != leave_out_.end()) {
      continue;
    }
    auto const values = rows.row(index);
    if (double const lengths = length(values) * length_; lengths > 0) {
      row.cosine = std::transform_reduce(values.begin(), values.end(), vector_.begin(), 0.0, std::plus<>(),
                                         [](float one, double other) { return static_cast<double>(one) * other; }) /
                   lengths;
    }
    if (found_.size() < count_ || nearer(row, found_.back())) {
      found_.insert(std::ranges::upper_bound(found_, row, nearer), row);
      found_.resize(std::min(found_.size(), count_));
    }
  }
}

std::vector<double> mean_of(std::vector<std::vector<float>> const& rows) {
  std::vector<double> mean(rows.empty() ? 0 : rows.front().size());
  for (std::vector<float> const& row : rows) {
    for (std::size_t i = 0; i < mean.size(); ++i) {
      mean[i] += static_cast<double>(row[i]) / static_cast<double>(rows.size());
    }
  }
  return mean;
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
    if (tensor.shape.front() != tokenizer.size()) {
      continue;
    }
    std::vector<Word> found;
    for (std::string const& word : words.empty() ? example_words(tokenizer, shown_examples) : words) {
      found.push_back(word_of(checkpoint, tensor, tokenizer, word));
    }
    for (TensorSlice const& slab : slabs_of(tensor)) {
      std::vector<float> const values = checkpoint.read(slab);
      for (Word& word : found) {
        word.nearest.add({values, tensor.shape[1], slab.begin});
      }
    }
    boost::json::array entries;
    for (Word const& word : found) {
      entries.push_back(to_json(word, tokenizer));
    }
    tables.push_back({{"table", tensor.name}, {"words", std::move(entries)}});
  }
  return tables;
}

}  // namespace heddle
