#include <csignal>
#include <cstdlib>
#include <heddle/core/checks/check.hpp>
#include <heddle/core/operations/activation.hpp>
#include <heddle/core/operations/gemm.hpp>
#include <heddle/core/operations/residual_norm.hpp>
#include <heddle/core/trials/trials.hpp>

#include "golden_model.hpp"
#include "kernel_test_support.hpp"

// Kernels that are wrong in one way each, beside the right ones.

namespace heddle {
namespace {

/// Multiplies as `reference` does, and then does something else.
class OddGemm final : public Gemm {
 public:
  using Change = std::function<void(GemmCall const&)>;
  OddGemm(std::shared_ptr<Gemm> right, Change change) : right_(std::move(right)), change_(std::move(change)) {}

  bool supports(GemmProblem const& problem) const override { return right_->supports(problem); }
  void multiply(Execution& execution, GemmCall const& call) override {
    right_->multiply(execution, call);
    change_(call);
  }

 private:
  std::shared_ptr<Gemm> right_;
  Change change_;
};

void set_element(Tensor const& matrix, std::int64_t row, std::int64_t column, double value) {
  copy_from_doubles(matrix.rows(row, 1).columns(column, 1), {value});
}

class KernelCheckTest : public testing::Test {
 protected:
  KernelCheckTest() { add_built_in_trials(registries_.kernels); }

  template <class Interface>
  std::shared_ptr<Interface> reference() {
    return std::static_pointer_cast<Interface>(registries_.kernels.of<Interface>().find("reference"));
  }

  /// The faults of a GEMM that multiplies and then makes this change.
  std::vector<CheckResult> faults_of_gemm(OddGemm::Change change) {
    return faults<Gemm>(std::make_shared<OddGemm>(reference<Gemm>(), std::move(change)));
  }

  template <class Interface>
  std::vector<CheckResult> faults(std::shared_ptr<Interface> kernel) {
    KernelRegistries registries = registries_.kernels;
    registries.set_origin("odd.so");
    registries.of<Interface>().add("odd", 1, std::move(kernel));
    std::vector<CheckResult> results = check_kernel(registries, Interface::operation, "odd", bench_.execution());
    std::erase_if(results, [](CheckResult const& result) { return result.passed(); });
    return results;
  }

