#include "inspection/run/parameters.hpp"

#include <heddle/core/parameters/schedules.hpp>

#include "inspection/model/neighbours.hpp"
#include "test.hpp"

namespace heddle {
namespace {

// Adam's options, unless they are set.
constexpr double beta1 = 0.9;
constexpr double beta2 = 0.98;
constexpr double epsilon = 1e-9;

double learning_rate(OptimizerConfig const& optimizer, std::int64_t step, std::int64_t total_steps) {
  ScheduleRegistry schedules;
  register_schedules(schedules);
  return schedules.learning_rate(optimizer, step, total_steps);
}

/// Adam's steps as the papers write them; returns the values before and after the last one, with its moments.
struct Trained {
  std::vector<double> before, after;
  std::vector<float> value, first, second;
};
Trained train(OptimizerConfig const& optimizer, UpdateRule const& rule, std::int64_t steps, std::int64_t total) {
  Trained trained{{0.5, -1.25, 2, 0.125}, {}, {}, {}, {}};
  std::vector<double> value = trained.before;
  std::vector<double> m(4);
  std::vector<double> v(4);
  for (std::int64_t step = 1; step <= steps; ++step) {
    trained.before = value;
    double const rate = learning_rate(optimizer, step - 1, total) * rule.learning_rate_factor;
    for (std::size_t i = 0; i < value.size(); ++i) {
      double const gradient = std::cos(static_cast<double>(step) + 2.5 * static_cast<double>(i));
      m[i] = beta1 * m[i] + (1 - beta1) * gradient;
      v[i] = beta2 * v[i] + (1 - beta2) * gradient * gradient;
      double const corrected_m = m[i] / (1 - std::pow(beta1, static_cast<double>(step)));
      double const corrected_v = v[i] / (1 - std::pow(beta2, static_cast<double>(step)));
      double const decay = rule.name == "adamw" ? rate * rule.weight_decay * value[i] : 0;
      value[i] -= rate * corrected_m / (std::sqrt(corrected_v) + epsilon) + decay;
    }
  }
  trained.after = value;
  trained.value.assign(value.begin(), value.end());
  trained.first.assign(m.begin(), m.end());
  trained.second.assign(v.begin(), v.end());
  return trained;
}

TEST(UpdateNorm, IsTheDistanceOfTheLastStep) {
  OptimizerConfig const optimizer{.learning_rate = 0.05, .warmup_steps = 4};
  for (auto const* const name : {"adam", "adamw"}) {
    UpdateRule const rule{.name = name, .learning_rate_factor = 0.5, .weight_decay = 0.1};
    for (std::int64_t const steps : {1, 7}) {
      Trained const trained = train(optimizer, rule, steps, 100);
      double squares = 0;
      for (std::size_t i = 0; i < trained.after.size(); ++i) {
        squares += std::pow(trained.after[i] - trained.before[i], 2);
      }
      auto const squares_of = [&](std::size_t begin, std::size_t count) {
        auto const part = [&](std::vector<float> const& all) { return std::span(all).subspan(begin, count); };
        return squared_update_norm({part(trained.value), part(trained.first), part(trained.second)}, rule,
                                   {learning_rate(optimizer, steps - 1, 100), steps});
      };
      double const norm = std::sqrt(squares_of(0, 1) + squares_of(1, 3));
      EXPECT_NEAR(norm, std::sqrt(squares), 1e-6 * norm) << steps << " steps";
      EXPECT_GT(norm, 1e-3);
    }
  }
}

TEST(NearestRows, AreThoseOfTheGreatestCosine) {
  std::vector<float> const values{1,  0, 0,  //
                                  2,  2, 0,  //
                                  0,  0, 3,  //
                                  -1, 0, 0,  //
                                  9,  1, 0,  //
                                  0,  0, 0};
  auto const nearest_to = [&](std::vector<std::int32_t> const& of, std::size_t count) {
    std::vector<std::vector<float>> rows;
    for (std::int32_t const id : of) {
      rows.emplace_back(values.begin() + 3 * id, values.begin() + 3 * id + 3);
    }
    NearestRows search(of, rows, count);
    search.add(std::span(values).first(12), 0);
    search.add(std::span(values).subspan(12), 4);
    return search.found();
  };
  auto const nearest = nearest_to({0}, 3);
  ASSERT_EQ(nearest.size(), 3U);
  EXPECT_EQ(nearest[0].id, 4);
  EXPECT_NEAR(nearest[0].cosine, 9 / std::sqrt(82.0), 1e-12);
  EXPECT_EQ(nearest[1].id, 1);
  EXPECT_NEAR(nearest[1].cosine, std::sqrt(0.5), 1e-12);
  EXPECT_EQ(nearest[2].id, 2);  // 0, like row 5, with the lower id
  EXPECT_EQ(nearest_to({0}, 99).size(), 5U);
  EXPECT_EQ(nearest_to({0}, 99).back().id, 3);
  EXPECT_EQ(nearest_to({0, 2}, 1).front().id, 4);
  EXPECT_TRUE(nearest_to({0, 3}, 2).empty());  // their mean has no direction
  EXPECT_TRUE(nearest_to({}, 2).empty());
}

}  // namespace
}  // namespace heddle
