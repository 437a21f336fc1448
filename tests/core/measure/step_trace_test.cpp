#include <Kokkos_Core.hpp>
#include <heddle/core/measure/step_trace.hpp>
#include <heddle/core/operations/gemm.hpp>
#include <tuple>

#include "kernel_test_support.hpp"

namespace heddle {
namespace {

std::vector<std::string>& regions() {
  static std::vector<std::string> names;
  return names;
}

/// Notes the regions that a tool of Kokkos would see, as "+name" and "-".
class RegionNotes {
 public:
  RegionNotes() {
    regions().clear();
    Kokkos::Tools::Experimental::set_push_region_callback(
        [](char const* name) { regions().push_back(std::string("+") + name); });
    Kokkos::Tools::Experimental::set_pop_region_callback([] { regions().push_back("-"); });
  }
  ~RegionNotes() {
    Kokkos::Tools::Experimental::set_push_region_callback(nullptr);
    Kokkos::Tools::Experimental::set_pop_region_callback(nullptr);
  }
  RegionNotes(RegionNotes const&) = delete;
  RegionNotes& operator=(RegionNotes const&) = delete;
};

KernelCall call_of(bool& made) {
  KernelCall call;
  call.operation = "gemm";
  call.direction = "forward";
  call.extents = "2 x 3 x 4";
  call.make = [&made] { made = true; };
  return call;
}

using StepTraceTest = KernelTest;

TEST_F(StepTraceTest, EventsAreNestedAsTheWorkIs) {
  StepTrace trace(false);
  trace.record(true);
  bool made = false;
  {
    WorkScope const step(&trace, {WorkKind::step, "step 1"});
    WorkScope const layer(&trace, {WorkKind::layer, "encoder.layers.0.self_attention", Direction::backward});
    trace.observe(execution_, call_of(made));
  }
  EXPECT_TRUE(made);
  ASSERT_EQ(trace.events().size(), 3U);
  auto const& [step, layer, kernel] = std::tie(trace.events()[0], trace.events()[1], trace.events()[2]);
  EXPECT_EQ(trace.texts()[layer.name], "encoder.layers.0.self_attention");
  EXPECT_EQ(layer.direction, Direction::backward);
  EXPECT_EQ(trace.texts()[kernel.name], "gemm forward");
  EXPECT_EQ(trace.texts()[kernel.detail], "2 x 3 x 4");
  EXPECT_LE(step.begin, layer.begin);
  EXPECT_LE(layer.begin, kernel.begin);
  EXPECT_LE(kernel.begin, kernel.end);
  EXPECT_LE(kernel.end, layer.end);
  EXPECT_LE(layer.end, step.end);
}

TEST_F(StepTraceTest, NothingIsKeptWhileItDoesNotRecord) {
  StepTrace trace(false);
  bool made = false;
  trace.observe(execution_, call_of(made));
  EXPECT_TRUE(made);
  {
    WorkScope const step(&trace, {WorkKind::step, "step 1"});
    trace.record(true);
    WorkScope const layer(&trace, {WorkKind::layer, "output"});
    trace.record(false);
  }
  ASSERT_EQ(trace.events().size(), 1U) << "the layer that was begun while it recorded";
  EXPECT_GT(trace.events().front().end, 0);
}

TEST_F(StepTraceTest, AToolOfKokkosSeesLayersAndKernelsAsRegions) {
  RegionNotes const notes;
  StepTrace trace(true);
  bool made = false;
  {
    WorkScope const forward(&trace, {WorkKind::layer, "output"});
    trace.observe(execution_, call_of(made));
  }
  WorkScope(&trace, {WorkKind::layer, "output", Direction::backward});
  EXPECT_THAT(regions(), ElementsAre("+output", "+gemm forward", "-", "-", "+output backward", "-"));
  EXPECT_TRUE(trace.events().empty());
}

}  // namespace
}  // namespace heddle
