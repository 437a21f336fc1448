#include <algorithm>
#include <cmath>
#include <heddle/core/operations/token_ranking.hpp>
#include <limits>

#include "kernel_fixture.hpp"

namespace heddle {
namespace {

/// The tokens of each row, the likeliest first, which a trial compares within its tolerance only.
class TokenRankingTest : public BuiltInKernelsTest {
 protected:
  Tensor rank(TokenRanking& ranking, TokenRankingCall const& call, std::int64_t count) {
    Tensor const table = Tensor::allocate(DType::float64, Shape{call.logits.dim(0), RankingColumns{count}.width()});
    ranking.rank(execution_, call, table);
    return table;
  }
  Values tokens(TokenRanking& ranking, TokenRankingCall const& call, std::int64_t count) {
    return values(rank(ranking, call, count).columns(RankingColumns::tokens, count));
  }
};

Values expected_tokens(Tensor const& logits, std::int64_t count, std::int64_t first_token) {
  Values const all = values(logits);
  Values result;
  for (auto row = all.begin(); row != all.end(); row += logits.dim(1)) {
    std::vector<std::ptrdiff_t> order;
    for (std::ptrdiff_t column = 0; column < logits.dim(1); ++column) {
      order.push_back(column);
    }
    std::stable_sort(order.begin(), order.end(), [&](std::ptrdiff_t a, std::ptrdiff_t b) { return row[a] > row[b]; });
    for (std::ptrdiff_t index = 0; index < count; ++index) {
      bool const exists = index < logits.dim(1);
      result.push_back(exists ? static_cast<double>(order[static_cast<std::size_t>(index)] + first_token) : -1);
    }
  }
  return result;
}

TEST_F(TokenRankingTest, EveryImplementationGivesTheTokensInOrderForEachCount) {
  for (auto const& entry : registries_.of<TokenRanking>().entries()) {
    for (DType const dtype : {DType::float32, DType::float64, DType::bfloat16}) {
      for (std::int64_t const columns : {1, 8, 31, 64, 300, 5001}) {
        if (!entry.kernel->supports({dtype, columns})) {
          continue;
        }
        // In bfloat16 many of 5,001 logits are equal.
        TokenRankingCall const call{random_tensor(dtype, Shape{3, columns}, static_cast<std::uint64_t>(columns)), 7, 9};
        for (std::int64_t const count : {1, 2, 10, 64, 65, 400}) {
          EXPECT_EQ(tokens(*entry.kernel, call, count), expected_tokens(call.logits, count, 7))
              << entry.name << ", " << name_of(dtype) << ", " << count << " of " << columns;
        }
      }
    }
  }
}

TEST_F(TokenRankingTest, NaNAndInfinityAreSeenInTheSum) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
  for (auto const& entry : registries_.of<TokenRanking>().entries()) {
    for (double const wrong : {infinity, not_a_number}) {
      for (std::size_t const place : {std::size_t{0}, std::size_t{5}, std::size_t{69}}) {
        Values logits(70, 0.5);
        logits[place] = wrong;
        TokenRankingCall const call{tensor_of(logits, DType::float32, Shape{1, 70}), 0, 3};
        for (std::int64_t const count : {4, 70}) {
          double const sum = values(rank(*entry.kernel, call, count)).front();
          EXPECT_FALSE(std::isfinite(sum)) << entry.name << ": " << wrong << " at " << place;
        }
      }
    }
  }
}

TEST_F(TokenRankingTest, MinusInfinityIsAnImpossibleToken) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (auto const& entry : registries_.of<TokenRanking>().entries()) {
    TokenRankingCall const call{tensor_of({-infinity, 1, -infinity, 1}, DType::float32, Shape{1, 4}), 0, 3};
    Values const row = values(rank(*entry.kernel, call, 3));
    EXPECT_NEAR(row[0], 1 + std::log(2.0), 1e-6) << entry.name;
    EXPECT_EQ(Values(row.begin() + 2, row.begin() + 5), (Values{1, 3, 0})) << entry.name;
  }
}

}  // namespace
}  // namespace heddle
