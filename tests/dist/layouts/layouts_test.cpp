#include <fmt/format.h>

#include <map>
#include <set>

#include "dist_fixture.hpp"
#include "kernel_test_support.hpp"
#include "layout_run.hpp"

namespace heddle {
namespace {

// A model gives the outputs, gradients and trajectory of one rank on any mesh. All in float64, where only the rounding
// of sums in another order remains.
constexpr double tolerance = 1e-9;
constexpr int all_steps = 10;
/// Enough for updates with the moments of earlier steps.
constexpr int few_steps = 3;

/// Results of one rank.
struct Expected {
  std::vector<double> output;  ///< of micro-batch 1 of step 0
  std::map<std::string, std::vector<double>> gradients, parameters;
  std::vector<double> losses, norms;
};

Expected one_rank(Variant const& variant, int steps) {
  LayoutRun run(variant, Layout{}, Communicator::self());
  Expected expected;
  expected.output = values(run.output(run.pack(0, 1)));
  for (int step = 0; step < steps; ++step) {
    expected.losses.push_back(run.accumulate(step));
    for (Parameter const& parameter : run.engine().parameters().all()) {
      if (step == 0) {
        expected.gradients[parameter.spec.name] = values(parameter.gradient);
      }
    }
    expected.norms.push_back(run.engine().update(run.rate(), step + 1));
  }
  for (Parameter const& parameter : run.engine().parameters().all()) {
    expected.parameters[parameter.spec.name] = values(parameter.value);
  }
  return expected;
}

Expected const& expected_of(Variant const& variant, int steps) {
  static std::map<std::pair<Variant, int>, Expected> known;
  auto const [place, is_new] = known.try_emplace({variant, steps});
  if (is_new) {
    place->second = one_rank(variant, steps);
  }
  return place->second;
}

/// This rank's rows of a whole pack's matrix.
std::vector<double> own_rows(std::vector<double> const& whole, Pack const& pack, GroupMember const& split,
                             Communicator const& context_group) {
  TokenRows const& rows = pack.target_rows;
  std::size_t const columns = 16;
  std::vector<std::int32_t> places;
  if (context_group.size() > 1) {
    auto const from_whole = to_host<std::int32_t>(pack.target_context.from_whole);
    std::size_t begin = 0;
    for (int rank = 0; rank < context_group.rank(); ++rank) {
      begin += static_cast<std::size_t>(pack.target_context.shards[static_cast<std::size_t>(rank)].tokens);
    }
    auto const first = from_whole.begin() + static_cast<std::ptrdiff_t>(begin);
    places.assign(first, first + rows.tokens);
  } else {
    for (std::int64_t row = 0; row < rows.tokens; ++row) {
      places.push_back(static_cast<std::int32_t>(row));
    }
  }
  std::vector<double> own;
  IndexRange const held = share(rows.tokens, split.rank, split.ranks);
  for (std::int64_t row = held.begin; row < held.end; ++row) {
    auto const from = whole.begin() + static_cast<std::ptrdiff_t>(columns) * places[static_cast<std::size_t>(row)];
    own.insert(own.end(), from, from + static_cast<std::ptrdiff_t>(columns));
  }
  return own;
}

/// The axis by which a layout of two ranks splits a model, as docs/reference/kernels.md names it.
std::string model_axis(Layout const& layout) {
  if (layout.size(MeshAxis::tensor) > 1) {
    return layout.sequence_parallel ? "sequence" : "tensor";
  }
  if (layout.size(MeshAxis::context) > 1) {
    return layout.context_mode == ContextMode::ring ? "ring" : "ulysses";
  }
  return layout.size(MeshAxis::pipeline) > 1 ? "pipeline" : "data";
}

class LayoutsTest : public DistTest {
 protected:
  void compare(Variant const& variant, Layout const& layout, int steps) {
    SCOPED_TRACE(describe(variant) + ", " + describe(layout));
    Expected const& expected = expected_of(variant, steps);
    LayoutRun run(variant, layout, world_);
    compare_output(run, expected);
    for (int step = 0; step < steps; ++step) {
      double const loss = run.accumulate(step);
      auto const index = static_cast<std::size_t>(step);
      EXPECT_NEAR(loss, expected.losses[index], tolerance * expected.losses[index]) << "step " << step;
      if (step == 0 && !layout.shard_optimizer) {
        compare_parameters(run, expected.gradients, true);
      }
      double const norm = run.engine().update(run.rate(), step + 1);
      EXPECT_NEAR(norm, expected.norms[index], 100 * tolerance * expected.norms[index]) << "step " << step;
    }
    compare_parameters(run, expected.parameters, false);
  }

