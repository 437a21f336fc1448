#include <unicode/unistr.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/math/special_functions/digamma.hpp>
#include <cmath>
#include <heddle/io/alignment/word_aligner.hpp>
#include <heddle/io/text/text.hpp>
#include <memory>
#include <numeric>
#include <span>

#include "alignment/model_one.hpp"
#include "parallel/run_collectively.hpp"

namespace heddle {

namespace {

constexpr std::int64_t kept_translations = 1000;  ///< of a source word
constexpr double prior = 0.01;                    ///< of each translation: Dirichlet's parameter
constexpr double empty_probability = 0.1;         ///< of the step to the empty word
constexpr double unknown_probability = 1e-9;      ///< of a translation that was never seen
constexpr double uniform_share = 0.3;             ///< of each step between words
constexpr double diagonal_tension = 4;            ///< how much likelier words are at equal places of their sentences
constexpr std::int32_t max_jump = 100;            ///< longer steps are as likely as this one
constexpr std::int64_t pairs_in_block = 256;
// Expected counts are integers, in parts of one, whose sum does not depend on the order of its terms.
constexpr double whole_count = 1LL << 24;

using Counts = std::vector<std::atomic<std::int64_t>>;

bool can_align(WordIds const& source, WordIds const& target) {
  return !source.empty() && !target.empty() && std::max(source.size(), target.size()) <= max_aligned_words;
}

std::int64_t in_parts(double count) {
  return std::llround(count * whole_count);
}

/// The probabilities of steps from one source word to the next.
class Jumps {
 public:
  Jumps() { probabilities_.fill(1.0 / static_cast<double>(probabilities_.size())); }

  /// steps[place] = the probability of word `place` of `words` after word `from`; -1: the sentence's start.
  void from(std::int32_t from, std::span<double> steps) const {
    double sum = 0;
    for (std::size_t place = 0; place < steps.size(); ++place) {
      steps[place] = probabilities_[index(static_cast<std::int32_t>(place) - from)];
      sum += steps[place];
    }
    double const uniform = uniform_share / static_cast<double>(steps.size());
    for (double& step : steps) {
      step = (1 - uniform_share) * step / sum + uniform;
    }
  }
  static std::size_t index(std::int32_t jump) {
    return static_cast<std::size_t>(std::clamp(jump, -max_jump, max_jump) + max_jump);
  }
  /// Sets probabilities in the ratio of counts.
  void maximise(Counts const& counts) {
    double sum = 0;
    for (std::size_t jump = 0; jump < probabilities_.size(); ++jump) {
      probabilities_[jump] = static_cast<double>(counts[jump].load()) + 1;
      sum += probabilities_[jump];
    }
    std::ranges::for_each(probabilities_, [&](double& probability) { probability /= sum; });
  }
  static constexpr std::size_t count = 2 * max_jump + 1;

 private:
  std::array<double, count> probabilities_{};
};

/// The expected counts of an iteration.
struct Expectations {
  explicit Expectations(std::size_t translations) : translations(translations), jumps(Jumps::count) {}
  Counts translations, jumps;
};

}  // namespace

/// The states of a target word are the source's words, from 1 on, and empty words that remember the source word before
/// them, 0 being the sentence's start.
class WordAligner::Model {
 public:
  Model(WordPairs const& pairs, AlignmentTraining const& training) {
    learn_model_one(pairs, training.model_one_iterations);
    for (int iteration = 0; iteration < training.hidden_markov_iterations; ++iteration) {
      Expectations expected(targets_.size());
      std::int64_t const blocks = (std::ssize(pairs.source) + pairs_in_block - 1) / pairs_in_block;
      in_threads(blocks, [&] {
        return [&, work = std::make_shared<Lattice>()](std::int64_t block) {
          std::int64_t const end = std::min(std::ssize(pairs.source), (block + 1) * pairs_in_block);
          for (std::int64_t pair = block * pairs_in_block; pair < end; ++pair) {
            auto const index = static_cast<std::size_t>(pair);
            if (can_align(pairs.source[index], pairs.target[index])) {
              set(*work, pairs.source[index], pairs.target[index]);
              count(*work, expected);
            }
          }
        };
      });
      maximise(expected);
    }
  }

