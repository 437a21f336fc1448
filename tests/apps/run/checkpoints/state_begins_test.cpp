#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/state/model_stream.hpp>
#include <heddle/io/checkpoint/store.hpp>

#include "golden_file.hpp"
#include "golden_model.hpp"
#include "run/checkpoints/checkpoint.hpp"
#include "test.hpp"

// Optimizer state that starts at zero in the middle of a run, and what later checkpoints say of it.

namespace heddle {
namespace {

using StateBegins = DistributedOptimizer::StateBegins;

/// The optimizer's half of a run with the parameters a [3, 5] and b [7], whose gradients are always the same.
class SmallRun {
 public:
  explicit SmallRun(std::string const& rule = "adam", bool b_is_frozen = false)
      : config_(config_of(rule, b_is_frozen)),
        model_(WholeModel::gather(parallel_, declared())),
        optimizer_(config_, bench_.kernels(), parallel_, bench_.parameters(), bench_.execution(), {}) {
    for (Parameter const& parameter : bench_.parameters().all()) {
      std::vector<float> gradient;
      for (std::int64_t index = 0; index < parameter.gradient.size(); ++index) {
        gradient.push_back(static_cast<float>(golden_value("gradient " + parameter.spec.name, index)));
      }
      if (!gradient.empty()) {
        copy_from_host(parameter.gradient, gradient.data());
      }
    }
  }

  void train(std::int64_t steps_done, std::int64_t steps) {
    for (std::int64_t step = steps_done + 1; step <= steps; ++step) {
      optimizer_.update(0.01, step);
    }
  }
  Checkpoint save(std::filesystem::path const& directory, std::int64_t step) {
    ModelStream tensors(parallel_, model_, bench_.parameters(), optimizer_);
    return save(directory, step, tensors, optimizer_.state_begins());
  }
  static Checkpoint save(std::filesystem::path const& directory, std::int64_t step, TensorStream& tensors,
                         StateBegins const& begins) {
    CheckpointContents contents;
    contents.state.step = step;
    contents.state_begins = begins;
    CheckpointStore store(directory, 9);
    return Checkpoint::open(store.commit(Communicator::self(), contents, tensors, 1).directory);
  }
  StateBegins const& load(Checkpoint const& checkpoint) {
    load_training_state(checkpoint, model_, bench_.parameters(), optimizer_);
    return optimizer_.state_begins();
  }
  std::vector<float> values(std::string const& name) { return to_host<float>(bench_.parameters().find(name)->value); }
  std::vector<float> state(std::string const& key) { return to_host<float>(optimizer_.local().state().at(key)); }

 private:
  static OptimizerConfig config_of(std::string const& rule, bool b_is_frozen) {
    OptimizerConfig config;
    config.name = rule;
    if (b_is_frozen) {
      config.groups = {{"still", {"b"}, {.frozen = true}}};
    }
    return config;
  }
  ParameterSet& declared() {
    ParameterSet& parameters = bench_.parameters();
    parameters.declare({"a", {{3, 5}}, Initializer::zeros()});
    parameters.declare({"b", {{7}}, Initializer::zeros()});
    assign_rules(config_, bench_.registries().kernels, parameters);
    bench_.allocate();
    return parameters;
  }

  TestBench bench_{ModelConfig(), DType::float32, KernelChoices()};
  ParallelState parallel_;
  OptimizerConfig config_;
  WholeModel model_;
  DistributedOptimizer optimizer_;
};

/// Tensors of ones.
class Ones final : public TensorStream {
 public:
  explicit Ones(std::vector<StreamedTensor> tensors) : tensors_(std::move(tensors)) {}
  std::vector<StreamedTensor> const& tensors() const override { return tensors_; }
  void send(TensorChunk const&, int) override { ADD_FAILURE() << "there is no other rank"; }
  void receive(TensorChunk const&, std::span<float> elements) override { std::ranges::fill(elements, 1.0F); }
  void wait() override {}

