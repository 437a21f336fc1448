#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/gemm.hpp>
#include <heddle/core/operations/registry.hpp>
#include <heddle/core/operations/softmax_cross_entropy.hpp>
#include <heddle/core/operations/tensor_ops.hpp>

#include "kernel_test_support.hpp"

namespace heddle {
namespace {

using Log = std::vector<std::string>;

/// A kernel that computes nothing and records that it was called.
class LoggingGemm final : public Gemm {
 public:
  LoggingGemm(std::string name, Log& log, std::int64_t max_rows = 1000)
      : name_(std::move(name)), log_(log), max_rows_(max_rows) {}
  bool supports(GemmProblem const& problem) const override { return problem.m <= max_rows_; }
  void multiply(Execution&, GemmCall const&) override { log_.push_back(name_); }

 private:
  std::string name_;
  Log& log_;
  std::int64_t max_rows_;
};

class LoggingAttention final : public Attention {
 public:
  explicit LoggingAttention(Log& log) : log_(log) {}
  bool supports(AttentionProblem const&) const override { return true; }
  void forward(Execution&, AttentionCall const&, Tensor const&, Tensor const&) override { log_.push_back("forward"); }
  void backward(Execution&, AttentionCall const&, Tensor const&, Tensor const&, Tensor const&,
                AttentionGradients const&) override {
    log_.push_back("backward");
  }

 private:
  Log& log_;
};

class LoggingCrossEntropy final : public SoftmaxCrossEntropy {
 public:
  explicit LoggingCrossEntropy(Log& log) : log_(log) {}
  bool supports(SoftmaxCrossEntropyProblem const&) const override { return true; }
  void statistics(Execution&, SoftmaxCrossEntropyCall const&, Tensor const&) override { log_.push_back("statistics"); }
  void combine(Execution&, Tensor const&, Tensor const&) override { log_.push_back("combine"); }
  void losses(Execution&, SoftmaxCrossEntropyCall const&, Tensor const&, Tensor const&) override {
    log_.push_back("losses");
  }
  void add_losses(Execution&, SoftmaxCrossEntropyCall const&, Tensor const&, Tensor const&) override {
    log_.push_back("sums");
  }
  void add_correct(Execution&, SoftmaxCrossEntropyCall const&, Tensor const&, Tensor const&) override {
    log_.push_back("correct");
  }
  void gradient(Execution&, SoftmaxCrossEntropyCall const&, Tensor const&, double) override {
    log_.push_back("gradient");
  }
  void losses_and_gradient(Execution&, SoftmaxCrossEntropyCall const&, double, Tensor const&) override {
    log_.push_back("losses and gradient");
  }

 private:
  Log& log_;
};

/// A call, after it was made.
struct Seen {
  std::string operation, direction, variant, extents, key, by_speed;
  DType dtype;
  double flops, bytes;
  std::function<void()> make;
};

/// Has each call made by all implementations, if requested, and then as the layer would.
class Recorder final : public KernelObserver {
 public:
  void observe(Execution&, KernelCall const& call) override {
    for (KernelCall::Candidate const& each : call.ways()) {
      names.push_back(each.name);
      if (make_all) {
        each.make();
      }
    }
    call.make();
    calls.push_back({std::string(call.operation), std::string(call.direction), std::string(call.variant), call.extents,
                     std::string(call.key), std::string(call.by_speed), call.dtype, call.cost.operations,
                     call.cost.bytes, call.make});
  }