  std::vector<std::int32_t> best(WordIds const& source, WordIds const& target) const {
    std::vector<std::int32_t> links(target.size(), -1);
    if (!can_align(source, target)) {
      return links;
    }
    Lattice lattice;
    set(lattice, source, target);
    follow_best(lattice, links);
    return links;
  }

 private:
  static constexpr std::size_t unseen = static_cast<std::size_t>(-1);

  /// The probabilities of a pair, and what is computed of them. Rows are target words; columns source words.
  struct Lattice {
    std::size_t rows = 0, columns = 0;
    std::vector<std::size_t> entries;       ///< [rows, columns + 1] places of translations; column 0: the empty word
    std::vector<double> emission;           ///< the same of their probabilities, times those of the places
    std::vector<double> steps;              ///< [columns + 1, columns], by the word before
    std::vector<double> forward, backward;  ///< [rows, 2 columns + 1]: words, then empty words by the word before
    std::vector<double> scale;              ///< [rows]
    std::vector<double> jumps;              ///< expected ones, by Jumps::index

    std::size_t states() const { return 2 * columns + 1; }
    double word(std::size_t row, std::size_t column) const { return emission[row * (columns + 1) + column + 1]; }
    double empty(std::size_t row) const { return emission[row * (columns + 1)]; }
    std::span<double const> step(std::size_t before) const {
      return std::span(steps).subspan(before * columns, columns);
    }
    std::span<double> of(std::vector<double>& values, std::size_t row) const {
      return std::span(values).subspan(row * states(), states());
    }
  };

  void learn_model_one(WordPairs const& pairs, int iterations) {
    ModelOnePairs words(pairs.source_words);
    for (std::size_t pair = 0; pair < pairs.source.size(); ++pair) {
      words.add(pairs.source[pair], pairs.target[pair]);
    }
    ModelOne model(words, pairs.target_words, kept_translations);
    for (int iteration = 0; iteration < iterations; ++iteration) {
      model.iterate();
    }
    for (std::size_t source = 0; source < words.source_words(); ++source) {
      auto entries = model.entries(source);
      std::ranges::sort(entries, {}, &WordTranslation::target);
      for (WordTranslation const& entry : entries) {
        targets_.push_back(entry.target);
        probabilities_.push_back(static_cast<float>(entry.probability));
      }
      ends_.push_back(targets_.size());
    }
  }

  /// The place of a translation; `source` is from 0, the last one the empty word. `unseen` where there is none.
  std::size_t find(std::size_t source, std::int32_t target) const {
    auto const begin = targets_.begin() + static_cast<std::ptrdiff_t>(ends_[source]);
    auto const end = targets_.begin() + static_cast<std::ptrdiff_t>(ends_[source + 1]);
    auto const found = std::lower_bound(begin, end, target);
    return found == end || *found != target ? unseen : static_cast<std::size_t>(found - targets_.begin());
  }

  void set(Lattice& lattice, WordIds const& source, WordIds const& target) const {
    lattice.rows = target.size();
    lattice.columns = source.size();
    lattice.entries.clear();
    lattice.emission.clear();
    std::size_t const empty_word = ends_.size() - 2;
    auto const add = [&](std::int32_t word, std::int32_t other, double place) {
      std::size_t const entry = word < 0 ? unseen : find(static_cast<std::size_t>(word), other);
      double const translation = entry == unseen ? 0 : probabilities_[entry];
      lattice.entries.push_back(entry);
      lattice.emission.push_back(place * std::max(translation, unknown_probability));
    };
    auto const middle = [](std::size_t word, std::size_t words) {
      return (static_cast<double>(word) + 0.5) / static_cast<double>(words);
    };
    for (std::size_t row = 0; row < target.size(); ++row) {
      add(static_cast<std::int32_t>(empty_word), target[row], 1);
      for (std::size_t column = 0; column < source.size(); ++column) {
        double const distance = std::abs(middle(row, target.size()) - middle(column, source.size()));
        add(source[column], target[row], std::exp(-diagonal_tension * distance));
      }
    }
    lattice.steps.resize((lattice.columns + 1) * lattice.columns);
    for (std::size_t before = 0; before <= lattice.columns; ++before) {
      jumps_.from(static_cast<std::int32_t>(before) - 1,
                  std::span(lattice.steps).subspan(before * lattice.columns, lattice.columns));
    }
  }

