#include "measures/rate_search.hpp"

#include <cmath>

#include "test.hpp"

namespace heddle {
namespace {

/// Rates from 1e-5 by the same factor, and losses that fall up to `best` and rise after it.
std::vector<TriedRate> steps_with_best(double best, std::size_t count = 200, double last = 0.1) {
  std::vector<TriedRate> steps;
  for (std::size_t step = 0; step < count; ++step) {
    double const rate = 1e-5 * std::pow(last / 1e-5, static_cast<double>(step) / static_cast<double>(count - 1));
    double const distance = std::log10(rate / best);
    steps.push_back({rate, 3 + distance * distance + (step % 2 == 0 ? 0.1 : -0.1)});
  }
  return steps;
}

TEST(RateSearch, ProposesAThirdOfTheRateUpToWhichTheLossFalls) {
  RateSearch const search = search_rate(steps_with_best(0.01));
  EXPECT_NEAR(std::log10(search.lowest), -2, 0.05) << "the loss's noise is averaged";
  EXPECT_DOUBLE_EQ(search.proposed, 0.003);
  EXPECT_EQ(search.doubt, "");
  EXPECT_EQ(search.tried.size(), 200U);
  EXPECT_NEAR(search_rate(steps_with_best(0.0007)).proposed, 0.0002, 1e-12);
}

TEST(RateSearch, StepsAfterALossThatIsNotFiniteDoNotCount) {
  std::vector<TriedRate> steps = steps_with_best(0.001);
  steps[150].loss = INFINITY;
  steps[151].loss = 0;
  RateSearch const search = search_rate(steps);
  EXPECT_EQ(search.tried.size(), 150U);
  EXPECT_DOUBLE_EQ(search.proposed, 0.0003);
  steps[19].loss = NAN;
  expect_data_error([&] { search_rate(steps); }, "the loss of only 19 steps is finite");
}

TEST(RateSearch, SaysWhenItKnowsLittle) {
  expect_contains(search_rate(steps_with_best(0.5)).doubt, "try higher rates");
  std::vector<TriedRate> flat = steps_with_best(0.01);
  for (TriedRate& step : flat) {
    step.loss = 9 + 0.01 * step.loss;
  }
  expect_contains(search_rate(flat).doubt, "take more steps");
}

TEST(RateSearch, ItsPictureHasEachRate) {
  std::string const svg = draw(search_rate(steps_with_best(0.01)));
  EXPECT_EQ(std::ranges::count(svg, ','), 200);
  expect_contains(svg, "proposed: 0.003");
  expect_contains(svg, ">1e-4</text>");
}

}  // namespace
}  // namespace heddle
