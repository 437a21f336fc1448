#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/state/replica_check.hpp>

#include "state/load_state.hpp"

// A rule that keeps rows, columns and a scalar of whole parameters, in every layout and through checkpoints.

namespace heddle {
namespace {

using Options = SyntheticModel::Options;

constexpr std::int64_t factored_batches = 5;
constexpr char const* row_key = "factored.row_second_moment";
constexpr char const* column_key = "factored.column_second_moment";
constexpr char const* updates_key = "factored.updates";

/// Matrices, tables of several stages and some vectors are factored; the rest has Adam.
Options factored(bool shard = false) {
  return {.shard = shard, .groups = {{"factored", {"*.rows", "*.columns", "tied", "*.bias"}, {.name = "factored"}}}};
}

/// The rule as the paper writes it (algorithms 4 and 5, without relative step sizes), with sums over rows and columns,
/// in float64.
struct FactoredOracle {
  std::size_t rows;
  std::size_t columns;
  std::vector<double> value;
  std::vector<double> row_sums = std::vector<double>(rows, 0.0);
  std::vector<double> column_sums = std::vector<double>(columns, 0.0);
  std::vector<double> momentum = std::vector<double>(rows * columns, 0.0);

  void update(std::vector<float> const& gradient, int t) {
    double const beta = t == 1 ? 0 : 1 - std::pow(t, -0.8);
    for (std::size_t i = 0; i < rows; ++i) {
      double sum = 0;
      for (std::size_t j = 0; j < columns; ++j) {
        sum += std::pow(gradient[i * columns + j], 2) + 1e-30;
      }
      row_sums[i] = beta * row_sums[i] + (1 - beta) * sum;
    }
    for (std::size_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (std::size_t i = 0; i < rows; ++i) {
        sum += std::pow(gradient[i * columns + j], 2) + 1e-30;
      }
      column_sums[j] = beta * column_sums[j] + (1 - beta) * sum;
    }
    double const all = std::accumulate(row_sums.begin(), row_sums.end(), 0.0);
    std::vector<double> scaled(value.size());
    double squares = 0;
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = 0; j < columns; ++j) {
        double& each = scaled[i * columns + j];
        each = gradient[i * columns + j] / std::sqrt(row_sums[i] * column_sums[j] / all);
        squares += each * each;
      }
    }
    double const root_mean_square = std::sqrt(squares / static_cast<double>(value.size()));
    for (std::size_t i = 0; i < value.size(); ++i) {
      momentum[i] = 0.9 * momentum[i] + 0.1 * scaled[i] / std::max(1.0, root_mean_square);
      value[i] -= 0.01 * momentum[i];
    }
  }
};

class FactoredRuleTest : public CheckpointTest {
 protected:
  static std::vector<WholeTensor> run_steps(SyntheticModel& model, std::int64_t first, std::int64_t last) {
    for (std::int64_t step = first; step < last; ++step) {
      model.step(step, factored_batches);
    }
    return model.gathered();
  }
  void expect_on_rank_0(std::vector<WholeTensor> const& actual, std::vector<WholeTensor> const& expected) const {
    if (world_.rank() == 0) {
      EXPECT_TRUE(actual == expected);
    }
  }
  static WholeTensor const& find(std::vector<WholeTensor> const& all, std::string const& name) {
    return *std::ranges::find(all, name, &WholeTensor::name);
  }
};

TEST_F(FactoredRuleTest, FiveStepsAreThoseOfThePaper) {
  SyntheticModel model(ParallelState(), factored());
  std::map<std::string, FactoredOracle> oracles;
  auto const add = [&](std::string const& name, std::size_t rows, std::size_t columns) {
    auto const value = to_host<float>(model.parameters.find(name)->value);
    oracles.emplace(name, FactoredOracle{rows, columns, {value.begin(), value.end()}});
  };
  add("layer0.rows", 9, 33);
  add("layer7.columns", 30, 5);
  add("tied", 11, 13);
  add("layer3.bias", 1, 21);
  for (int step = 1; step <= 5; ++step) {
    model.step(step, factored_batches);
    for (auto& [name, oracle] : oracles) {
      Parameter const& parameter = *model.parameters.find(name);
      oracle.update(to_host<float>(parameter.gradient), step);
      auto const value = to_host<float>(parameter.value);
      for (std::size_t i = 0; i < value.size(); ++i) {
        ASSERT_NEAR(value[i], oracle.value[i], 2e-6) << name << "[" << i << "], step " << step;
      }
    }
  }
  for (auto const& [name, oracle] : oracles) {
    auto const arrays = find(model.gathered(), name).arrays;
    ASSERT_THAT(arrays.at(row_key), SizeIs(oracle.rows));
    ASSERT_THAT(arrays.at(column_key), SizeIs(oracle.columns));
    EXPECT_THAT(arrays.at(updates_key), ElementsAre(5.0F));
    EXPECT_THAT(arrays.at("factored.momentum"), SizeIs(oracle.value.size()));
    for (std::size_t i = 0; i < oracle.rows; ++i) {
      double const mean = oracle.row_sums[i] / static_cast<double>(oracle.columns);
      EXPECT_NEAR(arrays.at(row_key)[i], mean, 1e-5 * mean) << name;
    }
    for (std::size_t i = 0; i < oracle.columns; ++i) {
      double const mean = oracle.column_sums[i] / static_cast<double>(oracle.rows);
      EXPECT_NEAR(arrays.at(column_key)[i], mean, 1e-5 * mean) << name;
    }
  }
}

