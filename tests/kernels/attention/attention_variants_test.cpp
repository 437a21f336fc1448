#include <algorithm>

#include "attention_case.hpp"
#include "test_scores.hpp"

namespace heddle {
namespace {

using Variant = AttentionCase;
using Mask = AttentionMask;

/// The definition, by loops over a case's float64 values on the host.
class Naive {
 public:
  Naive(AttentionCase const& test, AttentionCall const& call)
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
      key_begin += test_.key_lengths()[sequence];
    }
    return result;
  }

 private:
  struct Place {
    std::size_t sequence;
    std::int64_t query_begin, key_begin, query, head;
  };

  std::int64_t query_position(Place const& at) const {
    std::int64_t const shift = test_.key_lengths()[at.sequence] - test_.queries[at.sequence];
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
               (distance <= 0 || !test_.mask.hides_later);
      case MaskKind::blocks: {
        // Positions of queries may be below 0: 1000 blocks further on they are not.
        std::int64_t const block = test_.mask.block;
        std::int64_t const blocks =
            (key_position(key) + 1000 * block) / block - (query_position(at) + 1000 * block) / block;
        return (is_global(at, key) || (-blocks <= test_.mask.left && blocks <= test_.mask.right)) &&
               (distance <= 0 || !test_.mask.hides_later);
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
      case ScoreKind::function:
        return query * key;
      case ScoreKind::additive:
        return score_weight_[weight] * std::tanh(query + key);
      case ScoreKind::linear:
        return (query > 0 ? query + 1 : std::exp(query)) * (key > 0 ? key + 1 : std::exp(key));
    }
    return 0;
  }

  /// The score, or its function.
  double score(Place const& at, std::int64_t key) const {
    double result = plain_score(at, key);
    if (test_.function != nullptr) {
      test_.function->apply(1, &result, &result, nullptr);
    }
    return result;
  }

