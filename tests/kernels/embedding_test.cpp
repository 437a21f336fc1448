#include <algorithm>
#include <heddle/core/operations/embedding.hpp>
#include <numeric>

#include "kernel_fixture.hpp"

namespace heddle {
namespace {

constexpr std::int64_t vocabulary = 13;
constexpr std::int64_t first_token = 4;
constexpr std::int64_t max_length = 9;
/// Values of gradients before a backward adds to them.
constexpr double already = 0.5;

struct Variant {
  bool positions;
  float rate;
};

struct Gradients {
  Tensor table, positions;
};

class EmbeddingTest : public BuiltInKernelsTest {
 protected:
  /// Ids from 0 to 19, so some are outside [4, 17); repeated ones; sequences with and without tokens.
  /// For outputs of `dtype`.
  static EmbeddingCall make_call(DType dtype, std::int64_t columns, Variant const& variant) {
    EmbeddingCall call;
    call.table = random_tensor(statistics_dtype(dtype), Shape{vocabulary, columns}, 1);
    call.positions =
        variant.positions ? random_tensor(statistics_dtype(dtype), Shape{max_length, columns}, 2) : Tensor();
    call.rows = token_rows({5, 0, 9, 1, 7});
    std::vector<std::int32_t> ids;
    for (std::int64_t row = 0; row < call.rows.tokens; ++row) {
      ids.push_back(static_cast<std::int32_t>(row % 3 == 0 ? 5 : row * row % 20));
    }
    std::vector<std::int32_t> order(ids.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t left, std::int32_t right) {
      return ids[static_cast<std::size_t>(left)] < ids[static_cast<std::size_t>(right)];
    });
    call.tokens = {int_tensor(ids), int_tensor(order)};
    call.first_token = first_token;
    call.scale = 1.75;
    set_dropout(call, variant.rate);
    return call;
  }

  static void set_dropout(EmbeddingCall& call, float rate) {
    if (rate > 0) {
      call.dropout = dropout_of(rate, 0);
      call.dropout.sample = call.rows.sample;
      call.dropout.position = call.rows.position;
    }
  }

  Tensor forward(Embedding& embedding, EmbeddingCall const& call, DType dtype) {
    Tensor const output = Tensor::allocate(dtype, Shape{call.rows.tokens, call.table.dim(1)});
    embedding.forward(execution_, call, output);
    return output;
  }

  Gradients backward(Embedding& embedding, EmbeddingCall const& call, Tensor const& grad_output) {
    auto const prepared = [](Tensor const& parameter) {
      return parameter.empty() ? Tensor()
                               : tensor_of(Values(static_cast<std::size_t>(parameter.size()), already),
                                           parameter.dtype(), parameter.shape());
    };
    Gradients const gradients{prepared(call.table), prepared(call.positions)};
    embedding.backward(execution_, call, grad_output, gradients.table, gradients.positions);
    EXPECT_EQ(scratch_.mark(), 0U);
    return gradients;
  }
};

TEST_F(EmbeddingTest, GradientsAreTheSameInEveryRun) {
  for (auto const& entry : registries_.of<Embedding>().entries()) {
    EmbeddingCall const call = make_call(DType::float32, 67, {true, 0.3F});
    Tensor const grad_output = random_tensor(DType::float32, Shape{call.rows.tokens, 67}, 7);
    Gradients const once = backward(*entry.kernel, call, grad_output);
    Gradients const again = backward(*entry.kernel, call, grad_output);
    expect_same_bits(again.table, once.table, entry.name.c_str());
    expect_same_bits(again.positions, once.positions, entry.name.c_str());
  }
}

// Teams cut the sorted rows into pieces: a token may fill several, begin or end inside one, and be another rank's.
TEST_F(EmbeddingTest, FrequentTokensHaveTheSumOfAllTheirRows) {
  constexpr std::int64_t columns = 19;
  EmbeddingCall call = make_call(DType::float32, columns, {false, 0.0F});
  std::vector<std::int32_t> ids;
  for (auto const& [id, count] : std::vector<std::pair<std::int32_t, int>>{
           {2, 40}, {4, 9}, {5, 100}, {6, 43}, {7, 32}, {8, 1}, {9, 31}, {10, 64}, {12, 2}, {16, 35}, {18, 70}}) {
    ids.insert(ids.end(), static_cast<std::size_t>(count), id);
  }
  auto const rows = static_cast<std::int32_t>(ids.size());
  call.rows = token_rows({rows});
  std::vector<std::int32_t> order(ids.size());
  std::iota(order.begin(), order.end(), 0);
  call.tokens = {int_tensor(ids), int_tensor(order)};
  Tensor const grad_output = random_tensor(DType::float32, Shape{rows, columns}, 7);
  Values expected(vocabulary * columns, already);
  Values const gradient = values(grad_output);
  for (std::size_t row = 0; row < ids.size(); ++row) {
    std::int64_t const token = ids[row] - first_token;
    for (std::size_t j = 0; token >= 0 && token < vocabulary && j < columns; ++j) {
      expected[static_cast<std::size_t>(token) * columns + j] += 1.75 * gradient[row * columns + j];
    }
  }
  for (auto const& entry : registries_.of<Embedding>().entries()) {
    expect_values(backward(*entry.kernel, call, grad_output).table, expected, DType::float32, entry.name);
  }
}

TEST_F(EmbeddingTest, TokensOfOtherRanksGiveZeroRows) {
  for (auto const& entry : registries_.of<Embedding>().entries()) {
    EmbeddingCall const call = make_call(DType::float32, 6, {false, 0.0F});
    std::vector<std::int32_t> const ids = to_host<std::int32_t>(call.tokens.id);
    Values const table = values(call.table);
    Values expected;
    int zero_rows = 0;
    for (std::int32_t const id : ids) {
      std::int64_t const local = id - first_token;
      bool const here = local >= 0 && local < vocabulary;
      zero_rows += here ? 0 : 1;
      for (std::int64_t j = 0; j < 6; ++j) {
        expected.push_back(here ? 1.75 * table[static_cast<std::size_t>(local * 6 + j)] : 0.0);
      }
    }
    EXPECT_GT(zero_rows, 0);
    expect_values(forward(*entry.kernel, call, DType::float32), expected, DType::float32, entry.name);
  }
}

TEST_F(EmbeddingTest, NoTokens) {
  for (auto const& entry : registries_.of<Embedding>().entries()) {
    EmbeddingCall call = make_call(DType::float32, 6, {true, 0.0F});
    call.rows = token_rows({});
    call.tokens = {int_tensor({}), int_tensor({})};
    set_dropout(call, 0.3F);
    EXPECT_EQ(forward(*entry.kernel, call, DType::float32).size(), 0);
    Gradients const gradients = backward(*entry.kernel, call, Tensor::allocate(DType::float32, Shape{0, 6}));
    expect_values(gradients.table, Values(vocabulary * 6, already), DType::float32, entry.name);
  }
}

}  // namespace
}  // namespace heddle
