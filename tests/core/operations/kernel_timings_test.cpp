#include <heddle/core/operations/gemm.hpp>
#include <heddle/core/operations/registry.hpp>

#include "test.hpp"

namespace heddle {
namespace {

class NamedGemm : public Gemm {
 public:
  explicit NamedGemm(std::int64_t max_rows = 1 << 20) : max_rows_(max_rows) {}
  bool supports(GemmProblem const& problem) const override { return problem.m <= max_rows_; }
  void multiply(Execution&, GemmCall const&) override {}

 private:
  std::int64_t max_rows_;
};

GemmProblem problem(std::int64_t m = 64, std::int64_t n = 512) {
  return {.m = m, .n = n, .k = 128, .transpose_b = true, .bias = true};
}

class KernelTimingsTest : public testing::Test {
 protected:
  void SetUp() override {
    registry_.add("slow", 0, slow_);
    registry_.add("fast", 20, fast_);
    registry_.add("small", 30, small_);
  }
  void measured(TimesByName const& times) { registry_.set_timings({{timing_key(problem()), times}}); }

  KernelRegistry<Gemm> registry_;
  std::shared_ptr<Gemm> slow_ = std::make_shared<NamedGemm>();
  std::shared_ptr<Gemm> fast_ = std::make_shared<NamedGemm>();
  std::shared_ptr<Gemm> small_ = std::make_shared<NamedGemm>(100);
};

TEST_F(KernelTimingsTest, AutoTakesTheFastestMeasured) {
  measured({{"slow", 1e-3}, {"fast", 2e-3}, {"small", 3e-3}});
  EXPECT_EQ(registry_.select("auto", problem()), slow_);
  EXPECT_EQ(registry_.select("auto", problem(1000)), slow_) << "another number of rows is the same choice";
  EXPECT_EQ(registry_.select("fast", problem()), fast_) << "a name goes before times";
  EXPECT_EQ(registry_.select("auto", problem(64, 513)), small_) << "nothing is known of another shape";
  registry_.set_timings({});
  EXPECT_EQ(registry_.select("auto", problem()), small_);
}

TEST_F(KernelTimingsTest, OnlySupportingImplementationsCount) {
  measured({{"slow", 3e-3}, {"fast", 2e-3}, {"small", 1e-3}});
  EXPECT_EQ(registry_.select("auto", problem()), small_);
  EXPECT_EQ(registry_.select("auto", problem(1000)), fast_);
}

TEST_F(KernelTimingsTest, SpeedDecidesWhereTheFastestBySpeedWasNotMeasured) {
  measured({{"slow", 1e-3}, {"fast", 2e-3}, {"unknown", 1e-9}});
  EXPECT_EQ(registry_.select("auto", problem()), small_);
  EXPECT_EQ(registry_.select("auto", problem(1000)), slow_) << "an unknown name is ignored";
}

TEST_F(KernelTimingsTest, NoiseChangesNothing) {
  measured({{"slow", 0.99e-3}, {"fast", 0.98e-3}, {"small", 1e-3}});
  EXPECT_EQ(registry_.select("auto", problem()), small_);
}

TEST(KernelTimings, RegistriesHandEachOperationItsOwn) {
  KernelRegistries registries;
  auto const slow = std::make_shared<NamedGemm>();
  registries.of<Gemm>().add("slow", 0, slow);
  registries.of<Gemm>().add("fast", 20, std::make_shared<NamedGemm>());
  registries.set_timings({{"attention", {{timing_key(problem()), {{"slow", 1}, {"fast", 2}}}}}});
  EXPECT_NE(registries.of<Gemm>().select("auto", problem()), slow);
  registries.set_timings({{"gemm", {{timing_key(problem()), {{"slow", 1}, {"fast", 2}}}}}});
  EXPECT_EQ(registries.of<Gemm>().select("auto", problem()), slow);
}

TEST(KernelTimings, MachinesDifferInTheirParts) {
  EXPECT_EQ(machine_difference("CPU (kind 1), 1 thread, heddle 1, g++ 12", "CPU (kind 1), 2 threads, heddle 1, g++ 13"),
            "\"1 thread, g++ 12\" there, \"2 threads, g++ 13\" here");
  EXPECT_EQ(machine_difference("Another, CPU, 1 thread", "CPU, 1 thread"),
            "\"Another, CPU, 1 thread\" there, \"CPU, 1 thread\" here");
}

std::string cpu(std::string const& text) {
  std::istringstream stream(text);
  return describe_cpu(stream);
}

TEST(KernelTimings, ACpuIsItsNameAndWhatChangesArithmetic) {
  std::string const text =
      "processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC  9R14\nflags\t\t: fpu avx2 fma smep\n";
  std::string const name = cpu(text + "\nprocessor\t: 1\nmodel name\t: Another\n");
  EXPECT_EQ(name.find("AMD EPYC 9R14 (kind "), 0U) << name;
  EXPECT_EQ(cpu("model\t: 17\nmodel name\t: AMD EPYC 9R14\nflags\t: fma avx2\n"), name);
  EXPECT_NE(cpu("model\t: 17\nmodel name\t: AMD EPYC 9R14\nflags\t: fma avx2 avx512f\n"), name);
  EXPECT_NE(cpu("model\t: 18\nmodel name\t: AMD EPYC 9R14\nflags\t: fma avx2\n"), name);
  EXPECT_EQ(cpu("Features\t: asimd sve\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n").find("0x41 0xd40 (kind "), 0U);
  EXPECT_EQ(cpu("nonsense without a mark\n:\n").find("unknown processor"), 0U);
}

}  // namespace
}  // namespace heddle
