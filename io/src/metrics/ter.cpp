#include <unicode/locid.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <heddle/io/metrics/metric.hpp>
#include <heddle/io/text/text.hpp>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace heddle {
namespace {

using Words = std::vector<int>;  ///< by number, since only equality counts

// Tercom's limits, and one of sacreBLEU's.
constexpr std::ptrdiff_t max_shifted_words = 10;
constexpr std::ptrdiff_t max_shift_distance = 50;
constexpr std::ptrdiff_t beam = 25;
constexpr int max_candidates = 1000;

enum class Edit : std::uint8_t { none, substitute, remove, insert };

/// The edits that make a reference of a hypothesis. Only cells near the diagonal are looked at, and kept.
class EditDistance {
 public:
  explicit EditDistance(Words const& reference) : reference_(reference) {}

  int operator()(Words const& hypothesis);
  /// The edits of the last call, in order.
  std::vector<Edit> edits() const;

 private:
  struct Cell {
    int cost = std::numeric_limits<int>::max() / 2;
    Edit edit = Edit::none;
  };
  /// The cells of a row from column `begin` on are those from `first` to the next row's.
  struct Row {
    std::size_t begin = 0;
    std::size_t first = 0;
  };
  void add_row(std::size_t begin, std::size_t end) {
    rows_.push_back({begin, cells_.size()});
    cells_.resize(cells_.size() + end - begin);
  }
  Cell& at(std::size_t row, std::size_t column) { return cells_[rows_[row].first + column - rows_[row].begin]; }
  /// A cell of any column.
  Cell look_at(std::size_t row, std::size_t column) const {
    auto const [begin, first] = rows_[row];
    std::size_t const end = row + 1 < rows_.size() ? rows_[row + 1].first : cells_.size();
    return column >= begin && first + column - begin < end ? cells_[first + column - begin] : Cell();
  }
  void compute_row(std::size_t row);