 private:
  std::vector<StreamedTensor> tensors_;
};

class StateBeginsTest : public testing::Test {
 protected:
  std::filesystem::path directory(std::string const& name) const { return directory_.path() / name; }

  TemporaryDirectory directory_;
};

TEST_F(StateBeginsTest, AThawedParameterIsUpdatedAsInARunThatBegins) {
  SmallRun frozen("adam", true);
  frozen.train(0, 3);
  Checkpoint const before = frozen.save(directory("run"), 3);
  EXPECT_EQ(before.contents().state_begins, StateBegins());
  SmallRun thawed;
  EXPECT_EQ(thawed.load(before), (StateBegins{{"b", 3}}));
  thawed.train(3, 5);
  SmallRun all;  // its b is the thawed one, three steps earlier
  all.train(0, 2);
  EXPECT_EQ(thawed.values("b"), all.values("b"));
  all.train(2, 5);
  EXPECT_EQ(thawed.values("a"), all.values("a"));
  Checkpoint const after = thawed.save(directory("run"), 5);
  EXPECT_EQ(after.contents().state_begins, (StateBegins{{"b", 3}}));
  SmallRun resumed;
  EXPECT_EQ(resumed.load(after), (StateBegins{{"b", 3}}));
  resumed.train(5, 8);
  EXPECT_EQ(resumed.values("b"), all.values("b"));
  all.train(5, 8);
  EXPECT_EQ(resumed.values("a"), all.values("a"));
  EXPECT_NE(resumed.values("b"), all.values("b"));
  // The way back to a checkpoint in which nothing had begun late.
  SmallRun early;
  early.train(0, 1);
  Checkpoint const usual = early.save(directory("other"), 1);
  EXPECT_EQ(resumed.load(usual), StateBegins());
  resumed.train(1, 8);
  EXPECT_EQ(resumed.values("b"), all.values("b"));
}

TEST_F(StateBeginsTest, AnotherRuleBeginsItsState) {
  SmallRun adam;
  adam.train(0, 2);
  Checkpoint const second = adam.save(directory("run"), 2);
  SmallRun lion("lion");
  EXPECT_EQ(lion.load(second), (StateBegins{{"a", 2}, {"b", 2}}));
  lion.train(2, 4);
  Checkpoint const fourth = lion.save(directory("run"), 4);
  EXPECT_EQ(SmallRun().load(fourth), (StateBegins{{"a", 4}, {"b", 4}}));
  EXPECT_EQ(SmallRun("lion", true).load(fourth), (StateBegins{{"a", 2}})) << "a frozen parameter has no state";
  EXPECT_EQ(SmallRun("adamw").load(second), StateBegins()) << "it keeps Adam's state";
}

TEST_F(StateBeginsTest, StateOfWhichAPartIsMissingStartsAtZero) {
  Ones tensors({{"a", {3, 5}, {value_key, "adam.first_moment"}}, {"b", {7}}});
  Checkpoint const half = SmallRun::save(directory("run"), 6, tensors, {});
  SmallRun run;
  run.train(0, 1);
  EXPECT_EQ(run.load(half), (StateBegins{{"a", 6}, {"b", 6}}));
  EXPECT_THAT(run.state("adam.first_moment"), Each(0.0F));
  EXPECT_THAT(run.state("adam.second_moment"), Each(0.0F));
  EXPECT_THAT(run.values("a"), Each(1.0F));
}

TEST_F(StateBeginsTest, StateOfAnotherShapeIsRefused) {
  Ones tensors({{"a", {3, 5}, {value_key, "lion.momentum"}, {{"lion.momentum", {3}}}}, {"b", {7}}});
  Checkpoint const other = SmallRun::save(directory("run"), 1, tensors, {});
  expect_data_error([&] { SmallRun("lion").load(other); },
                    "lion.momentum of parameter a has the shape [3]; the update rule lion gives it [3, 5]");
}

}  // namespace
}  // namespace heddle