  TestBench bench_{ModelConfig(), DType::float64};
  Registries registries_ = bench_.registries();
};

TEST_F(KernelCheckTest, ARightOneHasNoFault) {
  EXPECT_TRUE(faults_of_gemm([](GemmCall const&) {}).empty());
}

TEST_F(KernelCheckTest, AWrongElementIsNamedWithItsErrorAndTolerance) {
  auto const faults = faults_of_gemm([](GemmCall const& call) {
    if (call.c.size() > 0) {
      set_element(call.c, 0, 0, 100);
    }
  });
  ASSERT_FALSE(faults.empty());
  EXPECT_EQ(faults.front().operation, "gemm");
  EXPECT_EQ(faults.front().implementation, "odd");
  EXPECT_EQ(faults.front().origin, "odd.so");
  expect_contains(faults.front().problem, "float32");
  EXPECT_GT(faults.front().output_error, 1);
  expect_contains(describe(faults.front()), {"'odd' of operation 'gemm'", "c: element 0 is 100", "tolerance"});
}

TEST_F(KernelCheckTest, AnErrorAtOddShapesAloneIsFound) {
  // Right where eight columns are a vector: the last columns of others are left out.
  auto const faults = faults_of_gemm([](GemmCall const& call) {
    if (call.c.size() > 0 && call.c.dim(1) % 8 != 0) {
      set_element(call.c, call.c.dim(0) - 1, call.c.dim(1) - 1, 0);
    }
  });
  EXPECT_FALSE(faults.empty());
}

TEST_F(KernelCheckTest, WritingBetweenRowsIsFound) {
  auto const faults = faults_of_gemm([](GemmCall const& call) {
    if (!call.c.contiguous()) {
      set_element(Tensor::borrow(call.c.raw(), call.c.dtype(), {1, call.c.dim(1) + 1}), 0, call.c.dim(1), 1);
    }
  });
  ASSERT_FALSE(faults.empty());
  expect_contains(faults.front().fault, "it writes to row 0, column");
}

TEST_F(KernelCheckTest, WritingBeyondATensorOrToAnInputIsFound) {
  auto const beyond = faults_of_gemm([](GemmCall const& call) {
    if (call.c.contiguous() && call.c.size() > 0) {
      set_element(Tensor::borrow(call.c.raw(), call.c.dtype(), {1, call.c.size() + 3}), 0, call.c.size() + 2, 1);
    }
  });
  ASSERT_FALSE(beyond.empty());
  expect_contains(beyond.front().fault, "memory outside");
  auto const input = faults_of_gemm([](GemmCall const& call) {
    if (call.a.size() > 0) {
      set_element(call.a, 0, 0, 100);
    }
  });
  ASSERT_FALSE(input.empty());
  expect_contains(input.front().fault, "of the input");
}

TEST_F(KernelCheckTest, AnElementThatIsNotWrittenIsNoNumber) {
  auto const faults = faults_of_gemm([](GemmCall const& call) {
    if (call.c.size() > 0) {
      set_element(call.c, 0, 0, NAN);
    }
  });
  ASSERT_FALSE(faults.empty());
  EXPECT_THAT(faults.front().fault, AllOf(HasSubstr("c: element 0 is not a number instead of"),
                                          HasSubstr("it was not written"), Not(HasSubstr("inf"))));
}

TEST_F(KernelCheckTest, ACrashIsNamedAndTakesItsCourse) {
  EXPECT_EXIT(faults_of_gemm([](GemmCall const&) { std::abort(); }), testing::KilledBySignal(SIGABRT),
              R"(heddle: the implementation 'odd' of operation 'gemm' \(odd.so\) crashes when it is checked: )"
              R"(1 x 37 x 19, bias, float32)");
}

TEST_F(KernelCheckTest, AfterACheckSignalsAreHandledAsBefore) {
  auto const handler = [] {
    struct sigaction action = {};
    EXPECT_EQ(sigaction(SIGSEGV, nullptr, &action), 0);
    return action.sa_handler;
  };
  auto const before = handler();
  auto during = before;
  faults_of_gemm([&](GemmCall const&) { during = handler(); });
  EXPECT_NE(during, before);
  EXPECT_EQ(handler(), before);
}

TEST_F(KernelCheckTest, AnExceptionIsAFault) {
  auto const faults = faults_of_gemm([](GemmCall const&) { throw Error("out of luck"); });
  ASSERT_FALSE(faults.empty());
  EXPECT_EQ(faults.front().fault, "it throws: out of luck");
}

/// relu forward and backward by `reference`, the gradient times a factor; under another name where it has one.
class OddActivation final : public Activation {
 public:
  OddActivation(std::shared_ptr<Activation> right, double factor, std::string name = "relu")
      : right_(std::move(right)), factor_(factor), name_(std::move(name)) {}

  bool supports(ActivationProblem const& problem) const override {
    return problem.function == name_ && !problem.gated && problem.dtype != DType::int32;
  }
  void forward(Execution& execution, ActivationCall const& call, Tensor const& output) override {
    right_->forward(execution, relu(call), output);
  }
  void backward(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                ActivationGradients const& gradients) override {
    right_->backward(execution, relu(call), grad_output, gradients);
    std::vector<double> gradient = to_doubles(gradients.input);
    for (double& element : gradient) {
      element *= factor_;
    }
    copy_from_doubles(gradients.input, gradient);
  }

 private:
  static ActivationCall relu(ActivationCall call) {
    call.function = "relu";
    return call;
  }

