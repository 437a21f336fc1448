#include <heddle/core/operations/activation.hpp>

#include "golden_model.hpp"
#include "kernels/check.hpp"
#include "test.hpp"

namespace heddle {
namespace {

/// Supports nothing, or everything and computes nothing.
class IdleActivation final : public Activation {
 public:
  explicit IdleActivation(bool supports) : supports_(supports) {}
  bool supports(ActivationProblem const&) const override { return supports_; }
  void forward(Execution&, ActivationCall const&, Tensor const&) override {}
  void backward(Execution&, ActivationCall const&, Tensor const&, ActivationGradients const&) override {}

 private:
  bool supports_;
};

class PrintChecksTest : public testing::Test {
 protected:
  /// The output, where `origin` has added the kernel.
  std::string print(std::string const& origin, bool supports) {
    registries_.kernels.set_origin(origin);
    registries_.kernels.of<Activation>().add("idle", 1, std::make_shared<IdleActivation>(supports));
    testing::internal::CaptureStdout();
    code_ = print_checks(registries_, "idle", bench_.execution());
    std::fflush(stdout);
    return testing::internal::GetCapturedStdout();
  }

  TestBench bench_{ModelConfig(), DType::float64};
  Registries registries_ = bench_.registries();
  ExitCode code_ = ExitCode::done;
};

TEST_F(PrintChecksTest, OneThatSupportsNothingIsNotRunAndTheReasonIsPrinted) {
  EXPECT_THAT(print("built-in", false),
              AllOf(HasSubstr("activation idle (built-in): NOT RUN: it supports none of the"),
                    HasSubstr("0 of 0 problems passed, 1 implementation not run"), Not(HasSubstr("WRONG"))));
  EXPECT_EQ(code_, ExitCode::done);
}

TEST_F(PrintChecksTest, APluginsThatSupportsNothingIsRefused) {
  EXPECT_THAT(print("idle.so", false), AllOf(HasSubstr("NOT RUN"), Not(HasSubstr("WRONG"))));
  EXPECT_EQ(code_, ExitCode::bad_config);
}

TEST_F(PrintChecksTest, OneThatComputesNothingIsWrong) {
  EXPECT_THAT(print("built-in", true), AllOf(HasSubstr("WRONG: "), Not(HasSubstr("NOT RUN"))));
  EXPECT_EQ(code_, ExitCode::bad_config);
}

TEST_F(PrintChecksTest, AMetricMustHaveAFiniteValueThatIsTheSameTwice) {
  registries_.metrics.set_origin("own.so");
  auto const add = [&](char const* name, std::function<double(TranslatedCorpus const&)> score) {
    registries_.metrics.add(name, {std::move(score), true});
  };
  auto const printed = [&](std::string const& name) {
    testing::internal::CaptureStdout();
    code_ = print_checks(registries_, name, bench_.execution());
    std::fflush(stdout);
    return testing::internal::GetCapturedStdout();
  };
  add("lines", [](TranslatedCorpus const& corpus) { return static_cast<double>(corpus.references.size()); });
  EXPECT_EQ(printed("own.so"),
            "metric lines (own.so)\n  with sources: 4 passed\n  without sources: 4 passed\n2 of 2 problems passed\n");
  EXPECT_EQ(code_, ExitCode::done);
  add("ratio", [](TranslatedCorpus const& corpus) { return 1.0 / static_cast<double>(corpus.sources.size()); });
  EXPECT_THAT(printed("ratio"), AllOf(HasSubstr("with sources: 0.25 passed"),
                                      HasSubstr("without sources: WRONG: the value is not finite"),
                                      HasSubstr("1 of 2 problems passed"), Not(HasSubstr("metric lines"))));
  EXPECT_EQ(code_, ExitCode::bad_config);
  int calls = 0;
  add("calls", [&](TranslatedCorpus const&) { return static_cast<double>(++calls); });
  expect_contains(printed("calls"), "WRONG: a second call with the same text returns 2");
  add("throws", [](TranslatedCorpus const&) -> double { throw std::runtime_error("no score"); });
  expect_contains(printed("throws"), "WRONG: the metric throws of the plug-in own.so fails: no score");
}

}  // namespace
}  // namespace heddle