TEST_F(FactoredRuleTest, EveryLayoutHasTheBitsOfOneRankAndWritesAndReadsThem) {
  SyntheticModel alone(ParallelState(), factored());
  std::vector<WholeTensor> const written = run_steps(alone, 0, 2);
  std::string file;
  if (world_.rank() == 0) {
    file = read_whole(commit(alone, "alone", 1) / "tensors-00000.h5");
  }
  std::vector<WholeTensor> const expected = run_steps(alone, 2, 4);
  ASSERT_FALSE(written == expected);
  int number = 0;
  for (auto const& layout : all_layouts_of(world_.size())) {
    if (layout.size(MeshAxis::tensor) > 1) {
      continue;
    }
    for (bool const shard : {false, true}) {
      SyntheticModel model(state_of(layout), factored(shard));
      SCOPED_TRACE(testing::Message() << model.parallel.mesh.to_string() << (shard ? ", sharded" : ""));
      expect_on_rank_0(run_steps(model, 0, 2), written);
      std::string const store = std::to_string(number++);
      fs::path const whole = commit(model, store, 1);
      if (world_.rank() == 0) {
        EXPECT_TRUE(read_whole(whole / "tensors-00000.h5") == file);
      }
      fs::path const divided = commit(model, store + "-divided", world_.size());
      SyntheticModel resumed(state_of(layout), factored(shard));
      load_state(resumed, Checkpoint::open(divided, world_));
      expect_on_rank_0(resumed.gathered(7), written);
      expect_on_rank_0(run_steps(resumed, 2, 4), expected);
      EXPECT_NO_THROW(check_replicas(resumed.parallel, resumed.parameters, &resumed.optimizer));
    }
  }
}

TEST_F(FactoredRuleTest, OneReplicaKeepsAllStateOfAParameter) {
  for (bool const shard : {false, true}) {
    SyntheticModel const model(state_of({1, world_.size(), 1, 1}), {.shard = shard, .rule = "factored"});
    std::int64_t numbers = 0;
    for (Parameter const& parameter : model.parameters.all()) {
      for (StateTensor const& state : parameter.state) {
        std::int64_t const size = shape_of(state.shape, parameter.local_shape).size();
        auto const kept = model.optimizer.kept_state(parameter, state);
        ASSERT_LE(kept.size(), 1U);
        EXPECT_THAT(kept, Each(IndexRange{0, size})) << state.key << " of " << parameter.spec.name;
        auto const owners = gather_values(world_, static_cast<int>(kept.size()));
        EXPECT_EQ(std::accumulate(owners.begin(), owners.end(), 0), shard ? 1 : world_.size());
        numbers += shard ? size : world_.size() * size;
      }
    }
    auto const bytes = gather_values(world_, model.optimizer.local().state_bytes());
    EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}), 4 * numbers);
  }
}

TEST_F(FactoredRuleTest, DamagedRowsAreFoundAndNamed) {
  if (world_.size() == 1) {
    return;  // nothing is compared
  }
  for (bool const shard : {false, true}) {
    SyntheticModel model(state_of({1, world_.size(), 1, 1}), factored(shard));
    model.step(0, factored_batches);
    Parameter const& parameter = *model.parameters.find("layer2.rows");
    bool const keeps = !model.optimizer.kept_state(parameter, parameter.state.front()).empty();
    auto const ranks = gather_values(world_, keeps ? 1 : 0);
    auto const last = static_cast<int>(ranks.rend() - std::find(ranks.rbegin(), ranks.rend(), 1)) - 1;
    if (world_.rank() == last) {
      Tensor const rows = model.optimizer.local().state_in(row_key, elements_of(parameter));
      auto numbers = to_host<float>(rows);
      EXPECT_EQ(numbers.size(), 9U);
      numbers.back() *= 2;
      copy_from_host(rows, numbers.data());
    }
    std::string const error = error_of([&] { check_replicas(model.parallel, model.parameters, &model.optimizer); });
    expect_contains(error, std::string(row_key) + " of layer2.rows");
  }
}

}  // namespace
}  // namespace heddle
