#include <algorithm>
#include <array>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/io/metrics/significance.hpp>
#include <numeric>

namespace heddle {
namespace {

__extension__ using Wide = unsigned __int128;

/// The generator of numpy.random.default_rng(seed): PCG64 (O'Neill 2014), seeded by numpy's SeedSequence.
class NumpyGenerator {
 public:
  explicit NumpyGenerator(std::uint32_t seed) {
    std::array<std::uint64_t, 4> const words = spread(seed);
    increment_ = (joined(words[2], words[3]) << 1) | 1;
    step();
    state_ += joined(words[0], words[1]);
    step();
  }

  /// A number below `end`, by Lemire's method (2019).
  std::uint32_t below(std::uint32_t end) {
    std::uint64_t product = std::uint64_t{next()} * end;
    if (static_cast<std::uint32_t>(product) < end) {
      std::uint32_t const threshold = (0U - end) % end;
      while (static_cast<std::uint32_t>(product) < threshold) {
        product = std::uint64_t{next()} * end;
      }
    }
    return static_cast<std::uint32_t>(product >> 32);
  }

 private:
  static Wide joined(std::uint64_t high, std::uint64_t low) { return (Wide{high} << 64) | low; }

  /// SeedSequence(seed).generate_state(4, uint64).
  static std::array<std::uint64_t, 4> spread(std::uint32_t seed) {
    auto const hashed = [](std::uint32_t value, std::uint32_t& factor, std::uint32_t next_factor) {
      value ^= factor;
      factor *= next_factor;
      value *= factor;
      return value ^ (value >> 16);
    };
    std::uint32_t factor = 0x43b0d7e5;
    constexpr std::uint32_t of_pool = 0x931e8875;
    std::array<std::uint32_t, 4> pool{seed};
    for (std::uint32_t& word : pool) {
      word = hashed(word, factor, of_pool);
    }
    for (std::size_t from = 0; from < pool.size(); ++from) {
      for (std::size_t to = 0; to < pool.size(); ++to) {
        if (from != to) {
          std::uint32_t const mixed = 0xca01f9ddU * pool[to] - 0x4973f715U * hashed(pool[from], factor, of_pool);
          pool[to] = mixed ^ (mixed >> 16);
        }
      }
    }
    factor = 0x8b51f9dd;
    std::array<std::uint64_t, 4> words{};
    for (std::size_t half = 0; half < 8; ++half) {
      words[half / 2] |= std::uint64_t{hashed(pool[half % 4], factor, 0x58f38ded)} << (32 * (half % 2));
    }
    return words;
  }

  void step() { state_ = state_ * joined(0x2360ed051fc65da4, 0x4385df649fccf645) + increment_; }

  std::uint32_t next() {
    if (half_is_left_) {
      half_is_left_ = false;
      return static_cast<std::uint32_t>(word_ >> 32);
    }
    step();
    auto const folded = static_cast<std::uint64_t>(state_ >> 64) ^ static_cast<std::uint64_t>(state_);
    word_ = std::rotr(folded, static_cast<int>(state_ >> 122));
    half_is_left_ = true;
    return static_cast<std::uint32_t>(word_);
  }

  Wide state_ = 0;
  Wide increment_ = 0;
  std::uint64_t word_ = 0;
  bool half_is_left_ = false;
};

/// Scores of samples of as many segments as the corpus has, drawn with replacement; the same draws for each corpus.
/// Sums are in float32, as sacreBLEU's are.
std::vector<std::vector<double>> sampled_scores(std::vector<CorpusScore const*> const& corpora,
                                                Resampling const& resampling) {
  auto const size = static_cast<std::uint32_t>(corpora.front()->segments());
  if (size == 0) {
    throw DataError("there are no sentences to resample: expected at least one");
  }
  NumpyGenerator generator(resampling.seed);
  std::vector<std::vector<double>> scores(corpora.size());
  std::vector<std::uint32_t> drawn(size);
  for (std::int64_t sample = 0; sample < resampling.samples; ++sample) {
    std::ranges::generate(drawn, [&] { return size == 1 ? 0 : generator.below(size); });
    for (std::size_t index = 0; index < corpora.size(); ++index) {
      std::vector<float> sums(corpora[index]->counts(0).size());
      for (std::uint32_t const segment : drawn) {
        std::ranges::transform(sums, corpora[index]->counts(segment), sums.begin(),
                               [](float sum, double count) { return sum + static_cast<float>(count); });
      }
      scores[index].push_back(corpora[index]->metric().score(std::vector<double>(sums.begin(), sums.end())));
    }
  }
  return scores;
}

double mean_of(std::vector<double> const& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
}

}  // namespace

Confidence confidence_of(CorpusScore const& corpus, Resampling const& resampling) {
  std::vector<double> scores = sampled_scores({&corpus}, resampling).front();
  std::ranges::sort(scores);
  std::size_t const left_out = scores.size() / 40;  // on either side
  return {mean_of(scores), (scores[scores.size() - left_out - 1] - scores[left_out]) / 2};
}

double p_value_of(CorpusScore const& baseline, CorpusScore const& system, Resampling const& resampling) {
  if (baseline.segments() != system.segments() || baseline.metric().name() != system.metric().name()) {
    throw Error("two systems are compared by the same metric of the same sentences");
  }
  auto const scores = sampled_scores({&baseline, &system}, resampling);
  std::vector<double> differences(scores.front().size());
  std::ranges::transform(scores[0], scores[1], differences.begin(),
                         [](double first, double second) { return std::abs(first - second); });
  // The mean of the differences estimates what chance adds to the true one.
  double const by_chance = mean_of(differences);
  if (by_chance == 0) {  // translations with the same counts; sacreBLEU says 1 / (samples + 1)
    return 1;
  }
  double const limit = std::abs(baseline.score() - system.score()) + by_chance;
  auto const larger = std::ranges::count_if(differences, [&](double difference) { return difference > limit; });
  return static_cast<double>(larger + 1) / static_cast<double>(differences.size() + 1);
}

}  // namespace heddle
