#include <cmath>
#include <heddle/core/operations/expert_routing.hpp>
#include <limits>

#include "kernel_fixture.hpp"

namespace heddle {
namespace {

/// Properties of routings that a trial's tolerances would not show.
class ExpertRoutingTest : public BuiltInKernelsTest {
 protected:
  static ExpertRoutes routes_for(ExpertRoutingCall const& call) {
    DType const real = call.logits.dtype();
    Shape const choices{call.logits.dim(0), call.chosen};
    Shape const experts{call.logits.dim(1)};
    return {.scores = Tensor::allocate(real, call.logits.shape()),
            .chosen = Tensor::allocate(DType::int32, choices),
            .weights = Tensor::allocate(real, choices),
            .row = Tensor::allocate(DType::int32, Shape{choices.size()}),
            .place = Tensor::allocate(DType::int32, choices),
            .load = Tensor::allocate(DType::float64, experts),
            .counts = Tensor::allocate(DType::int32, experts),
            .host_counts = Tensor::allocate_on_host(DType::int32, experts)};
  }
  ExpertRoutes route(ExpertRouting& kernel, ExpertRoutingCall const& call) {
    ExpertRoutes const routes = routes_for(call);
    kernel.route(execution_, call, routes);
    return routes;
  }
};

TEST_F(ExpertRoutingTest, EqualLogitsGoToTheFirstExpertsInEveryImplementation) {
  ExpertRoutingCall const call{tensor_of({1, 1, 1, 1, 0, 2, 2, 0}, DType::float32, Shape{2, 4}), 2};
  for (auto const& entry : registries_.of<ExpertRouting>().entries()) {
    ExpertRoutes const routes = route(*entry.kernel, call);
    EXPECT_EQ(values(routes.chosen), (Values{0, 1, 1, 2})) << entry.name;
    EXPECT_EQ(values(routes.row), (Values{0, 0, 1, 1})) << entry.name;
    EXPECT_EQ(values(routes.place), (Values{0, 1, 2, 3})) << entry.name;
    EXPECT_EQ(values(routes.host_counts), (Values{1, 2, 1, 0})) << entry.name;
  }
}

/// The weights are those of the scores, and a bias of zero chooses what none does.
TEST_F(ExpertRoutingTest, ABiasChoosesButDoesNotWeigh) {
  ExpertRoutingCall call{tensor_of({0, 1, -1, 3, 0, 2}, DType::float32, Shape{2, 3}), 2, ExpertScoring::sigmoid};
  for (auto const& entry : registries_.of<ExpertRouting>().entries()) {
    call.bias = Tensor();
    Values const unbiased = values(route(*entry.kernel, call).chosen);
    call.bias = tensor_of({0, 0, 0}, DType::float32, Shape{3});
    EXPECT_EQ(values(route(*entry.kernel, call).chosen), unbiased) << entry.name;
    call.bias = tensor_of({0, 0, 0.4}, DType::float32, Shape{3});
    ExpertRoutes const routes = route(*entry.kernel, call);
    EXPECT_EQ(unbiased, (Values{1, 0, 0, 2})) << entry.name;
    EXPECT_EQ(values(routes.chosen), (Values{1, 2, 2, 0})) << entry.name;
    Values const weights = values(routes.weights);
    EXPECT_NEAR(weights[1], 1 / (1 + std::exp(1.0)), 1e-6) << entry.name;
    EXPECT_NEAR(weights[2], 1 / (1 + std::exp(-2.0)), 1e-6) << entry.name;
  }
}

/// Row 2's first choice comes before row 0's second one.
TEST_F(ExpertRoutingTest, ACapacityKeepsFirstChoicesAndThenTheFirstRows) {
  ExpertRoutingCall call{tensor_of({1, 2, 2, 1, 3, 1, 4, 1}, DType::float32, Shape{4, 2}), 2};
  call.capacity = 3;
  for (auto const& entry : registries_.of<ExpertRouting>().entries()) {
    ExpertRoutes routes = route(*entry.kernel, call);
    EXPECT_EQ(values(routes.load), (Values{4, 4})) << entry.name;
    EXPECT_EQ(values(routes.host_counts), (Values{3, 3})) << entry.name;
    EXPECT_EQ(values(routes.place), (Values{3, -1, 0, 4, 1, 5, 2, -1})) << entry.name;
    EXPECT_EQ(values(routes.row), (Values{1, 2, 3, 0, 1, 2, -1, -1})) << entry.name;
  }
}

TEST_F(ExpertRoutingTest, NaNIsRoutedSomewhereAndSeenInTheWeights) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  for (Values const& logits : {Values{nan, nan, nan}, Values{0, nan, 1}}) {
    ExpertRoutingCall const call{tensor_of(logits, DType::float32, Shape{1, 3}), 2};
    for (auto const& entry : registries_.of<ExpertRouting>().entries()) {
      ExpertRoutes const routes = route(*entry.kernel, call);
      for (double const expert : values(routes.chosen)) {
        EXPECT_TRUE(expert >= 0 && expert < 3) << entry.name;
      }
      EXPECT_TRUE(std::isnan(values(routes.weights).front())) << entry.name;
    }
  }
}

/// Fedus et al. 2021: the loss is its factor, for each row, where the load is even, and `experts` times that where one
/// expert gets everything.
TEST_F(ExpertRoutingTest, TheBalanceLossIsOneForEachRowWhereTheLoadIsEven) {
  Values even;
  Values uneven;
  for (int row = 0; row < 6; ++row) {
    for (int expert = 0; expert < 3; ++expert) {
      even.push_back(row % 3 == expert ? 50 : 0);
      uneven.push_back(expert == 1 ? 50 : 0);
    }
  }
  Tensor const loss = Tensor::allocate(DType::float64, Shape{1});
  for (auto const& entry : registries_.of<ExpertRouting>().entries()) {
    for (auto const& [logits, expected] : {std::pair{even, 6.0}, std::pair{uneven, 18.0}}) {
      ExpertRoutingCall const call{tensor_of(logits, DType::float64, Shape{6, 3}), 1};
      ExpertRoutes const routes = route(*entry.kernel, call);
      entry.kernel->losses(execution_, call, routes, {.balance = 1}, loss);
      EXPECT_NEAR(values(loss).front(), expected, 1e-9) << entry.name;
    }
  }
}

TEST_F(ExpertRoutingTest, WrongTensorsAreRefused) {
  ExpertRoutingCall call{Tensor::allocate(DType::float32, Shape{2, 3}), 4};
  auto const kernel = registries_.of<ExpertRouting>().entries().front().kernel;
  ExpertRoutes routes = routes_for(call);
  EXPECT_THROW(kernel->route(execution_, call, routes), Error);
  call.chosen = 2;
  EXPECT_THROW(kernel->route(execution_, call, routes), Error);
  routes = routes_for(call);
  call.bias = Tensor::allocate(DType::float32, Shape{2});
  EXPECT_THROW(kernel->route(execution_, call, routes), Error);
  call.bias = Tensor();
  kernel->route(execution_, call, routes);
}

}  // namespace
}  // namespace heddle
