#include <algorithm>
#include <heddle/core/operations/embedding.hpp>
#include <numeric>

#include "kernel_fixture.hpp"

namespace heddle::testing_support {
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

std::vector<Variant> const variants{{false, 0.0F}, {true, 0.0F}, {false, 0.3F}, {true, 0.3F}};

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

  Embedding& reference() {
    return *registries_.of<Embedding>().select("reference", {DType::float64, DType::float64, 1});
  }

  void compare(Embedding& embedding, std::int64_t columns, Variant const& variant, DType dtype, char const* what) {
    EmbeddingCall const call = make_call(dtype, columns, variant);
    EmbeddingCall const oracle = make_call(DType::float64, columns, variant);
    ASSERT_TRUE(embedding.supports(call.problem(dtype)));
    expect_close(forward(embedding, call, dtype), forward(reference(), oracle, DType::float64), dtype, what);
    Tensor const grad_output = random_tensor(dtype, Shape{call.rows.tokens, columns}, 7);
    Gradients const actual = backward(embedding, call, grad_output);
    Gradients const expected = backward(reference(), oracle, converted(grad_output, DType::float64));
    expect_close(actual.table, expected.table, dtype, what);
    if (variant.positions) {
      expect_close(actual.positions, expected.positions, dtype, what);
    }
    Gradients const again = backward(embedding, call, grad_output);
    expect_same_bits(again.table, actual.table, what);
  }
};

TEST_F(EmbeddingTest, EveryImplementationAgreesWithTheReference) {
  for (auto const& entry : registries_.of<Embedding>().entries()) {
    for (std::int64_t const columns : {std::int64_t{1}, std::int64_t{67}, std::int64_t{200}}) {
      for (Variant const& variant : variants) {
        for (DType const dtype : {DType::float32, DType::float64, DType::bfloat16}) {
          compare(*entry.kernel, columns, variant, dtype, entry.name.c_str());
        }
      }
    }
  }
}

TEST_F(EmbeddingTest, BackwardOfTheReferenceByCentralDifferences) {
  for (Variant const& variant : variants) {
    EmbeddingCall const call = make_call(DType::float64, 5, variant);
    Tensor const upstream = random_tensor(DType::float64, Shape{call.rows.tokens, 5}, 7);
    auto const loss = [&] { return weighted_sum(upstream, forward(reference(), call, DType::float64)); };
    Gradients const gradients = backward(reference(), call, upstream);
    expect_gradient(loss, call.table, gradients.table, "table", already);
    if (variant.positions) {
      expect_gradient(loss, call.positions, gradients.positions, "positions", already);
    }
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
}  // namespace heddle::testing_support
