#include <heddle/core/config/config.hpp>
#include <heddle/core/layers/registries.hpp>
#include <heddle/core/operations/gemm.hpp>
#include <heddle/core/operations/registry.hpp>

#include "golden_model.hpp"
#include "kernel_test_support.hpp"
#include "test_ids.hpp"

// An operation that Heddle does not know, such as a plug-in adds: an interface, two implementations, and a layer that
// calls it.

namespace heddle {
namespace {

struct NegationProblem {
  DType dtype = DType::float32;
};
std::string describe(NegationProblem const& problem) {
  return "negation of " + std::string(name_of(problem.dtype));
}
std::string timing_key(NegationProblem const& problem) {
  return std::string(name_of(problem.dtype));
}

class Negation : public Kernel {
 public:
  static constexpr char const* operation = "negation";
  using Problem = NegationProblem;
  virtual bool supports(NegationProblem const& problem) const = 0;
  static std::shared_ptr<Negation> observed(ObservedSelection<Negation> selection);
  virtual void negate(Execution& execution, Tensor const& tensor) = 0;
};

class ObservedNegation final : public ObservedKernel<Negation> {
 public:
  using ObservedKernel::ObservedKernel;

  void negate(Execution& execution, Tensor const& tensor) override {
    pass<&Negation::negate>(execution, traffic("negate", {tensor, tensor}), tensor);
  }
};

std::shared_ptr<Negation> Negation::observed(ObservedSelection<Negation> selection) {
  return std::make_shared<ObservedNegation>(std::move(selection));
}

class CountingNegation final : public Negation {
 public:
  bool supports(NegationProblem const& problem) const override { return problem.dtype == DType::float64; }
  void negate(Execution&, Tensor const& tensor) override {
    std::vector<double> elements = to_host<double>(tensor);
    for (double& element : elements) {
      element = -element;
    }
    copy_from_host(tensor, elements.data());
    ++calls;
  }
  std::size_t kept_bytes() const override { return 24; }

  int calls = 0;
};

/// The branch -x.
class NegationLayer final : public Layer {
 public:
  explicit NegationLayer(LayerSpec const& spec) : negation_(spec.kernels.select<Negation>({spec.dtype})) {}

  HiddenStates forward(LayerContext& context, HiddenStates const& input, Saved&) const override {
    return {negated(context, input.hidden), input.encoder_output};
  }
  HiddenStates backward(LayerContext& context, HiddenStates const& grad_output, Saved const&) const override {
    return {negated(context, grad_output.hidden), grad_output.encoder_output};
  }

 private:
  Tensor negated(LayerContext& context, Tensor const& tensor) const {
    Tensor const result = converted(tensor, tensor.dtype());
    negation_->negate(context.execution, result);
    return result;
  }

  std::shared_ptr<Negation> negation_;
};

class NewOperationTest : public testing::Test {
 protected:
  NewOperationTest() {
    registries_.kernels.set_origin("negation.so");
    registries_.kernels.of<Negation>().add("slow", 1, slow_);
    registries_.kernels.of<Negation>().add("fast", 2, fast_);
    registries_.kernels.set_origin("built-in");
    registries_.layers.add("negation", [](LayerSpec const& spec) { return std::make_unique<NegationLayer>(spec); });
  }

  /// A forward pass of the layer, with the kernels that `config` selects.
  Tensor run(KernelRegistries const& kernels, Config const& config) {
    TestBench bench(ModelConfig(), DType::float64);
    LayerSpec spec = bench.spec("negation", Side::source);
    LayerSpec const chosen{spec.name,     spec.side,      spec.model, spec.dtype, {kernels, config.kernels},
                           spec.parallel, spec.parameters};
    auto const layer = registries_.layers.build("negation", chosen);
    std::vector<Sample> const pairs{{0, {5}, {6}}};
    Pack const pack = make_pack(pairs, test_ids);
    LayerContext context = bench.context(pack);
    Saved saved;
    return layer->forward(context, {tensor_of({1, -2}, DType::float64, {1, 2}), {}}, saved).hidden;
  }

