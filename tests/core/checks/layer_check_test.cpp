#include <csignal>
#include <heddle/core/checks/check.hpp>
#include <heddle/core/layers/linear.hpp>

#include "golden_model.hpp"
#include "kernel_test_support.hpp"

namespace heddle {
namespace {

/// The error of an OddLayer.
enum class Fault {
  none,
  input_gradient,
  parameter_gradient,
  overwritten_gradient,
  kept_in_member,
  counts_calls,
  decode,
  decoded_prompt,
  thrown,
  crash
};

/// One Linear, wrong in one way.
class OddLayer final : public Layer {
 public:
  OddLayer(LayerSpec const& spec, Fault fault)
      : linear_(spec.named(spec.name + ".linear"), {spec.model.d_model, spec.model.d_model}, Linear::Split::none),
        bias_(*spec.parameters.find(spec.name + ".linear.bias")),
        fault_(fault) {}

  HiddenStates forward(LayerContext& context, HiddenStates const& input, Saved& saved) const override {
    if (fault_ == Fault::thrown) {
      throw Error("no forward today");
    }
    if (fault_ == Fault::crash) {
      std::raise(SIGSEGV);
    }
    saved.keep(input.hidden);
    input_ = input.hidden;
    Tensor const output = linear_.forward(context, input.hidden);
    if (fault_ == Fault::counts_calls) {
      change(output, 1, 1e-12 * ++calls_);
    }
    return {output, input.encoder_output};
  }
  HiddenStates backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const override {
    if (fault_ == Fault::overwritten_gradient) {
      change(bias_.gradient, 0, 0);
    }
    Tensor const& kept = fault_ == Fault::kept_in_member ? input_ : saved.get<Tensor>();
    Tensor const grad_input = linear_.backward(context, grad_output.hidden, kept);
    if (fault_ == Fault::input_gradient) {
      change(grad_input, 1, 1e-3);
    }
    if (fault_ == Fault::parameter_gradient) {
      change(bias_.gradient, 1, 1e-3);
    }
    return {grad_input, grad_output.encoder_output};
  }
  HiddenStates decode(LayerContext& context, HiddenStates const& input, DecodeStep const& step,
                      DecodeCache&) const override {
    Saved saved;
    HiddenStates const output = forward(context, input, saved);
    if (fault_ == Fault::decode || (fault_ == Fault::decoded_prompt && step.queries.max_length > 1)) {
      change(output.hidden, 1, 1e-3);
    }
    return output;
  }

 private:
  static void change(Tensor const& tensor, double factor, double summand) {
    std::vector<double> values = to_doubles(tensor);
    for (double& value : values) {
      value = factor * value + summand;
    }
    copy_from_doubles(tensor, values);
  }

  Linear linear_;
  Parameter const& bias_;
  Fault fault_;
  mutable Tensor input_;  ///< of the newest forward
  mutable int calls_ = 0;
};

class LayerCheckTest : public testing::Test {
 protected:
  std::vector<CheckResult> check(Fault fault, LayerTraits traits = {}) {
    Registries registries = bench_.registries();
    registries.layers.add(
        "odd", [fault](LayerSpec const& spec) { return std::make_unique<OddLayer>(spec, fault); }, std::move(traits));
    return check_layer(registries, "odd", bench_.execution());
  }
  std::string fault_of(Fault fault) {
    std::vector<CheckResult> const results = check(fault);
    CheckResult const* const found = first_fault(results);
    return found == nullptr ? "" : describe(*found);
  }

  TestBench bench_{ModelConfig(), DType::float64};
};

TEST_F(LayerCheckTest, BuiltInLayersPass) {
  for (LayerRegistry::Entry const& entry : bench_.registries().layers.entries()) {
    std::vector<CheckResult> const results = check_layer(bench_.registries(), entry.name, bench_.execution());
    for (CheckResult const& result : results) {
      EXPECT_TRUE(result.passed()) << describe(result);
    }
    EXPECT_GE(results.size(), 2U) << entry.name << ": gradients and decoding";
  }
}

TEST_F(LayerCheckTest, ARightOnePassesWithAndWithoutMemory) {
  EXPECT_EQ(fault_of(Fault::none), "");
  EXPECT_EQ(check(Fault::none).size(), 4U) << "two sides, and decoding in two ways";
}

TEST_F(LayerCheckTest, AWrongGradientIsFound) {
  expect_contains(fault_of(Fault::input_gradient), "gradient of input");
  expect_contains(fault_of(Fault::parameter_gradient), "gradient of stack.layers.0.odd.linear.bias");
}

TEST_F(LayerCheckTest, AGradientThatIsSetInsteadOfAddedIsFound) {
  expect_contains(fault_of(Fault::overwritten_gradient), "gradient of stack.layers.0.odd.linear.bias");
}

// Several micro-batches are in flight: forward of the second comes before backward of the first.
TEST_F(LayerCheckTest, ActivationsKeptInAMemberAreFound) {
  expect_contains(fault_of(Fault::kept_in_member), "layer 'odd' is wrong: no options");
}

TEST_F(LayerCheckTest, AForwardThatGivesOtherBitsTheSecondTimeIsFound) {
  expect_contains(fault_of(Fault::counts_calls), "output of forward, called again with the same inputs: element");
}

TEST_F(LayerCheckTest, ACrashIsNamedAndTakesItsCourse) {
#ifdef __SANITIZE_ADDRESS__  // whose own handler of SIGSEGV ends the process
  auto const course = testing::ExitedWithCode(1);
#else
  auto const course = testing::KilledBySignal(SIGSEGV);
#endif
  EXPECT_EXIT(fault_of(Fault::crash), course,
              R"(heddle: the layer 'odd' \(built-in\) crashes when it is checked: no options, without encoder output)");
}

TEST_F(LayerCheckTest, DecodingThatDiffersFromForwardIsFoundUnlessItIsNotDeclared) {
  expect_contains(fault_of(Fault::decode), "the layer 'odd' is wrong: no options, with encoder output, decoding");
  expect_contains(fault_of(Fault::decoded_prompt), "decoding after a prompt: a decoded prompt of 2");
  EXPECT_EQ(first_fault(check(Fault::decode, {.capabilities = {.decode = false}})), nullptr);
}

TEST_F(LayerCheckTest, AnExceptionIsAFault) {
  expect_contains(fault_of(Fault::thrown), "it throws: no forward today");
}

TEST_F(LayerCheckTest, TrialsSetKeysAndOptions) {
  OptionDescription const size{.name = "size", .type = OptionDescription::Type::integer, .meaning = "a size"};
  LayerTraits traits{.options = {size},
                     .trials = {{.name = "wide", .set = [](ModelConfig& model) { model.d_model = 10; }},
                                {.name = "with a size", .options = {{"size", std::int64_t{3}}}}}};
  std::vector<CheckResult> const results = check(Fault::none, traits);
  EXPECT_EQ(results.size(), 8U);
  expect_contains(results.front().problem, "wide");
  EXPECT_EQ(first_fault(results), nullptr);
  traits.trials = {{.name = "unknown", .options = {{"depth", std::int64_t{3}}}}};
  std::vector<CheckResult> const refused = check(Fault::none, traits);
  ASSERT_EQ(refused.size(), 1U);
  expect_contains(refused.front().fault, "it cannot be built");
}

}  // namespace
}  // namespace heddle
