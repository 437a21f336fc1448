#include <heddle/core/config/kernel_choices.hpp>
#include <heddle/core/operations/activation.hpp>
#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/embedding.hpp>
#include <heddle/core/operations/expert_routing.hpp>
#include <heddle/core/operations/gemm.hpp>
#include <heddle/core/operations/residual_norm.hpp>
#include <heddle/core/operations/softmax_cross_entropy.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/operations/token_ranking.hpp>

#include "kernel_fixture.hpp"

namespace heddle {
namespace {

class RegistryTest : public BuiltInKernelsTest {
 protected:
  /// Every implementation of the operation supports the problem, except one named `other`.
  template <class Interface>
  void expect_support(typename Interface::Problem const& problem, std::string const& other = "") {
    auto const& registry = registries_.of<Interface>();
    for (std::string const& name : registry.names()) {
      if (name != other) {
        EXPECT_NO_THROW(registry.select(name, problem)) << registry.operation() << ": " << name;
      }
    }
  }
};

/// Multiplies nothing; supports every problem or none.
class FakeGemm final : public Gemm {
 public:
  explicit FakeGemm(bool supported, Accuracy accuracy = Accuracy::rounded)
      : supported_(supported), accuracy_(accuracy) {}
  bool supports(GemmProblem const&) const override { return supported_; }
  Accuracy accuracy() const override { return accuracy_; }
  void multiply(Execution&, GemmCall const&) override {}

