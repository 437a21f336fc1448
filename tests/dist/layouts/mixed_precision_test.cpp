#include <algorithm>
#include <cmath>
#include <map>

#include "dist_fixture.hpp"
#include "kernel_test_support.hpp"
#include "layout_run.hpp"

namespace heddle {
namespace {

// In bfloat16, sums over other parts are rounded at other points, each time by up to 0.4 %: within these tolerances a
// step's loss and each gradient, as a vector, agree on any mesh with those of one rank. In float32 only noise remains.
struct Tolerance {
  double loss, gradient;
};

Tolerance tolerance_of(DType dtype) {
  return dtype == DType::bfloat16 ? Tolerance{0.02, 0.25} : Tolerance{1e-5, 1e-3};
}

constexpr int steps = 3;

double length(std::vector<double> const& vector) {
  double squares = 0;
  for (double const element : vector) {
    squares += element * element;
  }
  return std::sqrt(squares);
}

struct Trajectory {
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> gradients;  ///< of the first step
};

/// This rank's part of the gradients.
Trajectory train(Variant const& variant, Layout const& layout, Communicator const& world, DType dtype,
                 std::function<void(Parameter const&)> const& visit) {
  LayoutRun run(variant, layout, world, dtype);
  Trajectory result;
  for (int step = 0; step < steps; ++step) {
    result.losses.push_back(run.accumulate(step));
    for (Parameter const& parameter : run.engine().parameters().all()) {
      if (step == 0) {
        result.gradients[parameter.spec.name] = values(parameter.gradient);
        visit(parameter);
      }
    }
    run.engine().update(run.rate(), step + 1);
  }
  return result;
}

/// Every axis separately and with others, two ranks each, with the kernels that `auto` selects.
std::vector<Layout> layouts_of_two(int ranks) {
  std::vector<Layout> layouts;
  for (Layout const& layout : layouts_on(ranks)) {
    bool const sequence_parallel = layout.size(MeshAxis::tensor) > 1;
    bool const small =
        std::ranges::all_of(layout.shape.axes(), [](MeshShape::Axis const& axis) { return axis.size <= 2; });
    if (small && !layout.shard_optimizer && layout.sequence_parallel == sequence_parallel) {
      layouts.push_back(layout);
    }
  }
  return layouts;
}

class MixedPrecisionTest : public DistTest {
 protected:
  void compare(DType dtype, Variant const& variant = {}) {
    Trajectory const expected = train(variant, {}, Communicator::self(), dtype, [](Parameter const&) {});
    double largest = 0;
    for (auto const& [name, gradient] : expected.gradients) {
      largest = std::max(largest, length(gradient));
    }
    auto const layouts = layouts_of_two(world_.size());
    EXPECT_FALSE(layouts.empty());
    for (Layout const& layout : layouts) {
      SCOPED_TRACE(describe(layout));
      auto const actual = train(variant, layout, world_, dtype, [&](Parameter const& parameter) {
        auto difference = local_part(expected.gradients.at(parameter.spec.name), parameter);
        // A gradient that is almost nothing beside the others (a key's bias has none at all) is compared with their
        // size.
        double const scale = std::max(length(difference), 0.02 * largest);
        auto const mine = values(parameter.gradient);
        std::transform(difference.begin(), difference.end(), mine.begin(), difference.begin(), std::minus<>());
        EXPECT_LE(length(difference), tolerance_of(dtype).gradient * scale) << parameter.spec.name;
      });
      for (std::size_t step = 0; step < expected.losses.size(); ++step) {
        EXPECT_NEAR(actual.losses[step], expected.losses[step], tolerance_of(dtype).loss * expected.losses[step])
            << "step " << step;
      }
    }
  }
};

TEST_F(MixedPrecisionTest, LayoutsTrainAsOneRankInBfloat16) {
  compare(DType::bfloat16);
}

TEST_F(MixedPrecisionTest, LayoutsTrainAsOneRankInFloat32) {
  compare(DType::float32);
}

TEST_F(MixedPrecisionTest, LayoutsTrainBesideFrozenWeightsInBfloat16) {
  compare(DType::float32, {.keys = "[adapter]\nrank = 3\ntargets = [\"*\"]\n[train]\nfrozen_precision = \"bfloat16\""});
}

}  // namespace
}  // namespace heddle