  Words const& reference_;
  Words hypothesis_;
  std::vector<Row> rows_;
  std::vector<Cell> cells_;
};

int EditDistance::operator()(Words const& hypothesis) {
  std::size_t const columns = reference_.size() + 1;
  if (rows_.empty()) {
    add_row(0, columns);
    for (std::size_t column = 0; column < columns; ++column) {
      at(0, column) = {static_cast<int>(column), Edit::insert};
    }
  }
  // Rows of words that both have in front are those of the last call: the candidates of a shift are equally long.
  std::size_t same = 0;
  if (hypothesis.size() == hypothesis_.size()) {
    same = static_cast<std::size_t>(std::ranges::mismatch(hypothesis, hypothesis_).in1 - hypothesis.begin());
  }
  hypothesis_ = hypothesis;
  if (same + 1 < rows_.size()) {
    cells_.resize(rows_[same + 1].first);
    rows_.resize(same + 1);
  }
  for (std::size_t row = same + 1; row <= hypothesis.size(); ++row) {
    compute_row(row);
  }
  return look_at(hypothesis.size(), columns - 1).cost;
}

void EditDistance::compute_row(std::size_t row) {
  auto const columns = static_cast<std::ptrdiff_t>(reference_.size()) + 1;
  double const ratio = static_cast<double>(reference_.size()) / static_cast<double>(hypothesis_.size());
  // If lengths are very unequal, no cell of a narrower beam would touch the row before.
  std::ptrdiff_t const width =
      static_cast<double>(beam) < ratio / 2 ? static_cast<std::ptrdiff_t>(std::ceil(ratio / 2 + beam)) : beam;
  auto const diagonal = static_cast<std::ptrdiff_t>(std::floor(static_cast<double>(row) * ratio));
  bool const last = row == hypothesis_.size();
  auto const begin = static_cast<std::size_t>(std::max<std::ptrdiff_t>(0, diagonal - width));
  auto const end = static_cast<std::size_t>(last ? columns : std::min(columns, diagonal + width));
  add_row(begin, std::max(begin, end));
  for (std::size_t column = begin; column < end; ++column) {
    Cell& cell = at(row, column);
    if (column == 0) {
      cell = {look_at(row - 1, 0).cost + 1, Edit::remove};
      continue;
    }
    bool const equal = hypothesis_[row - 1] == reference_[column - 1];
    std::array const ways{
        Cell{look_at(row - 1, column - 1).cost + (equal ? 0 : 1), equal ? Edit::none : Edit::substitute},
        Cell{look_at(row - 1, column).cost + 1, Edit::remove}, Cell{look_at(row, column - 1).cost + 1, Edit::insert}};
    cell = *std::ranges::min_element(ways, {}, &Cell::cost);  // the first one of equals
  }
}

std::vector<Edit> EditDistance::edits() const {
  std::vector<Edit> reversed;
  std::size_t row = hypothesis_.size();
  std::size_t column = reference_.size();
  while (row > 0 || column > 0) {
    Edit const edit = look_at(row, column).edit;
    reversed.push_back(edit);
    row -= edit == Edit::insert ? 0 : 1;
    column -= edit == Edit::remove ? 0 : 1;
  }
  return {reversed.rbegin(), reversed.rend()};
}

/// Where words of the reference stand in the hypothesis, and which words of both are wrong.
struct Alignment {
  std::vector<std::ptrdiff_t> places;  ///< of the reference's words; -1: before the first word
  std::vector<char> wrong_in_hypothesis, wrong_in_reference;
};

Alignment alignment_of(std::vector<Edit> const& edits) {
  Alignment alignment;
  std::ptrdiff_t place = -1;
  for (Edit const edit : edits) {
    char const wrong = edit == Edit::none ? 0 : 1;
    if (edit != Edit::insert) {
      ++place;
      alignment.wrong_in_hypothesis.push_back(wrong);
    }
    if (edit != Edit::remove) {
      alignment.places.push_back(place);
      alignment.wrong_in_reference.push_back(wrong);
    }
  }
  return alignment;
}

Words shifted(Words words, std::ptrdiff_t begin, std::ptrdiff_t length, std::ptrdiff_t target) {
  auto const first = words.begin() + begin;
  if (target < begin) {
    std::rotate(words.begin() + target, first, first + length);
  } else if (target > begin + length) {
    std::rotate(first, first + length, words.begin() + target);
  } else {  // within itself: to where the words end after they were taken out
    auto const end = std::min(std::ssize(words), length + target);
    std::rotate(first, first + length, words.begin() + end);
  }
  return words;
}

/// A search for the shifts that lead from a hypothesis to a reference, as Tercom does it.
class Shifts {
 public:
  Shifts(Words hypothesis, Words const& reference)
      : words_(std::move(hypothesis)), reference_(reference), distance_(reference) {}

  /// The edits, where each shift is one.
  int edits() {
    int shifts = 0;
    for (; shift(); ++shifts) {
    }
    return shifts + distance_(words_);
  }

 private:
  struct Candidate {
    std::tuple<int, std::ptrdiff_t, std::ptrdiff_t, std::ptrdiff_t> rank;  ///< edits saved, length, -from, -to
    Words words;
  };

  /// Makes the shift that saves the most edits. Returns false if none saves any, or after too many candidates.
  bool shift();
  /// Tries to shift the words that begin at `from` in the hypothesis and at `to` in the reference.
  void try_words(Alignment const& alignment, std::ptrdiff_t from, std::ptrdiff_t to, std::ptrdiff_t length);