  bool make_all = false;
  std::vector<Seen> calls;
  Log names;  ///< of the implementations that could make the calls
};

class KernelObserverTest : public KernelTest {
 protected:
  KernelRegistries registries_;
  Recorder recorder_;
  Log log_;
};

TEST_F(KernelObserverTest, ACallCanBeMadeByEveryImplementationThatSupportsIt) {
  registries_.of<Gemm>().add("slow", 0, std::make_shared<LoggingGemm>("slow", log_));
  registries_.of<Gemm>().add("few rows", 30, std::make_shared<LoggingGemm>("few rows", log_, 2));
  registries_.of<Gemm>().add("fast", 20, std::make_shared<LoggingGemm>("fast", log_, 8));
  registries_.of<Gemm>().add("none", 40, std::make_shared<LoggingGemm>("none", log_, 0));
  registries_.observe(recorder_);
  recorder_.make_all = true;
  GemmProblem const selected_by{.m = 2, .n = 3, .k = 5};
  auto const gemm = registries_.select<Gemm>(KernelChoices("slow"), selected_by);
  GemmCall call{.a = Tensor::allocate(DType::float32, {4, 5}),
                .b = Tensor::allocate(DType::float32, {5, 3}),
                .c = Tensor::allocate(DType::float32, {4, 3}),
                .bias = {},
                .accumulate = true};
  gemm->multiply(execution_, call);
  EXPECT_THAT(recorder_.names, ElementsAre("fast", "slow")) << "four rows are too many for one, any for another";
  EXPECT_THAT(log_, ElementsAre("fast", "slow", "slow")) << "at the end by what was selected";
  ASSERT_EQ(recorder_.calls.size(), 1U);
  Seen const& seen = recorder_.calls.front();
  EXPECT_EQ(seen.operation, "gemm");
  EXPECT_EQ(seen.direction, "input gradient");
  EXPECT_EQ(seen.variant, "added");
  EXPECT_EQ(seen.extents, "4 x 3 x 5");
  EXPECT_EQ(seen.key, timing_key(selected_by));
  EXPECT_EQ(seen.by_speed, "few rows");
  EXPECT_EQ(seen.dtype, DType::float32);
  EXPECT_EQ(seen.flops, 2 * 4 * 3 * 5);
  EXPECT_EQ(seen.bytes, 4 * (4 * 5 + 5 * 3 + 2 * 4 * 3));
  call = {};
  seen.make();
  EXPECT_EQ(log_.back(), "slow") << "what was kept can be made again";
  EXPECT_EQ(log_.size(), 4U);
}

/// A call with this many queries and keys in its sequences.
AttentionCall attention_call(std::vector<std::int32_t> const& queries, std::vector<std::int32_t> const& keys,
                             bool causal) {
  auto const rows = [](std::vector<std::int32_t> const& lengths) {
    std::int64_t sum = 0;
    for (std::int32_t const length : lengths) {
      sum += length;
    }
    return Tensor::allocate(DType::float32, {sum, 4});
  };
  AttentionCall call;
  call.q = rows(queries);
  call.k = rows(keys);
  call.v = rows(keys);
  call.queries = sequences_of(queries);
  call.keys = sequences_of(keys);
  call.heads = 2;
  call.mask = causal ? AttentionMask::causal() : AttentionMask::bidirectional();
  return call;
}

TEST_F(KernelObserverTest, AttentionCountsThePairsThatSeeEachOther) {
  registries_.of<Attention>().add("only", 0, std::make_shared<LoggingAttention>(log_));
  registries_.observe(recorder_);
  auto const attention = registries_.select<Attention>(KernelChoices("auto"), {});
  auto const pairs = [&](AttentionCall const& call) {
    Tensor const output = Tensor::allocate(DType::float32, call.q.shape());
    Tensor const log_sum_exp = Tensor::allocate(DType::float32, {call.q.dim(0), 2});
    attention->forward(execution_, call, output, log_sum_exp);
    attention->backward(execution_, call, output, log_sum_exp, output, {call.q, call.k, call.v});
    Seen const& forward = recorder_.calls[recorder_.calls.size() - 2];
    EXPECT_EQ(recorder_.calls.back().flops, 2.5 * forward.flops);
    return forward.flops / (4 * 4);
  };
  EXPECT_EQ(pairs(attention_call({3, 2}, {5, 0}, false)), 15);
  EXPECT_EQ(pairs(attention_call({3}, {3}, true)), 1 + 2 + 3);
  EXPECT_EQ(pairs(attention_call({2}, {5}, true)), 4 + 5);
  EXPECT_EQ(pairs(attention_call({5}, {2}, true)), 0 + 0 + 0 + 1 + 2);
  AttentionCall ring = attention_call({2, 2}, {3, 2}, true);
  ring.query_position = int_tensor({1, 6, 0, 9});
  ring.key_position = int_tensor({0, 1, 5, 4, 9});
  EXPECT_EQ(pairs(ring), (2 + 3) + (0 + 2));
  EXPECT_EQ(log_.size(), 10U);
}

TEST_F(KernelObserverTest, NoMethodIsLeftToADefault) {
  registries_.of<SoftmaxCrossEntropy>().add("only", 0, std::make_shared<LoggingCrossEntropy>(log_));
  registries_.observe(recorder_);
  auto const kernel = registries_.select<SoftmaxCrossEntropy>(KernelChoices("auto"), {});
  Tensor const tensor = Tensor::allocate(DType::float32, {2, 4});
  SoftmaxCrossEntropyCall const call{.logits = tensor, .targets = int_tensor({0, 1}), .global_vocabulary = 4};
  kernel->statistics(execution_, call, tensor);
  kernel->combine(execution_, tensor, tensor);
  kernel->losses(execution_, call, tensor, tensor);
  kernel->gradient(execution_, call, tensor, 1);
  kernel->losses_and_gradient(execution_, call, 1, tensor);
  EXPECT_THAT(log_, ElementsAre("statistics", "combine", "losses", "gradient", "losses and gradient"));
  Log directions;
  for (Seen const& seen : recorder_.calls) {
    directions.push_back(seen.direction);
  }
  EXPECT_EQ(directions, log_);
}

TEST_F(KernelObserverTest, ASumThatAKernelAddsToComesBack) {
  class Sum final : public TensorOps {
   public:
    bool supports(TensorOpsProblem const&) const override { return true; }
    void fill(Execution&, Tensor const&, double) override {}
    void scale(Execution&, Tensor const&, double) override {}
    void add(Execution&, Tensor const&, Tensor const&) override {}
    void mix(Execution&, Tensor const&, Tensor const&, Tensor const&) override {}
    void copy(Execution&, Tensor const&, Tensor const&) override {}
    void add_column_sums(Execution&, Tensor const&, Tensor const&) override {}
    void add_sum_of_squares(Execution&, Tensor const& tensor, Tensor const& sum) override {
      auto const size = static_cast<double>(tensor.size());
      copy_from_host(sum, &size);
    }
    void copy_rows(Execution&, Tensor const&, Tensor const&, Tensor const&, Tensor const&) override {}
    void gather_columns(Execution&, Tensor const&, Tensor const&, Tensor const&) override {}
    void add_gathered_columns(Execution&, Tensor const&, Tensor const&, Tensor const&) override {}
    void rotate(Execution&, Tensor const&, Rotation const&) override {}
    void cap(Execution&, Tensor const&, double) override {}
    void cap_backward(Execution&, Tensor const&, Tensor const&, double) override {}
  };
  registries_.of<TensorOps>().add("only", 0, std::make_shared<Sum>());
  registries_.observe(recorder_);
  Tensor const tensor = Tensor::allocate(DType::float32, {7});
  auto const operations = registries_.select<TensorOps>(KernelChoices("auto"), {});
  Tensor const sum = Tensor::allocate(DType::float64, {1});
  operations->add_sum_of_squares(execution_, tensor, sum);
  EXPECT_EQ(to_host<double>(sum).front(), 7);
  EXPECT_EQ(recorder_.calls.front().bytes, 28);
}

}  // namespace
}  // namespace heddle