  void compare_output(LayoutRun& run, Expected const& expected) {
    Pack const pack = run.pack(0, 1);
    Tensor const output = run.output(pack);
    if (!output.empty()) {
      auto const rows = own_rows(expected.output, pack, run.engine().row_split(), run.context());
      EXPECT_LE(relative_error(values(output), rows), tolerance) << "the last layer's output";
    }
  }

  static void compare_parameters(LayoutRun& run, std::map<std::string, std::vector<double>> const& expected,
                                 bool gradients) {
    for (Parameter const& parameter : run.engine().parameters().all()) {
      ParameterSet const& set = run.engine().parameters();
      std::vector<double> const& whole = expected.at(parameter.spec.name);
      auto const part = gradients ? local_part(whole, parameter) : held_part(whole, set, parameter);
      auto const actual = gradients ? values(parameter.gradient) : held_values(set, parameter);
      // A gradient that is zero except for rounding (of biases that a softmax cancels) is compared absolutely.
      double worst = 0;
      double largest = 1e-3;
      for (std::size_t index = 0; index < part.size(); ++index) {
        worst = std::max(worst, std::abs(part[index] - actual[index]));
        largest = std::max(largest, std::abs(part[index]));
      }
      EXPECT_EQ(part.size(), actual.size());
      EXPECT_LE(worst, (gradients ? 1 : 1000) * tolerance * largest)
          << parameter.spec.name << (gradients ? ": gradient" : ": value");
    }
  }
};

// Each layout trains one kind, in turn, for ten steps and the others for a few. More than four ranks have many layouts:
// each trains one of two kinds, which differ in norm and embeddings, and each switch is trained with both.
TEST_F(LayoutsTest, EveryLayoutOfTheRanksTrainsAsOneRank) {
  auto const layouts = layouts_on(world_.size());
  std::vector<Variant> const variants = all_variants();
  int runs = 0;
  for (std::size_t number = 0; number < layouts.size(); ++number) {
    bool const few_kinds = world_.size() > 4;
    std::size_t const turn = few_kinds ? (number + number / 2) % 2 * (variants.size() - 1) : number % variants.size();
    for (std::size_t kind = 0; kind < variants.size(); ++kind) {
      if (kind == turn || !few_kinds) {
        compare(variants[kind], layouts[number], kind == turn ? all_steps : few_steps);
        ++runs;
      }
    }
  }
  if (world_.rank() == 0) {
    fmt::print("{} layouts of {} ranks, {} kinds of model: {} runs\n", layouts.size(), world_.size(), variants.size(),
               runs);
  }
}

// Each layout of up to four ranks; of more, those in which both replicas and tensor ranks share the matrices.
// SOAP is not among the rules: at first a matrix of low rank has many eigenbases, of which rounding chooses. Adafactor
// would make steps of gradients that are rounding alone without a larger epsilon. Replicas cannot divide the matrices.
TEST_F(LayoutsTest, EveryLayoutTrainsWithRulesOfWholeParametersAsOneRank) {
  for (char const* const rule : {"\"muon\"", "\"adafactor\"\nepsilon = 1e-12", "\"lamb\""}) {
    Variant const variant{NormPlacement::pre, true, fmt::format("[optimizer]\nname = {}", rule)};
    for (Layout layout : layouts_on(world_.size())) {
      layout.shard_parameters = false;
      if (world_.size() <= 2 || (layout.replicas() > 1 && layout.size(MeshAxis::tensor) > 1)) {
        compare(variant, layout, few_steps);
      }
    }
  }
}

// Among layouts with a data axis only those with a sharded optimizer train here: it is the hardest case. More than two
// ranks have many layouts: each trains one kind, in turn.
TEST_F(LayoutsTest, OtherKindsOfModelTrainAsOnOneRank) {
  auto layouts = layouts_on(world_.size());
  std::erase_if(layouts,
                [](Layout const& layout) { return layout.shard_optimizer != (layout.size(MeshAxis::data) > 1); });
  std::vector<Variant> const variants = other_variants();
  std::size_t const at_once = world_.size() > 2 ? 1 : variants.size();
  std::set<std::pair<std::size_t, std::string>> axes, refused;  // by which each kind was split, or cannot be
  for (std::size_t number = 0; number < layouts.size() * at_once; ++number) {
    Layout const& layout = layouts[number / at_once];
    std::size_t const kind = number % variants.size();
    if (supports(config_of(variants[kind], layout), layout)) {
      compare(variants[kind], layout, few_steps);
      axes.emplace(kind, model_axis(layout));
    } else {
      refused.emplace(kind, model_axis(layout));
    }
  }
  if (world_.size() == 2) {
    // docs/reference/kernels.md says so of all variants, but for one with a capacity of experts and the two kinds of
    // students, which come last.
    std::size_t const capacity = variants.size() - 3;
    std::size_t const ssru = variants.size() - 2;
    std::size_t const average_attention = variants.size() - 1;
    EXPECT_THAT(refused,
                testing::UnorderedElementsAre(
                    testing::Pair(capacity, "ring"), testing::Pair(capacity, "ulysses"), testing::Pair(ssru, "ring"),
                    testing::Pair(ssru, "ulysses"), testing::Pair(average_attention, "ring"),
                    testing::Pair(average_attention, "ulysses"), testing::Pair(average_attention, "sequence")));
    std::set<std::string> const all{"tensor", "sequence", "ring", "ulysses", "pipeline"};
    for (std::size_t kind = 0; kind < variants.size(); ++kind) {
      for (std::string const& axis : all) {
        EXPECT_TRUE(axes.contains({kind, axis}) || refused.contains({kind, axis}))
            << describe(variants[kind]) << " was not split by " << axis;
      }
    }
  }
  if (world_.rank() == 0) {
    fmt::print("{} layouts of {} ranks, {} of {} kinds of model with each\n", layouts.size(), world_.size(), at_once,
               variants.size());
  }
}

// Each layout trains four kinds, in turn; of more than four ranks one.
TEST_F(LayoutsTest, EncodersWithAGridOfTheirOwnTrainAsOnOneRank) {
  std::vector<Variant> variants = all_variants();
  std::ranges::copy(other_variants(), std::back_inserter(variants));
  std::erase_if(variants,
                [](Variant const& variant) { return has_experts(description_of(config_of(variant, Layout()).model)); });
  std::size_t runs = 0;
  for (Layout const& layout : grid_layouts_on(world_.size())) {
    int const kinds = world_.size() > 4 ? 1 : 4;
    for (int kind = 0; kind < kinds; ++kind) {
      auto const supported = std::ranges::find_if(
          variants, [&](Variant const& each) { return supports(config_of(each, layout), layout); });
      ASSERT_NE(supported, variants.end()) << describe(layout);
      compare(*supported, layout, few_steps);
      std::rotate(variants.begin(), supported + 1, variants.end());
      ++runs;
    }
  }
  if (world_.rank() == 0) {
    fmt::print("{} runs with a grid of the encoder's own\n", runs);
  }
}

// Each layout with replicas, with each number of them that can divide the experts, trains one kind, in turn.
TEST_F(LayoutsTest, ModelsWhoseExpertsReplicasDivideTrainAsOnOneRank) {
  std::vector<Variant> variants = other_variants();
  std::erase_if(variants, [](Variant const& variant) {
    return !has_experts(description_of(config_of(variant, Layout()).model));
  });
  ASSERT_EQ(variants.size(), 2U);
  std::size_t runs = 0;
  for (Layout layout : layouts_on(world_.size())) {
    for (int const expert : divisors_of(layout.shard_optimizer ? layout.replicas() : 1)) {
      layout.expert = expert;
      auto const supported = std::ranges::find_if(
          variants, [&](Variant const& each) { return supports(config_of(each, layout), layout); });
      if (expert > 1 && supported != variants.end()) {
        compare(*supported, layout, few_steps);
        std::ranges::rotate(variants, variants.begin() + 1);
        ++runs;
      }
    }
  }
  if (world_.rank() == 0) {
    fmt::print("{} runs with divided experts\n", runs);
  }
}

}  // namespace
}  // namespace heddle
