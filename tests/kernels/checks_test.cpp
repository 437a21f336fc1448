#include <heddle/core/checks/check.hpp>
#include <heddle/core/config/kernel_choices.hpp>
#include <heddle/core/trials/trials.hpp>

#include "kernel_fixture.hpp"

// Every built-in implementation against the reference, and the reference against central differences, in the trials of
// core/trials. The other tests of this folder are for properties that a comparison does not show.

namespace heddle {
namespace {

class ChecksTest : public BuiltInKernelsTest, public testing::WithParamInterface<std::string_view> {
 protected:
  ChecksTest() { add_built_in_trials(registries_); }
};

TEST_P(ChecksTest, EveryImplementationPassesItsTrials) {
  AnyKernelRegistry const* const registry = registries_.registry(GetParam());
  ASSERT_NE(registry, nullptr);
  for (Implementation const& implementation : registry->implementations()) {
    std::vector<CheckResult> const results =
        check_kernel(registries_, registry->operation(), implementation.name, execution_);
    for (CheckResult const& result : results) {
      EXPECT_TRUE(result.passed()) << describe(result);
    }
    bool const runs_everything = implementation.name == "reference" || implementation.name == "kokkos";
    EXPECT_GE(results.size(), runs_everything ? registry->trials().size() : 1) << implementation.name;
  }
  EXPECT_EQ(scratch_.mark(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Operations, ChecksTest, testing::ValuesIn(operation_names().begin(), operation_names().end()),
                         [](auto const& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace heddle
