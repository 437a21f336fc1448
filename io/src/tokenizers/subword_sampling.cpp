#include "tokenizers/subword_sampling.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tokenizer_steps/characters.hpp"

namespace heddle {

namespace {

constexpr std::string_view space_mark = "\u2581";

double log_sum(double one, double other) {
  double const larger = std::max(one, other);
  return larger == -std::numeric_limits<double>::infinity()
             ? larger
             : larger + std::log(std::exp(one - larger) + std::exp(other - larger));
}

}  // namespace

SubwordSampler::SubwordSampler(SentencePieceModel const& model) : bpe_(model.bpe()) {
  using Type = SentencePiece::Type;
  auto const normalizer = model.normalizer();
  splits_words_ = normalizer.adds_space && normalizer.removes_spaces;
  std::vector<std::pair<std::string, std::int32_t>> texts;
  for (std::size_t index = 0; index < model.pieces.size(); ++index) {
    SentencePiece const& piece = model.pieces[index];
    scores_.push_back(piece.score);
    normal_.push_back(piece.type == Type::normal);
    if (piece.type != Type::normal && piece.type != Type::user_defined) {
      continue;
    }
    splits_words_ = splits_words_ && piece.text.find(space_mark, 1) == std::string::npos;
    if (piece.type == Type::normal) {
      ids_.emplace(piece.text, static_cast<std::int32_t>(index));
      texts.emplace_back(piece.text, static_cast<std::int32_t>(index));
    }
  }
  if (!bpe_) {
    tree_ = PrefixTree(std::move(texts));
  }
}

std::int32_t SubwordSampler::find(std::string_view text) const {
  auto const found = ids_.find(text);
  return found == ids_.end() ? -1 : found->second;
}

/// A part of the text, in a list of neighbours.
struct SubwordSampler::Symbol {
  std::size_t begin = 0;
  std::size_t size = 0;  ///< 0: merged into the one before
  std::size_t before = 0;
  std::size_t after = 0;
};

void SubwordSampler::merge(std::string_view text, double alpha, DrawNumber const& draw,
                           std::vector<std::int32_t>& ids) const {
  std::vector<Symbol> symbols;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t const size = first_character(text.substr(begin)).size();
    std::size_t const at = symbols.size();
    symbols.push_back({begin, size, at - 1, at + 1});
    begin += size;
  }
  struct Candidate {
    double score;
    std::size_t left;
    std::size_t size;  ///< of both together, by which an old one is known
  };
  std::vector<Candidate> candidates;  // few: a word has a handful
  auto const add = [&](std::size_t left) {
    std::size_t const right = symbols[left].after;
    if (right < symbols.size()) {
      std::size_t const size = symbols[left].size + symbols[right].size;
      if (std::int32_t const id = find(text.substr(symbols[left].begin, size)); id >= 0) {
        candidates.push_back({scores_[static_cast<std::size_t>(id)], left, size});
      }
    }
  };
  for (std::size_t left = 0; left < symbols.size(); ++left) {
    add(left);
  }
  while (!candidates.empty()) {
    std::size_t best = 0;  // the highest score and, of equal ones, the leftmost
    for (std::size_t at = 1; at < candidates.size(); ++at) {
      Candidate const& one = candidates[at];
      Candidate const& other = candidates[best];
      best = one.score > other.score || (one.score == other.score && one.left < other.left) ? at : best;
    }
    auto const [score, left, size] = candidates[best];
    candidates[best] = candidates.back();
    candidates.pop_back();
    std::size_t const right = symbols[left].after;
    if (symbols[left].size == 0 || right >= symbols.size() || symbols[left].size + symbols[right].size != size ||
        draw() < alpha) {
      continue;
    }
    symbols[left].size = size;
    symbols[left].after = symbols[right].after;
    symbols[right].size = 0;
    if (symbols[left].after < symbols.size()) {
      symbols[symbols[left].after].before = left;
    }
    add(left);
    if (left > 0) {
      add(symbols[left].before);
    }
  }
  for (Symbol const& symbol : symbols) {
    if (symbol.size > 0) {
      ids.push_back(find(text.substr(symbol.begin, symbol.size)));
    }
  }
}

void SubwordSampler::draw_path(std::string_view text, double alpha, DrawNumber const& draw,
                               std::vector<std::int32_t>& ids) const {
  constexpr double never = -std::numeric_limits<double>::infinity();
  struct Step {
    std::size_t begin;
    std::int32_t id;
    double weight;  ///< logarithm of the sum over all segmentations that end with it
  };
  std::vector<double> sums(text.size() + 1, never);
  std::vector<std::vector<Step>> steps(text.size() + 1);
  sums[0] = 0;
  for (std::size_t begin = 0; begin < text.size(); begin += first_character(text.substr(begin)).size()) {
    tree_.for_each_prefix(text.substr(begin), [&](std::size_t length, std::int32_t id) {
      double const weight = sums[begin] + alpha * scores_[static_cast<std::size_t>(id)];
      steps[begin + length].push_back({begin, id, weight});
      sums[begin + length] = log_sum(sums[begin + length], weight);
    });
  }
  std::size_t const first = ids.size();
  for (std::size_t end = text.size(); end > 0;) {
    double left = draw();
    Step const* chosen = &steps[end].back();
    for (Step const& step : steps[end]) {
      left -= std::exp(step.weight - sums[end]);
      if (left < 0) {
        chosen = &step;
        break;
      }
    }
    ids.push_back(chosen->id);
    end = chosen->begin;
  }
  std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end());
}

}  // namespace heddle