  Words words_;
  Words const& reference_;
  EditDistance distance_;
  int edits_before_ = 0;
  int candidates_ = 0;
  std::optional<Candidate> best_;
};

bool Shifts::shift() {
  edits_before_ = distance_(words_);
  Alignment const alignment = alignment_of(distance_.edits());
  best_.reset();
  std::ptrdiff_t const from_end = std::ssize(words_);
  std::ptrdiff_t const to_end = std::ssize(reference_);
  for (std::ptrdiff_t from = 0; from < from_end; ++from) {
    for (std::ptrdiff_t to = std::max<std::ptrdiff_t>(0, from - max_shift_distance);
         to < std::min(to_end, from + max_shift_distance + 1); ++to) {
      auto const equal = [&](std::ptrdiff_t offset) {
        return words_[static_cast<std::size_t>(from + offset)] == reference_[static_cast<std::size_t>(to + offset)];
      };
      std::ptrdiff_t const longest = std::min({max_shifted_words, from_end - from, to_end - to});
      for (std::ptrdiff_t length = 1; length <= longest && equal(length - 1); ++length) {
        try_words(alignment, from, to, length);
        if (candidates_ >= max_candidates) {
          return false;
        }
      }
    }
  }
  if (!best_ || std::get<0>(best_->rank) <= 0) {
    return false;
  }
  words_ = std::move(best_->words);
  return true;
}

void Shifts::try_words(Alignment const& alignment, std::ptrdiff_t from, std::ptrdiff_t to, std::ptrdiff_t length) {
  auto const all_right = [&](std::vector<char> const& wrong, std::ptrdiff_t begin) {
    return std::count(wrong.begin() + begin, wrong.begin() + begin + length, 1) == 0;
  };
  std::ptrdiff_t const place = alignment.places[static_cast<std::size_t>(to)];
  if (all_right(alignment.wrong_in_hypothesis, from) || all_right(alignment.wrong_in_reference, to) ||
      (place >= from && place < from + length)) {
    return;
  }
  std::ptrdiff_t before = -1;
  for (std::ptrdiff_t offset = -1; offset < length; ++offset) {
    std::ptrdiff_t const word = to + offset;
    if (word >= std::ssize(alignment.places)) {
      return;
    }
    std::ptrdiff_t const target = word < 0 ? 0 : alignment.places[static_cast<std::size_t>(word)] + 1;
    if (target == std::exchange(before, target)) {
      continue;
    }
    Words moved = shifted(words_, from, length, target);
    std::tuple const rank{edits_before_ - distance_(moved), length, -from, -target};
    ++candidates_;
    if (!best_ || rank > best_->rank) {
      best_ = Candidate{rank, std::move(moved)};
    }
  }
}

/// Counts: the fewest edits, the mean length of the references.
class Ter final : public TranslationMetric {
 public:
  std::string name() const override { return "TER"; }
  std::string signature() const override { return "case:lc|tok:tercom|norm:no|punct:yes|asian:no"; }
  std::vector<double> count(std::string const& hypothesis, std::span<std::string const> references) const override;
  double score(std::span<double const> sums) const override {
    return sums[1] > 0 ? 100 * (sums[0] / sums[1]) : sums[0] > 0 ? 100 : 0;
  }
};

std::vector<double> Ter::count(std::string const& hypothesis, std::span<std::string const> references) const {
  std::map<std::string, int, std::less<>> numbers;
  auto const words_of = [&](std::string const& sentence) {
    std::string lower;
    icu::UnicodeString::fromUTF8(sentence).toLower(icu::Locale::getRoot()).toUTF8String(lower);
    Words words;
    for (std::string_view const word : split_words(lower)) {
      words.push_back(numbers.emplace(word, static_cast<int>(numbers.size())).first->second);
    }
    return words;
  };
  Words const words = words_of(hypothesis);
  int best = std::numeric_limits<int>::max();
  double length = 0;
  for (std::string const& text : references) {
    Words const reference = words_of(text);
    best = std::min(best, reference.empty() ? static_cast<int>(words.size()) : Shifts(words, reference).edits());
    length += static_cast<double>(reference.size());
  }
  return {static_cast<double>(best), length / static_cast<double>(references.size())};
}

}  // namespace

std::unique_ptr<TranslationMetric> ter_metric() {
  return std::make_unique<Ter>();
}

}  // namespace heddle