  /// The sum over both states that remember source word `before`; 0: the start.
  static double memory(std::span<double const> row, std::size_t before, std::size_t columns) {
    return (before == 0 ? 0 : row[before - 1]) + row[columns + before];
  }

  static void compute_forward(Lattice& lattice) {
    std::size_t const columns = lattice.columns;
    lattice.forward.assign(lattice.rows * lattice.states(), 0);
    lattice.scale.assign(lattice.rows, 0);
    std::vector<double> start(lattice.states());
    start[columns] = 1;
    for (std::size_t row = 0; row < lattice.rows; ++row) {
      std::span<double const> const before =
          row == 0 ? std::span<double const>(start) : lattice.of(lattice.forward, row - 1);
      std::span<double> const now = lattice.of(lattice.forward, row);
      for (std::size_t word = 0; word <= columns; ++word) {
        double const mass = memory(before, word, columns);
        if (mass > 0) {
          std::span<double const> const step = lattice.step(word);
          for (std::size_t column = 0; column < columns; ++column) {
            now[column] += mass * step[column];
          }
          now[columns + word] = mass * empty_probability * lattice.empty(row);
        }
      }
      for (std::size_t column = 0; column < columns; ++column) {
        now[column] *= (1 - empty_probability) * lattice.word(row, column);
      }
      double const sum = std::accumulate(now.begin(), now.end(), 0.0);
      lattice.scale[row] = 1 / sum;
      std::ranges::for_each(now, [&](double& state) { state /= sum; });
    }
  }

  /// backward[row] = the scaled probability of the words after `row`, by state; computed from the last row on, adding
  /// what is expected of each row to `expected`.
  static void count(Lattice& lattice, Expectations& expected) {
    compute_forward(lattice);
    std::size_t const columns = lattice.columns;
    lattice.backward.assign(2 * lattice.states(), 1);
    lattice.jumps.assign(Jumps::count, 0);
    std::span<double> after(lattice.backward.data(), lattice.states());
    std::span<double> now(lattice.backward.data() + lattice.states(), lattice.states());
    std::vector<double> start(lattice.states());
    start[columns] = 1;
    for (std::size_t row = lattice.rows; row-- > 0;) {
      std::span<double const> const forward = lattice.of(lattice.forward, row);
      count_translations(lattice, row, forward, after, expected);
      std::span<double const> const before =
          row == 0 ? std::span<double const>(start) : lattice.of(lattice.forward, row - 1);
      for (std::size_t word = 0; word <= columns; ++word) {
        double const mass = memory(before, word, columns) * lattice.scale[row];
        std::span<double const> const step = lattice.step(word);
        double sum = 0;
        for (std::size_t column = 0; column < columns; ++column) {
          double const onward = step[column] * (1 - empty_probability) * lattice.word(row, column) * after[column];
          sum += onward;
          lattice.jumps[Jumps::index(static_cast<std::int32_t>(column) - static_cast<std::int32_t>(word) + 1)] +=
              mass * onward;
        }
        sum += empty_probability * lattice.empty(row) * after[columns + word];
        now[columns + word] = sum * lattice.scale[row];
        if (word > 0) {
          now[word - 1] = now[columns + word];
        }
      }
      std::swap(after, now);
    }
    for (std::size_t jump = 0; jump < Jumps::count; ++jump) {
      expected.jumps[jump].fetch_add(in_parts(lattice.jumps[jump]), std::memory_order_relaxed);
    }
  }

  static void count_translations(Lattice const& lattice, std::size_t row, std::span<double const> forward,
                                 std::span<double const> after, Expectations& expected) {
    auto const add = [&](std::size_t column, double count) {
      std::size_t const entry = lattice.entries[row * (lattice.columns + 1) + column];
      if (entry != unseen) {
        expected.translations[entry].fetch_add(in_parts(count), std::memory_order_relaxed);
      }
    };
    double empty = 0;
    for (std::size_t word = 0; word <= lattice.columns; ++word) {
      empty += forward[lattice.columns + word] * after[lattice.columns + word];
    }
    add(0, empty);
    for (std::size_t column = 0; column < lattice.columns; ++column) {
      add(column + 1, forward[column] * after[column]);
    }
  }