  Registries registries_;
  std::shared_ptr<CountingNegation> slow_ = std::make_shared<CountingNegation>();
  std::shared_ptr<CountingNegation> fast_ = std::make_shared<CountingNegation>();
};

TEST_F(NewOperationTest, ALayerCallsItAndTheConfigurationChooses) {
  EXPECT_THAT(values(run(registries_.kernels, Config())), ElementsAre(-1, 2));
  EXPECT_EQ(fast_->calls, 1);
  Config const config = parse_config("[kernels]\nnegation = \"slow\"\n", "run.toml");
  registries_.kernels.require_known(config.kernels);
  EXPECT_THAT(values(run(registries_.kernels, config)), ElementsAre(-1, 2));
  EXPECT_EQ(slow_->calls, 1);
  Config const overridden = parse_config("", "run.toml", {"kernels.negation=none"});
  expect_config_error([&] { run(registries_.kernels, overridden); },
                      "kernels.negation = 'none': no such implementation");
}

TEST_F(NewOperationTest, AnImplementationNeedsAUsableNameAndAKernel) {
  auto& negations = registries_.kernels.of<Negation>();
  for (char const* const name : {"", "auto"}) {
    expect_config_error([&] { negations.add(name, 1, slow_); }, "a name is not empty");
  }
  expect_config_error([&] { negations.add("absent", 1, nullptr); }, "null pointer");
  EXPECT_EQ(negations.entries().size(), 2);
}

TEST_F(NewOperationTest, ALayerNeedsANameAndAFactoryThatMakesIt) {
  LayerRegistry& layers = registries_.layers;
  auto const none = [](LayerSpec const&) { return std::unique_ptr<Layer>(); };
  expect_config_error([&] { layers.add("", none); }, "without a name");
  expect_config_error([&] { layers.add("absent", nullptr); }, "without a factory");
  layers.set_origin("none.so");
  layers.add("none", none);
  TestBench bench(ModelConfig(), DType::float64);
  expect_config_error([&] { layers.build("none", bench.spec("part", Side::source)); },
                      {"layer 'none' of none.so", "null pointer"});
}

TEST_F(NewOperationTest, ItsChoiceIsPartOfTheResolvedConfiguration) {
  Config const config = parse_config("[kernels]\nnegation = \"slow\"\n", "run.toml");
  expect_contains(to_toml(config), "\nnegation = \"slow\"\n");
  EXPECT_TRUE(parse_config(to_toml(config), "again") == config);
  EXPECT_FALSE(Config() == config);
}

TEST_F(NewOperationTest, AnOperationThatNobodyHasIsAnErrorThatSaysWhereItWasNamed) {
  KernelRegistries const& kernels = registries_.kernels;
  auto const refusal = [&](Config const& config) {
    return [&kernels, config] { kernels.require_known(config.kernels); };
  };
  EXPECT_EQ(message_of<ConfigError>(refusal(parse_config("[kernels]\nnegatoin = \"slow\"\n", "run.toml"))),
            "run.toml:2:1: there is no key kernels.negatoin; did you mean negation?");
  expect_config_error(refusal(parse_config("", "run.toml", {"kernels.negatoin=slow"})),
                      "--set kernels.negatoin=slow: there is no key kernels.negatoin; did you mean negation?");
}

TEST_F(NewOperationTest, AListOfOperationsNamesEachOnce) {
  Registries registries = registries_;
  registries.kernels.of<Gemm>();
  Config const config = parse_config("", "run.toml", {"kernels.product=auto"});
  EXPECT_EQ(message_of<ConfigError>([&] { registries.kernels.require_known(config.kernels); }),
            "--set kernels.product=auto: there is no key kernels.product; expected one of: cache, activation, "
            "attention, divergence, embedding, expert_routing, gemm, guided_alignment, recurrence, residual_norm, "
            "softmax_cross_entropy, tensor_ops, token_ranking, update, negation, or an operation of a plug-in in "
            "plugins.paths");
}

TEST_F(NewOperationTest, ItIsListedWithItsOrigin) {
  std::vector<AnyKernelRegistry const*> const all = registries_.kernels.all();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all.front()->operation(), "negation");
  std::vector<std::string> names;
  for (Implementation const& each : all.front()->implementations()) {
    names.push_back(each.name + " " + each.origin);
  }
  EXPECT_THAT(names, ElementsAre("fast negation.so", "slow negation.so"));
  EXPECT_EQ(registries_.kernels.kept_bytes(), 48U);
}

TEST_F(NewOperationTest, TimesDecideAndCallsAreObserved) {
  class Recorder final : public KernelObserver {
   public:
    void selected(KernelSelection const& selection) override {
      seen.push_back(selection.problem + ": " + std::string(selection.implementation));
    }
    void observe(Execution&, KernelCall const& call) override {
      for (KernelCall::Candidate const& way : call.ways()) {
        seen.push_back(std::string(call.operation) + " by " + way.name);
      }
      bytes += call.cost.bytes;
      call.make();
    }
    std::vector<std::string> seen;
    double bytes = 0;
  };
  Recorder recorder;
  registries_.kernels.set_timings({{"negation", {{"float64", {{"fast", 2.0}, {"slow", 1.0}}}}}});
  KernelRegistries observed = registries_.kernels;
  observed.observe(recorder);
  EXPECT_THAT(values(run(observed, Config())), ElementsAre(-1, 2));
  EXPECT_THAT(recorder.seen, ElementsAre("negation of float64: slow", "negation by fast", "negation by slow"));
  EXPECT_EQ(recorder.bytes, 32);
  EXPECT_EQ(slow_->calls, 1);
}

TEST_F(NewOperationTest, ADryRunComputesNothingWithoutKnowingIt) {
  class Passing final : public KernelObserver {
   public:
    void observe(Execution&, KernelCall const& call) override { call.make(); }
  };
  Passing observer;
  EXPECT_THAT(values(run(KernelRegistries().dry_run(observer), Config())), ElementsAre(1, -2));
  EXPECT_EQ(slow_->calls + fast_->calls, 0);
}

TEST_F(NewOperationTest, ACopyIsFilledByItself) {
  KernelRegistries copy = registries_.kernels;
  copy.of<Negation>().add("later", 3, slow_);
  EXPECT_EQ(copy.of<Negation>().entries().size(), 3U);
  EXPECT_EQ(registries_.kernels.of<Negation>().entries().size(), 2U);
}

/// Another interface of the same name.
class OtherNegation : public Negation {};

TEST_F(NewOperationTest, ANameBelongsToOneInterface) {
  expect_config_error([&] { registries_.kernels.of<OtherNegation>(); },
                      "operation 'negation' is registered with another interface");
  KernelRegistries const empty;
  expect_config_error([&] { empty.select<Negation>(KernelChoices(), {}); },
                      "operation 'negation' has no implementation");
}

}  // namespace
}  // namespace heddle
