#include "neighbours.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <heddle/io/text/text.hpp>
#include <numeric>
#include <utility>

namespace heddle {
namespace {

double length(auto const& vector) {
  return std::sqrt(std::transform_reduce(vector.begin(), vector.end(), 0.0, std::plus<>(), [](auto value) {
    return static_cast<double>(value) * static_cast<double>(value);
  }));
}

/// Whole words of medium length, evenly spread over the vocabulary.
std::vector<std::string> example_words(Tokenizer const& tokenizer) {
  constexpr std::string_view word_start = "\u2581";
  constexpr std::size_t shortest = 4;
  constexpr std::size_t longest = 9;
  constexpr std::size_t max = 6;
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
  std::size_t const count = std::min(max, words.size());
  std::vector<std::string> chosen;
  for (std::size_t index = 0; index < count; ++index) {
    chosen.push_back(words[index * words.size() / count]);
  }
  return chosen;
}

boost::json::array words_to_json(Checkpoint const& checkpoint, TensorInfo const& table, Tokenizer const& tokenizer,
                                 std::vector<std::string> const& words) {
  constexpr std::size_t shown_neighbours = 12;
  std::vector<std::vector<std::int32_t>> pieces;
  std::vector<NearestRows> nearest;
  for (std::string const& word : words) {
    pieces.push_back(tokenizer.encode(word));
    std::vector<std::vector<float>> rows;
    for (std::int32_t const piece : pieces.back()) {
      rows.push_back(checkpoint.read(TensorSlice{table.name, value_key, {{piece, piece + 1}}}));
    }
    nearest.emplace_back(pieces.back(), rows, shown_neighbours);
  }
  for (TensorSlice const& slab : slabs_of(table)) {
    std::vector<float> const values = checkpoint.read(slab);
    for (NearestRows& rows : nearest) {
      rows.add(values, slab.ranges.front().begin);
    }
  }
  boost::json::array entries;
  for (std::size_t word = 0; word < words.size(); ++word) {
    boost::json::array texts;
    for (std::int32_t const id : pieces[word]) {
      texts.emplace_back(tokenizer.piece(id));
    }
    boost::json::array neighbours;
    for (Neighbour const& neighbour : nearest[word].found()) {
      neighbours.push_back(boost::json::array{tokenizer.piece(neighbour.id), neighbour.cosine});
    }
    entries.push_back({{"word", words[word]}, {"pieces", std::move(texts)}, {"neighbours", std::move(neighbours)}});
  }
  return entries;
}

}  // namespace

NearestRows::NearestRows(std::vector<std::int32_t> ids, std::vector<std::vector<float>> const& rows, std::size_t count)
    : ids_(std::move(ids)), mean_(rows.empty() ? 0 : rows.front().size()), count_(count) {
  for (std::vector<float> const& row : rows) {
    for (std::size_t i = 0; i < mean_.size(); ++i) {
      mean_[i] += static_cast<double>(row[i]) / static_cast<double>(rows.size());
    }
  }
  length_ = length(mean_);
}

void NearestRows::add(std::span<float const> values, std::int64_t first) {
  auto const nearer = [](Neighbour const& a, Neighbour const& b) {
    return a.cosine != b.cosine ? a.cosine > b.cosine : a.id < b.id;
  };
  for (; !values.empty() && length_ > 0; values = values.subspan(mean_.size()), ++first) {
    auto const values_of_row = values.first(mean_.size());
    Neighbour row{static_cast<std::int32_t>(first), 0};
    if (std::ranges::find(ids_, row.id) != ids_.end()) {
      continue;
    }
    if (double const lengths = length(values_of_row) * length_; lengths > 0) {
      row.cosine = std::transform_reduce(values_of_row.begin(), values_of_row.end(), mean_.begin(), 0.0, std::plus<>(),
                                         [](float one, double other) { return static_cast<double>(one) * other; }) /
                   lengths;
    }
    found_.insert(std::ranges::upper_bound(found_, row, nearer), row);
    found_.resize(std::min(found_.size(), count_));
  }
}

boost::json::array neighbours_to_json(Checkpoint const& checkpoint, Vocabulary const& vocabulary,
                                      std::vector<std::string> const& words) {
  boost::json::array tables;
  for (TensorInfo const& tensor : checkpoint.tensors()) {
    Tokenizer const& tokenizer = tensor.name.starts_with("decoder") ? vocabulary.target : vocabulary.source;
    bool const embeds = tensor.name == "embedding.weight" || tensor.name.ends_with(".embedding.weight");
    if (embeds && tensor.shape.size() == 2 && tensor.shape.front() == tokenizer.size()) {
      tables.push_back(
          {{"table", tensor.name},
           {"words", words_to_json(checkpoint, tensor, tokenizer, words.empty() ? example_words(tokenizer) : words)}});
    }
  }
  return tables;
}

}  // namespace heddle
