#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/attention.hpp>
#include <numeric>

#include "kernel_fixture.hpp"

namespace heddle::testing_support {
namespace {

/// Scores, masks, biases and shared heads of keys.
struct Case {
  char const* name;
  std::vector<std::int32_t> queries;
  std::vector<std::int32_t> keys;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_dim = 1;
  AttentionMask mask{};
  std::int64_t bias_reach = -1;  ///< below 0: no bias
  float dropout = 0;
  bool spread = false;  ///< positions are given and have gaps
  ScoreKind score = ScoreKind::dot_product;
  double soft_cap = 0;
};

void PrintTo(Case const& tested, std::ostream* out) {
  *out << tested.name;
}

std::int64_t total(std::vector<std::int32_t> const& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

/// Ascending in each sequence, with a gap after every third.
std::vector<std::int32_t> spread_positions(std::vector<std::int32_t> const& lengths, std::int32_t first) {
  std::vector<std::int32_t> positions;
  for (std::int32_t const length : lengths) {
    for (std::int32_t i = 0; i < length; ++i) {
      positions.push_back(first + i + 2 * (i / 3));
    }
  }
  return positions;
}

/// One case's inputs and outputs in one dtype. Gradients of parameters start at 0.5, because kernels add to them.
struct Problem {
  AttentionCall call;
  Tensor output, log_sum_exp, grad_output;
  AttentionGradients gradients;

  Problem(Case const& test, DType dtype) {
    std::int64_t const rows = total(test.queries);
    std::int64_t const key_rows = total(test.keys);
    std::int64_t const width = test.heads * test.head_dim;
    std::int64_t const key_width = test.kv_heads * test.head_dim;
    Tensor const keys_and_values = random_tensor(dtype, {key_rows, 2 * key_width}, 6);
    Tensor const grad = Tensor::allocate(dtype, {key_rows, 2 * key_width});
    call = {.q = random_tensor(dtype, {rows, width}, 5),
            .k = keys_and_values.columns(0, key_width),
            .v = keys_and_values.columns(key_width, key_width),
            .queries = sequences_of(test.queries),
            .keys = sequences_of(test.keys),
            .heads = test.heads,
            .kv_heads = test.kv_heads,
            .scale = 1.5 / std::sqrt(static_cast<double>(test.head_dim)),
            .score = test.score,
            .soft_cap = test.soft_cap,
            .mask = test.mask};
    gradients = {Tensor::allocate(dtype, {rows, width}), grad.columns(0, key_width),
                 grad.columns(key_width, key_width)};
    if (test.mask.is(MaskKind::prefix)) {
      std::vector<std::int32_t> prefixes(test.keys.size());
      std::iota(prefixes.begin(), prefixes.end(), 1);
      call.prefix_length = int_tensor(prefixes);
    }
    if (test.bias_reach >= 0) {
      Shape const shape{test.heads, 2 * test.bias_reach + 1};
      call.bias = random_tensor(statistics_dtype(dtype), shape, 8);
      gradients.bias = tensor_of(Values(static_cast<std::size_t>(shape.size()), 0.5), statistics_dtype(dtype), shape);
    }
    if (test.score == ScoreKind::additive) {
      Shape const shape{test.heads, test.head_dim};
      call.score_weight = random_tensor(statistics_dtype(dtype), shape, 9);
      gradients.score_weight =
          tensor_of(Values(static_cast<std::size_t>(shape.size()), 0.5), statistics_dtype(dtype), shape);
    }
    if (test.spread) {
      call.query_position = int_tensor(spread_positions(test.queries, 4));
      call.key_position = int_tensor(spread_positions(test.keys, 1));
    }
    if (test.dropout > 0) {
      call.dropout = dropout_of(test.dropout, rows);
    }
    output = Tensor::allocate(dtype, {rows, width});
    log_sum_exp = Tensor::allocate(statistics_dtype(dtype), {rows, test.heads});
    grad_output = random_tensor(dtype, {rows, width}, 7);
  }
};

/// The definition, by loops over a case's float64 values on the host.
class Naive {
 public:
  Naive(Case const& test, AttentionCall const& call)
      : test_(test),
        call_(call),
        q_(values(call.q)),
        k_(values(call.k)),
        v_(values(call.v)),
        bias_(values(call.bias)),
        score_weight_(values(call.score_weight)) {}

  Values output() const {
    Values result(static_cast<std::size_t>(total(test_.queries) * test_.heads * test_.head_dim));
    std::int64_t query_begin = 0;
    std::int64_t key_begin = 0;
    for (std::size_t sequence = 0; sequence < test_.queries.size(); ++sequence) {
      for (std::int64_t query = 0; query < test_.queries[sequence]; ++query) {
        for (std::int64_t head = 0; head < test_.heads; ++head) {
          add_row(result, {sequence, query_begin, key_begin, query, head});
        }
      }
      query_begin += test_.queries[sequence];
      key_begin += test_.keys[sequence];
    }
    return result;
  }

 private:
  struct Place {
    std::size_t sequence;
    std::int64_t query_begin, key_begin, query, head;
  };

  std::int64_t query_position(Place const& at) const {
    std::int64_t const shift = test_.keys[at.sequence] - test_.queries[at.sequence];
    return test_.spread ? 4 + at.query + 2 * (at.query / 3) : at.query + shift;
  }
  std::int64_t key_position(std::int64_t key) const { return test_.spread ? 1 + key + 2 * (key / 3) : key; }

  bool sees(Place const& at, std::int64_t key) const {
    std::int64_t const distance = key_position(key) - query_position(at);
    switch (test_.mask.kind) {
      case MaskKind::bidirectional:
        return true;
      case MaskKind::causal:
        return distance <= 0;
      case MaskKind::window:
        return (is_global(at, key) || (-distance <= test_.mask.left && distance <= test_.mask.right)) &&
               (distance <= 0 || test_.mask.right > 0);
      case MaskKind::blocks: {
        // Positions of queries may be below 0: 1000 blocks further on they are not.
        std::int64_t const block = test_.mask.block;
        std::int64_t const blocks =
            (key_position(key) + 1000 * block) / block - (query_position(at) + 1000 * block) / block;
        return (is_global(at, key) || (-blocks <= test_.mask.left && blocks <= test_.mask.right)) &&
               (distance <= 0 || test_.mask.right > 0);
      }
      case MaskKind::prefix:
        return distance <= 0 || key_position(key) < static_cast<std::int64_t>(at.sequence) + 1;
    }
    return false;
  }

  bool is_global(Place const& at, std::int64_t key) const {
    return key_position(key) < test_.mask.global_tokens || query_position(at) < test_.mask.global_tokens;
  }

  /// The part of column d of a query and a key in their score.
  double term(double query, double key, std::size_t weight) const {
    switch (test_.score) {
      case ScoreKind::dot_product:
        return query * key;
      case ScoreKind::additive:
        return score_weight_[weight] * std::tanh(query + key);
      case ScoreKind::linear:
        return (query > 0 ? query + 1 : std::exp(query)) * (key > 0 ? key + 1 : std::exp(key));
    }
    return 0;
  }

  double score(Place const& at, std::int64_t key) const {
    std::int64_t const key_head = at.head / (test_.heads / test_.kv_heads);
    double sum = 0;
    for (std::int64_t d = 0; d < test_.head_dim; ++d) {
      sum += term(q_[index(at.query_begin + at.query, test_.heads, at.head, d)],
                  k_[index(at.key_begin + key, test_.kv_heads, key_head, d)], index(0, test_.heads, at.head, d));
    }
    if (test_.score == ScoreKind::linear) {
      return std::log(sum);
    }
    double const cap = test_.soft_cap;
    double const scaled = cap > 0 ? cap * std::tanh(call_.scale * sum / cap) : call_.scale * sum;
    if (bias_.empty()) {
      return scaled;
    }
    std::int64_t const reach = test_.bias_reach;
    std::int64_t const distance = std::clamp(key_position(key) - query_position(at), -reach, reach);
    return scaled + bias_[static_cast<std::size_t>(at.head * (2 * reach + 1) + reach + distance)];
  }

  void add_row(Values& result, Place const& at) const {
    double sum = 0;
    for (std::int64_t key = 0; key < test_.keys[at.sequence]; ++key) {
      sum += sees(at, key) ? std::exp(score(at, key)) : 0;
    }
    std::int64_t const key_head = at.head / (test_.heads / test_.kv_heads);
    for (std::int64_t key = 0; key < test_.keys[at.sequence]; ++key) {
      for (std::int64_t d = 0; sees(at, key) && d < test_.head_dim; ++d) {
        result[index(at.query_begin + at.query, test_.heads, at.head, d)] +=
            std::exp(score(at, key)) / sum * v_[index(at.key_begin + key, test_.kv_heads, key_head, d)];
      }
    }
  }

  std::size_t index(std::int64_t row, std::int64_t heads, std::int64_t head, std::int64_t d) const {
    return static_cast<std::size_t>((row * heads + head) * test_.head_dim + d);
  }

  Case const& test_;
  AttentionCall const& call_;
  Values q_, k_, v_, bias_, score_weight_;
};

class AttentionVariants : public BuiltInKernelsTest, public testing::WithParamInterface<Case> {
 protected:
  void run(Attention& kernel, Problem const& problem) {
    ASSERT_TRUE(kernel.supports(problem.call.problem()));
    kernel.forward(execution_, problem.call, problem.output, problem.log_sum_exp);
    kernel.backward(execution_, problem.call, problem.output, problem.log_sum_exp, problem.grad_output,
                    problem.gradients);
  }
  Attention& reference() { return *registries_.of<Attention>().select("reference", {}); }
};

TEST_P(AttentionVariants, TheReferenceIsTheDefinition) {
  Case test = GetParam();
  test.dropout = 0;
  Problem const problem(test, DType::float64);
  run(reference(), problem);
  expect_values(problem.output, Naive(test, problem.call).output(), DType::float64, "output");
}

TEST_P(AttentionVariants, EveryImplementationAgreesWithTheReference) {
  Problem const expected(GetParam(), DType::float64);
  run(reference(), expected);
  for (auto const& entry : registries_.of<Attention>().entries()) {
    for (DType const dtype : {DType::float32, DType::float64, DType::bfloat16}) {
      Problem const actual(GetParam(), dtype);
      if (!entry.kernel->supports(actual.call.problem())) {
        continue;
      }
      SCOPED_TRACE(entry.name + " " + std::string(name_of(dtype)));
      run(*entry.kernel, actual);
      expect_close(actual.output, expected.output, dtype, "output");
      expect_close(actual.log_sum_exp, expected.log_sum_exp, dtype, "log_sum_exp");
      expect_close(actual.gradients.q, expected.gradients.q, dtype, "grad q");
      expect_close(actual.gradients.k, expected.gradients.k, dtype, "grad k");
      expect_close(actual.gradients.v, expected.gradients.v, dtype, "grad v");
      if (!expected.gradients.bias.empty()) {
        expect_close(actual.gradients.bias, expected.gradients.bias, dtype, "grad bias");
      }
      if (!expected.gradients.score_weight.empty()) {
        expect_close(actual.gradients.score_weight, expected.gradients.score_weight, dtype, "grad score_weight");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, AttentionVariants,
    testing::Values(
        Case{"window", {5, 1, 0, 67}, {5, 1, 0, 67}, 3, 3, 7, AttentionMask::window(4, 2)},
        Case{"causal_window_dropout", {70, 9}, {70, 9}, 2, 2, 5, AttentionMask::window(13, 0), -1, 0.3F},
        Case{"own_key_alone", {6, 3}, {6, 3}, 1, 1, 3, AttentionMask::window(0, 0)},
        Case{"window_of_more_keys", {3, 9}, {30, 11}, 2, 2, 4, AttentionMask::window(5, 1), -1, 0, true},
        Case{"long_window_dropout", {300, 64}, {300, 64}, 2, 2, 16, AttentionMask::window(40, 30), -1, 0.3F},
        Case{"long_causal_window", {200, 3}, {260, 131}, 4, 2, 33, AttentionMask::window(65, 0)},
        Case{"window_of_a_block", {129}, {129}, 1, 1, 8, AttentionMask::window(64, 64)},
        Case{"more_queries_than_keys", {140}, {70}, 2, 2, 8, AttentionMask::window(3, 0)},
        Case{"prefix", {9, 66, 1}, {9, 66, 1}, 2, 2, 6, AttentionMask::prefix(), -1, 0.2F},
        Case{"prefix_spread", {4, 9}, {7, 11}, 2, 1, 6, AttentionMask::prefix(), -1, 0, true},
        Case{"bias", {5, 1, 0, 40}, {7, 0, 3, 35}, 3, 3, 5, AttentionMask::bidirectional(), 4},
        Case{"bias_causal_dropout", {33, 6}, {33, 6}, 2, 2, 9, AttentionMask::causal(), 0, 0.4F},
        Case{"bias_window_spread", {9, 6}, {13, 6}, 4, 2, 3, AttentionMask::window(6, 2), 20, 0.2F, true},
        Case{"grouped", {5, 1, 0, 130}, {70, 2, 3, 131}, 6, 2, 7, AttentionMask::bidirectional()},
        Case{"grouped_causal_dropout", {130, 1, 9}, {130, 1, 9}, 4, 2, 16, AttentionMask::causal(), -1, 0.3F},
        Case{"one_key_head", {70, 3}, {70, 3}, 3, 1, 33, AttentionMask::causal()},
        Case{"grouped_window_spread", {70, 9}, {131, 11}, 4, 2, 8, AttentionMask::window(30, 5), -1, 0.2F, true},
        Case{"long_bias", {200, 3}, {200, 3}, 2, 2, 16, AttentionMask::bidirectional(), 30},
        Case{"long_bias_causal_grouped", {70, 65}, {150, 65}, 4, 2, 33, AttentionMask::causal(), 120, 0.2F},
        Case{"long_bias_spread", {150}, {140}, 1, 1, 8, AttentionMask::causal(), 77, 0, true},
        Case{"global", {9, 140}, {9, 140}, 2, 2, 8, AttentionMask::window(3, 2, 2), -1, 0.2F},
        Case{"global_causal", {300, 5}, {300, 5}, 2, 1, 8, AttentionMask::window(20, 0, 5)},
        Case{"global_causal_spread", {150, 5}, {170, 9}, 1, 1, 8, AttentionMask::window(20, 0, 8), -1, 0, true},
        Case{"blocks", {300, 9, 70}, {300, 9, 70}, 2, 2, 8, AttentionMask::blocks(16, 1, 1), -1, 0.2F},
        Case{"blocks_causal", {200}, {230}, 2, 2, 5, AttentionMask::blocks(32, 2, 0)},
        Case{"blocks_global", {330, 3}, {330, 3}, 1, 1, 16, AttentionMask::blocks(64, 1, 1, 3)},
        Case{"blocks_global_causal", {330, 3}, {330, 3}, 4, 2, 16, AttentionMask::blocks(10, 1, 0, 70)},
        Case{"blocks_global_spread", {90, 3}, {200, 9}, 1, 1, 4, AttentionMask::blocks(7, 2, 1, 9), -1, 0, true},
        Case{"blocks_more_queries", {140}, {70}, 1, 1, 8, AttentionMask::blocks(9, 1, 1, 4)},
        Case{"cap",
             {70, 1, 0},
             {90, 2, 3},
             2,
             2,
             9,
             AttentionMask::bidirectional(),
             -1,
             0,
             false,
             ScoreKind::dot_product,
             0.7},
        Case{"cap_bias_grouped_dropout",
             {9, 130},
             {9, 130},
             4,
             2,
             16,
             AttentionMask::causal(),
             5,
             0.3F,
             false,
             ScoreKind::dot_product,
             1.5},
        Case{"additive",
             {70, 1, 0, 5},
             {90, 2, 3, 0},
             2,
             2,
             9,
             AttentionMask::bidirectional(),
             -1,
             0,
             false,
             ScoreKind::additive},
        Case{"additive_causal_dropout",
             {131, 4},
             {131, 4},
             2,
             2,
             33,
             AttentionMask::causal(),
             -1,
             0.3F,
             false,
             ScoreKind::additive},
        Case{"additive_all",
             {70, 9},
             {80, 11},
             4,
             2,
             40,
             AttentionMask::window(20, 5, 2),
             6,
             0.2F,
             true,
             ScoreKind::additive,
             1.1},
        Case{"linear",
             {70, 1, 0, 5},
             {200, 2, 3, 0},
             2,
             2,
             9,
             AttentionMask::bidirectional(),
             -1,
             0,
             false,
             ScoreKind::linear},
        Case{"linear_causal_grouped",
             {200, 64, 3},
             {200, 64, 3},
             4,
             2,
             16,
             AttentionMask::causal(),
             -1,
             0,
             false,
             ScoreKind::linear},
        Case{"linear_causal_more_keys",
             {70, 3},
             {130, 9},
             1,
             1,
             33,
             AttentionMask::causal(),
             -1,
             0,
             false,
             ScoreKind::linear},
        Case{"linear_causal_fewer_keys",
             {140, 9},
             {70, 2},
             1,
             1,
             8,
             AttentionMask::causal(),
             -1,
             0,
             false,
             ScoreKind::linear},
        Case{"linear_causal_spread",
             {140, 9},
             {150, 12},
             2,
             1,
             8,
             AttentionMask::causal(),
             -1,
             0,
             true,
             ScoreKind::linear}),
    [](auto const& tested) { return std::string(tested.param.name); });

class AttentionVariantsReference : public AttentionVariants {};

TEST_P(AttentionVariantsReference, BackwardIsTheDerivativeOfForward) {
  Problem const problem(GetParam(), DType::float64);
  run(reference(), problem);
  Tensor const output = Tensor::allocate(DType::float64, problem.output.shape());
  auto const loss = [&] {
    reference().forward(execution_, problem.call, output, problem.log_sum_exp);
    return weighted_sum(problem.grad_output, output);
  };
  expect_gradient(loss, problem.call.q, problem.gradients.q, "q");
  expect_gradient(loss, problem.call.k, problem.gradients.k, "k");
  expect_gradient(loss, problem.call.v, problem.gradients.v, "v");
  if (!problem.call.bias.empty()) {
    expect_gradient(loss, problem.call.bias, problem.gradients.bias, "bias", 0.5);
  }
  if (!problem.call.score_weight.empty()) {
    expect_gradient(loss, problem.call.score_weight, problem.gradients.score_weight, "score_weight", 0.5);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, AttentionVariantsReference,
    testing::Values(
        Case{"window", {5, 1}, {5, 1}, 2, 2, 3, AttentionMask::window(1, 1)},
        Case{"prefix_dropout", {4, 3}, {4, 5}, 2, 1, 2, AttentionMask::prefix(), -1, 0.3F},
        Case{"bias_grouped_dropout", {3, 5}, {4, 5}, 4, 2, 3, AttentionMask::causal(), 2, 0.2F},
        Case{"bias_spread", {3, 4}, {5, 2}, 2, 2, 3, AttentionMask::bidirectional(), 3, 0, true},
        Case{"blocks_global", {9}, {9}, 2, 1, 2, AttentionMask::blocks(2, 1, 1, 1)},
        Case{"cap_bias", {3, 5}, {4, 5}, 4, 2, 3, AttentionMask::causal(), 2, 0.2F, false, ScoreKind::dot_product, 0.9},
        Case{"additive", {3, 5}, {4, 5}, 4, 2, 3, AttentionMask::causal(), -1, 0.2F, false, ScoreKind::additive},
        Case{"additive_cap_bias",
             {3, 5},
             {4, 5},
             2,
             2,
             3,
             AttentionMask::bidirectional(),
             2,
             0,
             false,
             ScoreKind::additive,
             0.8},
        Case{"linear", {3, 5}, {4, 5}, 2, 1, 3, AttentionMask::bidirectional(), -1, 0, false, ScoreKind::linear},
        Case{"linear_causal", {3, 5}, {4, 5}, 2, 2, 3, AttentionMask::causal(), -1, 0, false, ScoreKind::linear}),
    [](auto const& tested) { return std::string(tested.param.name); });

class AttentionState : public AttentionVariants {};

/// A state that has seen the keys in two calls gives the attention to all of them.
TEST_F(AttentionState, HoldsTheKeysOfEarlierCalls) {
  Case const test{"", {3, 1}, {70, 5}, 4, 2, 9, {}, -1, 0, false, ScoreKind::linear};
  for (auto const& entry : registries_.of<Attention>().entries()) {
    for (DType const dtype : {DType::float32, DType::float64, DType::bfloat16}) {
      Problem const problem(test, dtype);
      AttentionCall call = problem.call;
      call.state = tensor_of(Values(2 * 2 * 9 * 10), statistics_dtype(dtype), {2, 2 * 9 * 10});
      if (!entry.kernel->supports(call.problem())) {
        continue;
      }
      SCOPED_TRACE(entry.name + " " + std::string(name_of(dtype)));
      entry.kernel->forward(execution_, problem.call, problem.output, problem.log_sum_exp);
      Tensor const output = Tensor::allocate(dtype, problem.output.shape());
      Tensor const log_sum_exp = Tensor::allocate(statistics_dtype(dtype), problem.log_sum_exp.shape());
      call.keys = {int_tensor({0, 70}), int_tensor({66, 2}), 2, 66};
      entry.kernel->forward(execution_, call, output, log_sum_exp);
      call.keys = {int_tensor({66, 72}), int_tensor({4, 3}), 2, 4};
      entry.kernel->forward(execution_, call, output, log_sum_exp);
      expect_close(output, problem.output, dtype, "output");
      expect_close(log_sum_exp, problem.log_sum_exp, dtype, "log_sum_exp");
    }
  }
}

class AttentionSupport : public BuiltInKernelsTest {};

TEST_F(AttentionSupport, IsSaidOfMasksBiasesAndSharedKeys) {
  AttentionProblem const window{.heads = 4, .head_dim = 8, .mask = AttentionMask::window(8, 0)};
  AttentionProblem const biased{.heads = 4, .head_dim = 8, .bias = true};
  AttentionProblem const grouped{.heads = 4, .head_dim = 8, .kv_heads = 2};
  auto const& attention = registries_.of<Attention>();
  EXPECT_NE(attention.select("auto", window), attention.select("reference", {}));
  EXPECT_NE(attention.select("auto", biased), attention.select("reference", {}));
  EXPECT_NE(attention.select("auto", grouped), attention.select("reference", {}));
  AttentionProblem linear_window = window;
  linear_window.score = ScoreKind::linear;
  EXPECT_THROW(attention.select("auto", linear_window), ConfigError);
}

TEST_F(AttentionSupport, TimesOfOtherProblemsAreToldApart) {
  AttentionProblem const plain{.heads = 4, .head_dim = 8};
  AttentionProblem window = plain;
  window.mask = AttentionMask::window(8, 0);
  AttentionProblem wider = plain;
  wider.mask = AttentionMask::window(9, 0);
  AttentionProblem biased = plain;
  biased.bias = true;
  AttentionProblem grouped = plain;
  grouped.kv_heads = 2;
  std::vector<std::string> const keys = {timing_key(plain), timing_key(window), timing_key(wider), timing_key(biased),
                                         timing_key(grouped)};
  for (std::size_t i = 0; i < keys.size(); ++i) {
    for (std::size_t j = i + 1; j < keys.size(); ++j) {
      EXPECT_NE(keys[i], keys[j]);
    }
  }
  AttentionProblem own_keys = plain;
  own_keys.kv_heads = 4;
  EXPECT_EQ(timing_key(plain), timing_key(own_keys));
}

TEST_F(AttentionSupport, CallsThatDoNotFitAreRefused) {
  Case const test{"", {3}, {3}, 4, 2, 3};
  Problem problem(test, DType::float32);
  EXPECT_NO_THROW(problem.call.problem());
  AttentionCall call = problem.call;
  call.kv_heads = 3;
  EXPECT_THROW(call.problem(), Error);
  call = problem.call;
  call.kv_heads = 0;  // as many as heads, for which k is too narrow
  EXPECT_THROW(call.problem(), Error);
  call = problem.call;
  call.mask = AttentionMask::prefix();
  EXPECT_THROW(call.problem(), Error);
  call = problem.call;
  call.bias = random_tensor(DType::float32, {4, 6}, 1);
  EXPECT_THROW(call.problem(), Error);
}

}  // namespace
}  // namespace heddle::testing_support