  double plain_score(Place const& at, std::int64_t key) const {
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

  /// A key's weight, times the sum by which softmax divides it.
  double weight(Place const& at, std::int64_t key) const {
    return has_softmax() ? std::exp(score(at, key)) : score(at, key);
  }
  bool has_softmax() const { return test_.function == nullptr || test_.function->normalized(); }

  void add_row(Values& result, Place const& at) const {
    double sum = 0;
    for (std::int64_t key = 0; key < test_.key_lengths()[at.sequence]; ++key) {
      sum += sees(at, key) ? weight(at, key) : 0;
    }
    sum = has_softmax() ? sum : 1;
    std::int64_t const key_head = at.head / (test_.heads / test_.kv_heads);
    for (std::int64_t key = 0; key < test_.key_lengths()[at.sequence]; ++key) {
      for (std::int64_t d = 0; sees(at, key) && d < test_.head_dim; ++d) {
        result[index(at.query_begin + at.query, test_.heads, at.head, d)] +=
            weight(at, key) / sum * v_[index(at.key_begin + key, test_.kv_heads, key_head, d)];
      }
    }
  }

  std::size_t index(std::int64_t row, std::int64_t heads, std::int64_t head, std::int64_t d) const {
    return static_cast<std::size_t>((row * heads + head) * test_.head_dim + d);
  }

  AttentionCase const& test_;
  AttentionCall const& call_;
  Values q_, k_, v_, bias_, score_weight_;
};

class AttentionVariants : public AttentionCaseTest {
 protected:
  void SetUp() override {
    if (GetParam().function != nullptr && !scores_run) {
      GTEST_SKIP() << "kernels on a device call no function of the host";
    }
  }
};

TEST_P(AttentionVariants, TheReferenceIsTheDefinition) {
  AttentionCase test = GetParam();
  test.dropout = 0;
  AttentionTensors const problem(test, DType::float64);
  run(reference(), problem);
  expect_values(problem.output, Naive(test, problem.call).output(), DType::float64, "output");
}

TEST_P(AttentionVariants, EveryImplementationAgreesWithTheReference) {
  AttentionTensors const expected(GetParam(), DType::float64);
  run(reference(), expected);
  for (auto const& entry : registries_.of<Attention>().entries()) {
    for (DType const dtype : {DType::float32, DType::float64, DType::bfloat16}) {
      AttentionTensors const actual(GetParam(), dtype);
      bool const is_expected = entry.name == "reference" && dtype == DType::float64;
      if (is_expected || !entry.kernel->supports(actual.call.problem())) {
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

/// The mask without its hiding of later keys.
constexpr Mask both_ways(Mask mask) {
  mask.hides_later = false;
  return mask;
}

INSTANTIATE_TEST_SUITE_P(
    Cases, AttentionVariants,
    testing::Values(
        Variant{"self", {5, 1, 0, 67, 30}, {}, 3, 3, 7},
        Variant{"self_causal", {130, 1, 64, 0, 33}, {}, 2, 2, 16, Mask::causal()},
        Variant{"self_dropout", {66, 9, 17}, {}, 2, 2, 32, {}, -1, 0.3F},
        Variant{"self_causal_dropout", {1, 130, 5}, {}, 3, 3, 5, Mask::causal(), -1, 0.45F},
        Variant{"cross", {3, 67, 0, 5, 1}, {70, 2, 4, 0, 1}, 2, 2, 9},
        Variant{"cross_dropout", {3, 67, 20}, {130, 2, 21}, 2, 2, 33, {}, -1, 0.1F},
        Variant{"cross_causal_more_keys", {1, 65, 4}, {40, 130, 4}, 1, 1, 8, Mask::causal(), -1, 0.2F},
        Variant{"cross_causal_fewer_keys", {9, 70, 3}, {4, 2, 0}, 2, 2, 8, Mask::causal()},
        Variant{"wide_head", {11, 70}, {}, 1, 1, 130, Mask::causal()},
        Variant{"spread", {1, 70, 0, 9}, {90, 131, 3, 0}, 2, 2, 8, {}, -1, 0, true},
        Variant{"spread_causal", {1, 70, 0, 9}, {90, 131, 3, 4}, 2, 2, 8, Mask::causal(), -1, 0, true},
        Variant{"spread_causal_dropout", {131, 0, 9}, {}, 2, 2, 8, Mask::causal(), -1, 0.4F, true},
        Variant{"window", {5, 1, 0, 67}, {5, 1, 0, 67}, 3, 3, 7, Mask::window(4, 2)},
        Variant{"causal_window_dropout", {70, 9}, {70, 9}, 2, 2, 5, Mask::window(13, 0), -1, 0.3F},
        Variant{"own_key_alone", {6, 3}, {6, 3}, 1, 1, 3, Mask::window(0, 0)},
        Variant{"window_of_more_keys", {3, 9}, {30, 11}, 2, 2, 4, Mask::window(5, 1), -1, 0, true},
        Variant{"long_window_dropout", {300, 64}, {300, 64}, 2, 2, 16, Mask::window(40, 30), -1, 0.3F},
        Variant{"long_causal_window", {200, 3}, {260, 131}, 4, 2, 33, Mask::window(65, 0)},
        Variant{"window_of_a_block", {129}, {129}, 1, 1, 8, Mask::window(64, 64)},
        Variant{"more_queries_than_keys", {140}, {70}, 2, 2, 8, Mask::window(3, 0)},
        Variant{"prefix", {9, 66, 1}, {9, 66, 1}, 2, 2, 6, Mask::prefix(), -1, 0.2F},
        Variant{"prefix_spread", {4, 9}, {7, 11}, 2, 1, 6, Mask::prefix(), -1, 0, true},
        Variant{"bias", {5, 1, 0, 40}, {7, 0, 3, 35}, 3, 3, 5, Mask::bidirectional(), 4},
        Variant{"bias_causal_dropout", {33, 6}, {33, 6}, 2, 2, 9, Mask::causal(), 0, 0.4F},
        Variant{"bias_window_spread", {9, 6}, {13, 6}, 4, 2, 3, Mask::window(6, 2), 20, 0.2F, true},
        Variant{"grouped", {5, 1, 0, 130}, {70, 2, 3, 131}, 6, 2, 7},
        Variant{"grouped_causal_dropout", {130, 1, 9}, {130, 1, 9}, 4, 2, 16, Mask::causal(), -1, 0.3F},
        Variant{"one_key_head", {70, 3}, {70, 3}, 3, 1, 33, Mask::causal()},
        Variant{"grouped_window_spread", {70, 9}, {131, 11}, 4, 2, 8, Mask::window(30, 5), -1, 0.2F, true},
        Variant{"long_bias", {200, 3}, {200, 3}, 2, 2, 16, Mask::bidirectional(), 30},
        Variant{"long_bias_causal_grouped", {70, 65}, {150, 65}, 4, 2, 33, Mask::causal(), 120, 0.2F},
        Variant{"long_bias_spread", {150}, {140}, 1, 1, 8, Mask::causal(), 77, 0, true},
        Variant{"global", {9, 140}, {9, 140}, 2, 2, 8, Mask::window(3, 2, 2), -1, 0.2F},
        Variant{"global_causal", {300, 5}, {300, 5}, 2, 1, 8, Mask::window(20, 0, 5)},
        Variant{"global_causal_spread", {150, 5}, {170, 9}, 1, 1, 8, Mask::window(20, 0, 8), -1, 0, true},
        Variant{"blocks", {300, 9, 70}, {300, 9, 70}, 2, 2, 8, Mask::blocks(16, 1, 1), -1, 0.2F},
        Variant{"blocks_causal", {200}, {230}, 2, 2, 5, Mask::blocks(32, 2, 0)},
        Variant{"blocks_global", {330, 3}, {330, 3}, 1, 1, 16, Mask::blocks(64, 1, 1, 3)},
        Variant{"blocks_global_causal", {330, 3}, {330, 3}, 4, 2, 16, Mask::blocks(10, 1, 0, 70)},
        Variant{"blocks_global_spread", {90, 3}, {200, 9}, 1, 1, 4, Mask::blocks(7, 2, 1, 9), -1, 0, true},
        Variant{"own_blocks", {150, 9}, {150, 9}, 2, 2, 8, both_ways(Mask::blocks(16, 0, 0, 3))},
        Variant{"own_blocks_spread", {90}, {120}, 1, 1, 4, both_ways(Mask::blocks(7, 0, 0)), -1, 0, true},
        Variant{"large_cap", {70}, {80}, 1, 1, 8, Mask::causal()}.with(ScoreKind::dot_product, 1e9),
        Variant{"blocks_more_queries", {140}, {70}, 1, 1, 8, Mask::blocks(9, 1, 1, 4)},
        Variant{"cap", {70, 1, 0}, {90, 2, 3}, 2, 2, 9}.with(ScoreKind::dot_product, 0.7),
        Variant{"cap_bias_grouped_dropout", {9, 130}, {9, 130}, 4, 2, 16, Mask::causal(), 5, 0.3F}.with(
            ScoreKind::dot_product, 1.5),
        Variant{"additive", {70, 1, 0, 5}, {90, 2, 3, 0}, 2, 2, 9}.with(ScoreKind::additive),
        Variant{"additive_causal_dropout", {131, 4}, {131, 4}, 1, 1, 33, Mask::causal(), -1, 0.3F}.with(
            ScoreKind::additive),
        Variant{"additive_all", {70, 9}, {80, 11}, 4, 2, 20, Mask::window(20, 5, 2), 6, 0.2F, true}.with(
            ScoreKind::additive, 1.1),
        Variant{"linear", {70, 1, 0, 5}, {200, 2, 3, 0}, 2, 2, 9}.with(ScoreKind::linear),
        Variant{"linear_causal_grouped", {200, 64, 3}, {200, 64, 3}, 4, 2, 16, Mask::causal()}.with(ScoreKind::linear),
        Variant{"linear_causal_more_keys", {70, 3}, {130, 9}, 1, 1, 33, Mask::causal()}.with(ScoreKind::linear),
        Variant{"linear_causal_fewer_keys", {140, 9}, {70, 2}, 1, 1, 8, Mask::causal()}.with(ScoreKind::linear),
        Variant{"linear_causal_spread", {140, 9}, {150, 12}, 2, 1, 8, Mask::causal(), -1, 0, true}.with(
            ScoreKind::linear),
        Variant{"logistic", {70, 1, 0, 5}, {90, 2, 3, 0}, 2, 2, 9}.with(logistic_score()),
        Variant{"logistic_all", {131, 4}, {140, 4}, 4, 2, 16, Mask::causal(), 5, 0.3F}.with(logistic_score()),
        Variant{"logistic_spread", {150, 5}, {170, 9}, 1, 1, 8, Mask::window(20, 5, 8), -1, 0.2F, true}.with(
            logistic_score()),
        Variant{"cubic", {70, 1, 0, 5}, {90, 2, 3, 0}, 2, 2, 9}.with(cubic_score()),
        Variant{"cubic_all", {131, 4}, {140, 4}, 4, 2, 16, Mask::window(40, 9), 5, 0.3F, true}.with(cubic_score())),
    [](auto const& tested) { return std::string(tested.param.name); });

class AttentionVariantsReference : public AttentionVariants {};

TEST_P(AttentionVariantsReference, BackwardIsTheDerivativeOfForward) {
  AttentionTensors const problem(GetParam(), DType::float64);
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
        Variant{"self", {4, 1, 0}, {}, 2, 2, 3},
        Variant{"self_causal_dropout", {5, 2}, {}, 1, 1, 3, Mask::causal(), -1, 0.4F},
        Variant{"cross", {3, 2, 1}, {1, 9, 0}, 2, 2, 2, {}, -1, 0.2F},
        Variant{"spread", {3, 7, 1}, {8, 9, 0}, 2, 2, 2, Mask::causal(), -1, 0.2F, true},
        Variant{"window", {5, 1}, {5, 1}, 2, 2, 3, Mask::window(1, 1)},
        Variant{"prefix_dropout", {4, 3}, {4, 5}, 2, 1, 2, Mask::prefix(), -1, 0.3F},
        Variant{"bias_grouped_dropout", {3, 5}, {4, 5}, 4, 2, 3, Mask::causal(), 2, 0.2F},
        Variant{"bias_spread", {3, 4}, {5, 2}, 2, 2, 3, Mask::bidirectional(), 3, 0, true},
        Variant{"blocks_global", {9}, {9}, 2, 1, 2, Mask::blocks(2, 1, 1, 1)},
        Variant{"cap_bias", {3, 5}, {4, 5}, 4, 2, 3, Mask::causal(), 2, 0.2F}.with(ScoreKind::dot_product, 0.9),
        Variant{"additive", {3, 5}, {4, 5}, 4, 2, 3, Mask::causal(), -1, 0.2F}.with(ScoreKind::additive),
        Variant{"additive_cap_bias", {3, 5}, {4, 5}, 2, 2, 3, Mask::bidirectional(), 2}.with(ScoreKind::additive, 0.8),
        Variant{"linear", {3, 5}, {4, 5}, 2, 1, 3}.with(ScoreKind::linear),
        Variant{"linear_causal", {3, 5}, {4, 5}, 2, 2, 3, Mask::causal()}.with(ScoreKind::linear),
        Variant{"logistic", {3, 5}, {4, 5}, 4, 2, 3, Mask::causal(), 2, 0.2F}.with(logistic_score()),
        Variant{"cubic", {3, 5}, {4, 5}, 4, 2, 3, Mask::window(2, 1), 2, 0.2F}.with(cubic_score())),
    [](auto const& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace heddle