  std::shared_ptr<Activation> right_;
  double factor_;
  std::string name_;
};

void clear(Tensor const& tensor) {
  copy_from_doubles(tensor, std::vector<double>(static_cast<std::size_t>(tensor.size())));
}

/// Clears results before it computes them: wrong where an operation's contract lets them share memory with what they
/// are computed from.
class ClearingActivation final : public Activation {
 public:
  ClearingActivation(std::shared_ptr<Activation> right, bool forward) : right_(std::move(right)), forward_(forward) {}

  bool supports(ActivationProblem const& problem) const override { return right_->supports(problem); }
  void forward(Execution& execution, ActivationCall const& call, Tensor const& output) override {
    if (forward_) {
      clear(output);
    }
    right_->forward(execution, call, output);
  }
  void backward(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                ActivationGradients const& gradients) override {
    if (!forward_) {
      clear(gradients.input);
    }
    right_->backward(execution, call, grad_output, gradients);
  }

 private:
  std::shared_ptr<Activation> right_;
  bool forward_;
};

class ClearingNorm final : public ResidualNorm {
 public:
  explicit ClearingNorm(std::shared_ptr<ResidualNorm> right) : right_(std::move(right)) {}

  bool supports(ResidualNormProblem const& problem) const override { return right_->supports(problem); }
  void forward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output) override {
    right_->forward(execution, call, output);
  }
  void backward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output,
                Tensor const& grad_normalized, Tensor const& grad_sum,
                ResidualNormGradients const& gradients) override {
    clear(gradients.residual);
    right_->backward(execution, call, output, grad_normalized, grad_sum, gradients);
  }

 private:
  std::shared_ptr<ResidualNorm> right_;
};

TEST_F(KernelCheckTest, AKernelThatNeedsMemoryOfItsOwnForItsResultsIsFound) {
  for (bool const forward : {true, false}) {
    auto const found = faults<Activation>(std::make_shared<ClearingActivation>(reference<Activation>(), forward));
    ASSERT_FALSE(found.empty());
    for (CheckResult const& result : found) {
      expect_contains(result.problem, "place");
    }
  }
  auto const of_norm = faults<ResidualNorm>(std::make_shared<ClearingNorm>(reference<ResidualNorm>()));
  ASSERT_FALSE(of_norm.empty());
  for (CheckResult const& result : of_norm) {
    expect_contains(result.problem, "in place");
  }
}

TEST_F(KernelCheckTest, AWrongGradientIsFound) {
  EXPECT_TRUE(faults<Activation>(std::make_shared<OddActivation>(reference<Activation>(), 1)).empty());
  auto const faulty = faults<Activation>(std::make_shared<OddActivation>(reference<Activation>(), 1.1));
  ASSERT_FALSE(faulty.empty());
  expect_contains(faulty.front().fault, "gradient of input");
  EXPECT_EQ(faulty.front().output_error, 0);
}

// A function that `reference` does not know has itself in float64 as its oracle, and central differences.
TEST_F(KernelCheckTest, AFunctionOfItsOwnIsComparedWithItsDefinitionAndCentralDifferences) {
  add_activation_trials(registries_.kernels, "ramp", [](double x) { return std::max(x, 0.0); });
  add_activation_trials(registries_.kernels, "hill", [](double x) { return std::max(-x, 0.0); });
  auto const right = std::make_shared<OddActivation>(reference<Activation>(), 1, "ramp");
  EXPECT_TRUE(faults<Activation>(right).empty());
  auto const wrong_gradient = faults<Activation>(std::make_shared<OddActivation>(reference<Activation>(), 1.1, "ramp"));
  ASSERT_FALSE(wrong_gradient.empty());
  expect_contains(wrong_gradient.front().problem, "central differences");
  auto const wrong_output = faults<Activation>(std::make_shared<OddActivation>(reference<Activation>(), 1, "hill"));
  ASSERT_FALSE(wrong_output.empty());
  expect_contains(wrong_output.front().fault, "output: element");
}