 private:
  bool supported_;
  Accuracy accuracy_;
};

TEST_F(RegistryTest, EveryOperationHasAReferenceAndAKokkosImplementation) {
  std::vector<std::string_view> operations;
  for (AnyKernelRegistry const* registry : registries_.all()) {
    operations.push_back(registry->operation());
    std::vector<std::string> names;
    for (Implementation const& implementation : registry->implementations()) {
      names.push_back(implementation.name);
      EXPECT_EQ(implementation.origin, "built-in");
    }
    EXPECT_THAT(names, Contains("reference"));
    if (registry->operation() != "guided_alignment") {  // its cost is a small part of a step's
      EXPECT_THAT(names, Contains("kokkos"));
    }
  }
  EXPECT_THAT(operations, testing::ElementsAreArray(operation_names()));
}

/// Tests that loop over implementations leave out the problems that one of them does not support.
TEST_F(RegistryTest, EveryImplementationComputesBothTypesOfActivations) {
  for (DType const dtype : {DType::float32, DType::bfloat16}) {
    std::string const bfloat16_only = dtype == DType::float32 ? "simd" : "";  // of the norm and the loss
    expect_support<Activation>({dtype, "relu"});
    expect_support<Attention>({.dtype = dtype, .heads = 4, .head_dim = 16}, dtype == DType::float32 ? "amx" : "");
    expect_support<Embedding>({dtype, DType::float32, 32});
    expect_support<ResidualNorm>({.dtype = dtype, .d_model = 32}, bfloat16_only);
    expect_support<SoftmaxCrossEntropy>({dtype, 96, 96}, bfloat16_only);
    expect_support<ExpertRouting>({dtype, 8, 2});
    expect_support<TensorOps>({dtype});
    expect_support<TokenRanking>({dtype, 96}, dtype == DType::bfloat16 ? "simd" : "");  // logits are float32
  }
}

TEST_F(RegistryTest, AutoTakesTheFastestThatSupportsTheProblem) {
  auto const entry = [&](std::string const& name, GemmProblem const& problem = {}) {
    for (auto const& candidate : registries_.of<Gemm>().entries()) {
      if (candidate.name == name && candidate.kernel->supports(problem)) {
        return candidate.kernel;
      }
    }
    return std::shared_ptr<Gemm>();
  };
  bool const on_device = kernel_memory_space() == MemorySpace::device;
  // The name depends on the CPU.
  std::string fastest = on_device ? "teams" : "onednn";
  for (auto const& candidate : registries_.of<Gemm>().entries()) {
    bool const allowed = candidate.kernel->supports({}) && !candidate.kernel->only_by_name();
    fastest = allowed && candidate.speed > 20 ? candidate.name : fastest;
  }
  EXPECT_EQ(registries_.of<Gemm>().select("auto", {}), entry(fastest));
  GemmProblem const exact{DType::float64, DType::float64, DType::float64};
  EXPECT_EQ(registries_.of<Gemm>().select("auto", exact), entry(on_device ? "teams" : "kokkos", exact));
  EXPECT_EQ(registries_.of<Gemm>().select("reference", {}), entry("reference"));
  auto const slow = std::make_shared<FakeGemm>(true);
  auto const unfit = std::make_shared<FakeGemm>(false);
  registries_.of<Gemm>().add("slow", 1, slow);
  registries_.of<Gemm>().add("unfit", 100, unfit);
  EXPECT_EQ(registries_.of<Gemm>().select("auto", {}), entry(fastest));
  EXPECT_EQ(registries_.of<Gemm>().select("slow", {}), slow);
}

TEST_F(RegistryTest, AQuantisedImplementationIsTakenByItsNameOnly) {
  auto const quantised = std::make_shared<FakeGemm>(true, Accuracy::quantised);
  registries_.of<Gemm>().add("quantised", 100, quantised);
  EXPECT_EQ(registries_.of<Gemm>().select("quantised", {}), quantised);
  EXPECT_NE(registries_.of<Gemm>().select("auto", {}), quantised);
  KernelRegistries alone;
  alone.of<Gemm>().add("quantised", 100, quantised);
  EXPECT_FALSE(alone.supported<Gemm>({}));
  expect_config_error([&] { alone.of<Gemm>().select("auto", {}); }, "no implementation of operation 'gemm' supports");
}

TEST_F(RegistryTest, AnUnknownOrUnfitNameIsAConfigErrorThatListsTheNames) {
  registries_.of<Gemm>().add("unfit", 100, std::make_shared<FakeGemm>(false));
  expect_config_error([&] { registries_.of<Gemm>().select("cublas", {}); },
                      {"kernels.gemm = 'cublas': no such implementation", "reference", "kokkos", "unfit"});
  expect_config_error(
      [&] {
        registries_.of<Gemm>().select("unfit", {DType::float64, DType::float64, DType::float64});
      },
      {"kernels.gemm = 'unfit' does not support", "float64"});
  std::string const swish = message_of<ConfigError>([&] {
    registries_.of<Activation>().select("auto", {DType::float32, "swish"});
  });
  expect_contains(swish, {"the function 'swish'", "built in: relu, gelu, gelu_tanh, silu"});
  expect_lacks(swish, "kernels.activation");
}

TEST_F(RegistryTest, ATakenNameIsAConfigErrorThatSaysByWhom) {
  registries_.of<Gemm>().set_origin("/plugins/mine.so");
  registries_.of<Gemm>().add("mine", 30, std::make_shared<FakeGemm>(true));
  expect_config_error([&] { registries_.of<Gemm>().add("kokkos", 30, std::make_shared<FakeGemm>(true)); },
                      {"'kokkos'", "built-in"});
  expect_config_error([&] { registries_.of<Gemm>().add("mine", 30, std::make_shared<FakeGemm>(true)); },
                      {"'mine'", "/plugins/mine.so"});
}

TEST_F(RegistryTest, APartComputesWhatTheOthersDoNot) {
  std::vector<std::string> const names = registries_.of<Gemm>().names();
  auto const unfit = std::make_shared<FakeGemm>(false);
  auto const fit = std::make_shared<FakeGemm>(true);
  registries_.of<Gemm>().add_part("in parts", 100, unfit);
  registries_.of<Gemm>().add_part("in parts", 100, fit);
  EXPECT_EQ(registries_.of<Gemm>().select("auto", {}), fit);
  EXPECT_EQ(registries_.of<Gemm>().select("in parts", {}), fit);
  EXPECT_EQ(registries_.of<Gemm>().names().size(), names.size() + 1);
  EXPECT_EQ(registries_.of<Gemm>().implementations().size(), names.size() + 1);
  EXPECT_THROW(registries_.of<Gemm>().add("in parts", 1, fit), ConfigError);
  registries_.of<Gemm>().set_origin("/plugins/mine.so");
  EXPECT_THROW(registries_.of<Gemm>().add_part("in parts", 1, fit), ConfigError);
}

}  // namespace
}  // namespace heddle
