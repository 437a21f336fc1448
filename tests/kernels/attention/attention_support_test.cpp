#include <heddle/core/base/error.hpp>

#include "attention_case.hpp"
#include "test_scores.hpp"

namespace heddle {
namespace {

class AttentionState : public BuiltInKernelsTest {};

/// A state that has seen the keys in two calls gives the attention to all of them.
TEST_F(AttentionState, HoldsTheKeysOfEarlierCalls) {
  AttentionCase const test{"", {3, 1}, {70, 5}, 4, 2, 9, {}, -1, 0, false, ScoreKind::linear};
  for (auto const& entry : registries_.of<Attention>().entries()) {
    for (DType const dtype : {DType::float32, DType::float64, DType::bfloat16}) {
      AttentionTensors const problem(test, dtype);
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

/// A function is computed by the kernels that call it, and by no other.
TEST_F(AttentionSupport, IsSaidOfFunctionsOfScores) {
  auto const& attention = registries_.of<Attention>();
  AttentionProblem problem{
      .heads = 4, .head_dim = 8, .score = ScoreKind::function, .function = logistic_score(), .dropout_rate = 0.1F};
  if (!scores_run) {
    EXPECT_THROW(attention.select("auto", problem), ConfigError);
    return;
  }
  for (auto const& entry : attention.entries()) {
    bool const calls = entry.name == "reference" || entry.name == "kokkos";
    bool const compiled = entry.kernel->supports({.heads = 4, .head_dim = 8});
    EXPECT_EQ(entry.kernel->supports(problem), calls && compiled) << entry.name;
  }
  EXPECT_NE(timing_key(problem).find(" logistic "), std::string::npos) << timing_key(problem);
  problem.soft_cap = true;
  EXPECT_THROW(attention.select("auto", problem), ConfigError);
  problem.soft_cap = false;
  problem.function = nullptr;
  EXPECT_THROW(attention.select("auto", problem), ConfigError);
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
  AttentionCase const test{"", {3}, {3}, 4, 2, 3};
  AttentionTensors problem(test, DType::float32);
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
}  // namespace heddle