TEST_F(KernelCheckTest, AnImplementationThatSupportsNoTrialIsNotRunAndNotWrong) {
  auto const found = faults<Activation>(std::make_shared<OddActivation>(reference<Activation>(), 1, "unheard-of"));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_FALSE(found.front().passed());
  EXPECT_EQ(found.front().fault, "");
  EXPECT_EQ(first_fault(found), nullptr);
  expect_contains(found.front().not_run, {"supports none", "add_trial"});
  EXPECT_THAT(
      describe(found.front()),
      AllOf(HasSubstr("'odd' of operation 'activation' was not checked: it supports none"), Not(HasSubstr("wrong"))));
}

/// A function of its own in some dtypes.
class PickyActivation final : public Activation {
 public:
  explicit PickyActivation(std::function<bool(DType)> takes) : takes_(std::move(takes)) {}

  bool supports(ActivationProblem const& problem) const override {
    return problem.function == "picky" && takes_(problem.dtype);
  }
  void forward(Execution&, ActivationCall const& call, Tensor const& output) override {
    copy_from_doubles(output, to_doubles(call.input));
  }
  void backward(Execution&, ActivationCall const&, Tensor const& grad_output,
                ActivationGradients const& gradients) override {
    copy_from_doubles(gradients.input, to_doubles(grad_output));
  }

 private:
  std::function<bool(DType)> takes_;
};

TEST_F(KernelCheckTest, AFunctionThatIsNotComputedInFloat64HasNoOracle) {
  add_activation_trials(registries_.kernels, "picky", [](double x) { return x; });
  auto const found =
      faults<Activation>(std::make_shared<PickyActivation>([](DType dtype) { return dtype == DType::float32; }));
  ASSERT_FALSE(found.empty());
  EXPECT_THAT(found.front().fault, AllOf(StartsWith("gradient of input: there is nothing to compare it with"),
                                         HasSubstr("support float64, too")));
}

TEST_F(KernelCheckTest, SupportsThatThrowsIsAFault) {
  add_activation_trials(registries_.kernels, "picky", [](double x) { return x; });
  auto const found =
      faults<Activation>(std::make_shared<PickyActivation>([](DType) -> bool { throw Error("not today"); }));
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front().fault, "supports() throws, but must return true or false: not today");
}

TEST_F(KernelCheckTest, TheReferenceIsComparedWithCentralDifferences) {
  auto const results = check_kernel(registries_.kernels, "residual_norm", "reference", bench_.execution());
  EXPECT_TRUE(std::any_of(results.begin(), results.end(), [](CheckResult const& result) {
    return result.problem.ends_with("central differences") && result.gradient_error > 0;
  }));
  EXPECT_EQ(first_fault(results), nullptr);
}

TEST_F(KernelCheckTest, NamesAreOperationsImplementationsAndLayers) {
  Registries const& registries = bench_.registries();  // the built-in trials are added where something is checked
  auto const named = [&](std::string const& name) { return check_named(registries, name, bench_.execution()); };
  EXPECT_GT(named("update").size(), named("update.reference").size());
  EXPECT_EQ(named("feed_forward").front().operation, "layer");
  expect_config_error([&] { named("update.referense"); }, "did you mean update.reference?");
  EXPECT_TRUE(check_origin(registries, "absent.so", bench_.execution()).empty());
  Registries of_tasks;
  of_tasks.tasks.set_origin("task.so");
  register_tasks(of_tasks.tasks);
  EXPECT_TRUE(check_named(of_tasks, "task.so", bench_.execution()).empty()) << "a plug-in's own check passes";
}

TEST_F(KernelCheckTest, ATrialsNameIsItsOwn) {
  expect_config_error([&] { add_built_in_trials(registries_.kernels); }, "each needs a name of its own");
}

}  // namespace
}  // namespace heddle
