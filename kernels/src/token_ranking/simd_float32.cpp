#include "attention/tiles.hpp"
#include "ranked_row.hpp"
#include "support/factories.hpp"
#include "vector/lanes.hpp"

// Ranks tokens on the host's vector units. A first pass over the logits writes the largest of each block; as many
// tokens as are wanted are at least as likely as the last of that many best blocks, so that only few blocks are looked
// at again. The second pass sums the exponentials.

namespace heddle {
namespace {

using kernels::RankedRow;
using kernels::RankingView;
using lanes::Floats;

constexpr float log2_e = 1.44269504F;
constexpr std::int64_t block_vectors = 8;
constexpr std::int64_t block = block_vectors * lanes::width;
/// More tokens than this are selected with a heap.
constexpr std::int64_t max_inserted = 64;

std::int64_t blocks_of(std::int64_t columns) {
  return (columns + block - 1) / block;
}

float largest(float const* logits, std::int64_t count) {
  Floats highest = lanes::all(-INFINITY);
  std::int64_t c = 0;
  for (; c + lanes::width <= count; c += lanes::width) {
    highest = lanes::maximum(lanes::load(logits + c), highest);
  }
  float result = lanes::largest(highest);
  for (; c < count; ++c) {
    result = logits[c] > result ? logits[c] : result;
  }
  return result;
}

/// The sum of 2^((logit - highest) / ln 2) over a row. NaN if a logit is NaN.
double sum_of_exponentials(float const* logits, std::int64_t columns, float highest) {
  double total = 0;
  for (std::int64_t begin = 0; begin < columns; begin += block) {
    std::int64_t const count = columns - begin < block ? columns - begin : block;
    Floats sums[2] = {};
    std::int64_t c = 0;
    for (; c + 2 * lanes::width <= count; c += 2 * lanes::width) {
      for (int i = 0; i < 2; ++i) {
        sums[i] += lanes::exp2_of_negative((lanes::load(logits + begin + c + i * lanes::width) - highest) * log2_e);
      }
    }
    float rest = 0;
    for (; c < count; ++c) {
      rest += exp_of_negative(logits[begin + c] - highest);
    }
    total += static_cast<double>(lanes::sum(sums[0] + sums[1]) + rest);
  }
  return total;
}

/// Inserts the logits of a block that are above the last of those selected so far, and returns their number.
std::int64_t insert_block(RankedRow const& ranked, RankingView<float> const& view, float const* logits,
                          std::int64_t begin, std::int64_t size) {
  std::int64_t const end = begin + block < view.columns ? begin + block : view.columns;
  for (std::int64_t column = begin; column < end; ++column) {
    bool const whole = column % lanes::width == 0 && column + lanes::width <= end;
    if (whole && size == view.count &&
        !lanes::any_above(lanes::load(logits + column), static_cast<float>(ranked.logit(size - 1)))) {
      column += lanes::width - 1;
      continue;
    }
    float const logit = logits[column];
    if (size < view.count || static_cast<double>(logit) > ranked.logit(size - 1)) {
      ranked.insert(size, static_cast<double>(column), logit);
      size += size < view.count ? 1 : 0;
    }
  }
  return size;
}

struct SimdTokenRanking {
  static void rank_row(RankingView<float> const& view, std::int64_t row, float* maxima, float* best) {
    float const* const logits = view.logits[row];
    RankedRow const ranked(view, row);
    std::int64_t const blocks = blocks_of(view.columns);
    for (std::int64_t i = 0; i < blocks; ++i) {
      std::int64_t const rest = view.columns - i * block;
      maxima[i] = largest(logits + i * block, rest < block ? rest : block);
    }
    if (view.count > max_inserted) {
      ranked.select_with_heap(logits, view.columns);
    } else {
      // The blocks' maxima that come first by insertion; the last of them bounds what is looked for.
      std::int64_t found = 0;
      for (std::int64_t i = 0; i < blocks; ++i) {
        if (found == view.count && !(maxima[i] > best[found - 1])) {
          continue;
        }
        std::int64_t place = found < view.count ? found++ : found - 1;
        for (; place > 0 && best[place - 1] < maxima[i]; --place) {
          best[place] = best[place - 1];
        }
        best[place] = maxima[i];
      }
      float const bound = found == view.count ? best[found - 1] : -INFINITY;
      std::int64_t size = 0;
      for (std::int64_t i = 0; i < blocks; ++i) {
        if (maxima[i] >= bound) {
          size = insert_block(ranked, view, logits, i * block, size);
        }
      }
    }
    auto const highest = static_cast<float>(ranked.logit(0));
    double const sum = sum_of_exponentials(logits, view.columns, highest);
    ranked.finish(view, logits, static_cast<double>(highest) + std::log(sum));
  }

  static void rank(Execution& execution, TokenRankingCall const& call, Tensor const& table) {
    RankingView<float> const view(call, table);
    std::int64_t const blocks = blocks_of(view.columns);
    kernels::for_each_with_scratch<float>(execution, "simd token ranking", call.logits.dim(0),
                                          kernels::round_up(blocks, lanes::width) + max_inserted,
                                          [=](std::int64_t row, kernels::Scratch<float> scratch) {
                                            float* const maxima = scratch.tile(1, blocks).data;
                                            rank_row(view, row, maxima, scratch.tile(1, max_inserted).data);
                                          });
  }
};

class SimdTokenRankingKernel final : public TokenRanking {
 public:
  bool supports(TokenRankingProblem const& problem) const override { return problem.dtype == DType::float32; }
  void rank(Execution& execution, TokenRankingCall const& call, Tensor const& table) override {
    SimdTokenRanking::rank(execution, call, table);
  }
};

}  // namespace

void add_simd_float32_token_ranking_kernels(KernelRegistries& registries) {
  registries.of<TokenRanking>().add("simd", priorities::simd, std::make_shared<SimdTokenRankingKernel>());
}

}  // namespace heddle