  void maximise(Expectations const& expected) {
    jumps_.maximise(expected.jumps);
    for (std::size_t source = 0; source + 1 < ends_.size(); ++source) {
      auto const count = [&](std::size_t entry) {
        return static_cast<double>(expected.translations[entry].load()) / whole_count + prior;
      };
      double sum = 0;
      for (std::size_t entry = ends_[source]; entry < ends_[source + 1]; ++entry) {
        sum += count(entry);
      }
      double const norm = sum > 0 ? boost::math::digamma(sum) : 0;
      for (std::size_t entry = ends_[source]; entry < ends_[source + 1]; ++entry) {
        probabilities_[entry] = static_cast<float>(std::exp(boost::math::digamma(count(entry)) - norm));
      }
    }
  }

  /// The likeliest states (Viterbi), which are those of `links`: a source word, or -1.
  static void follow_best(Lattice& lattice, std::vector<std::int32_t>& links) {
    std::size_t const columns = lattice.columns;
    std::vector<double> best(lattice.states(), 0);
    std::vector<double> now(lattice.states());
    std::vector<std::size_t> came(lattice.rows * lattice.states());  // the state before
    best[columns] = 1;
    for (std::size_t row = 0; row < lattice.rows; ++row) {
      std::ranges::fill(now, 0);
      std::span<std::size_t> const from(came.data() + row * lattice.states(), lattice.states());
      for (std::size_t word = 0; word <= columns; ++word) {
        bool const of_word = word > 0 && best[word - 1] >= best[columns + word];
        std::size_t const state = of_word ? word - 1 : columns + word;
        std::span<double const> const step = lattice.step(word);
        for (std::size_t column = 0; column < columns; ++column) {
          double const reached = best[state] * step[column] * (1 - empty_probability) * lattice.word(row, column);
          if (reached > now[column]) {
            now[column] = reached;
            from[column] = state;
          }
        }
        now[columns + word] = best[state] * empty_probability * lattice.empty(row);
        from[columns + word] = state;
      }
      double const largest = *std::ranges::max_element(now);
      std::ranges::transform(now, best.begin(), [&](double state) { return state / largest; });
    }
    auto state = static_cast<std::size_t>(std::ranges::max_element(best) - best.begin());
    for (std::size_t row = lattice.rows; row-- > 0;) {
      links[row] = state < columns ? static_cast<std::int32_t>(state) : -1;
      state = came[row * lattice.states() + state];
    }
  }

  std::vector<std::size_t> ends_{0};  ///< of each source word's translations; the last word is the empty one
  std::vector<std::int32_t> targets_;
  std::vector<float> probabilities_;
  Jumps jumps_;
};

WordAligner::WordAligner(WordPairs const& pairs, AlignmentTraining const& training)
    : model_(std::make_unique<Model>(pairs, training)) {}
WordAligner::~WordAligner() = default;
WordAligner::WordAligner(WordAligner&&) noexcept = default;

std::vector<std::int32_t> WordAligner::align(WordIds const& source, WordIds const& target) const {
  return model_->best(source, target);
}

namespace {

/// Calls take(word) for each word of a line, in its folded form.
template <class Take>
void for_each_folded(std::string_view line, Take const& take) {
  for (std::string_view const word : split_words(line)) {
    auto const bytes = static_cast<std::int32_t>(word.size());
    std::string folded;
    icu::UnicodeString::fromUTF8(icu::StringPiece(word.data(), bytes)).foldCase().toUTF8String(folded);
    take(folded);
  }
}

}  // namespace

WordIds WordNumbers::add(std::string_view line) {
  WordIds ids;
  for_each_folded(line,
                  [&](std::string const& word) { ids.push_back(numbers_.try_emplace(word, size()).first->second); });
  return ids;
}

WordIds WordNumbers::of(std::string_view line) const {
  WordIds ids;
  for_each_folded(line, [&](std::string const& word) {
    auto const found = numbers_.find(word);
    ids.push_back(found == numbers_.end() ? -1 : found->second);
  });
  return ids;
}

}  // namespace heddle
