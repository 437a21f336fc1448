#include <bit>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/optimizer/buffer_shards.hpp>
#include <heddle/dist/state/replica_check.hpp>

#include "dist_fixture.hpp"
#include "synthetic_model.hpp"

namespace heddle {
namespace {

ParameterSet make_parameters(Mesh const& mesh) {
  ParameterSet parameters(mesh);
  for (char const* const name : {"first", "second", "third"}) {
    parameters.declare({name, {{6, 10}, {{MeshAxis::tensor}}}, Initializer::normal(1)});
  }
  parameters.allocate(DType::float32);
  parameters.initialize(7);
  return parameters;
}

void flip_bit(Parameter const& parameter, std::size_t element, int bit) {
  auto values = to_host<float>(parameter.value);
  values[element] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(values[element]) ^ (1U << bit));
  copy_from_host(parameter.value, values.data());
}

/// The message that check_replicas threw on this rank, if it did.
std::optional<Error> check(ParallelState const& state, ParameterSet const& parameters) {
  try {
    check_replicas(state, parameters);
  } catch (Error const& error) {
    return error;
  }
  return std::nullopt;
}

using ReplicaCheckTest = DistTest;

TEST_F(ReplicaCheckTest, EqualReplicasPassOnEveryLayout) {
  for (auto const& layout : layouts_of(world_.size())) {
    Mesh const mesh = mesh_of(layout);
    if (mesh.size(MeshAxis::tensor) <= 6) {
      EXPECT_NO_THROW(check_replicas(make_parallel_state(world_, mesh), make_parameters(mesh))) << mesh.to_string();
    }
  }
}

TEST_F(ReplicaCheckTest, OneFlippedBitOnOneRankIsFoundAndNamed) {
  Mesh const mesh = mesh_of({1, world_.size(), 1, 1});
  ParallelState const state = make_parallel_state(world_, mesh);
  for (int bit : {0, 22, 31}) {
    ParameterSet const parameters = make_parameters(mesh);
    int const faulty = world_.size() - 1;
    if (world_.rank() == faulty) {
      flip_bit(parameters.all()[1], 59, bit);
    }
    auto const error = check(state, parameters);
    ASSERT_EQ(error.has_value(), world_.size() > 1) << "a lone rank has nobody to differ from";
    if (error) {
      EXPECT_EQ(error->code(), ExitCode::replicas_diverged);
      expect_contains(error->what(),
                      {"parameter second differs", "1 of 3 tensors", "{" + std::to_string(faulty) + "}"});
    }
  }
}

// Values that the ranks of a tensor group should share may also differ because a layer does not declare that its
// gradient is a part of a sum. Replicas compute the same whatever a layer declares.
TEST_F(ReplicaCheckTest, TensorRanksThatDifferMayLackADeclaration) {
  for (bool const tensor : {true, false}) {
    Mesh const mesh = mesh_of(tensor ? MeshShape(1, 1, 1, world_.size()) : MeshShape(1, world_.size(), 1, 1));
    ParameterSet parameters(mesh);
    parameters.declare({"whole", {{7}}, Initializer::normal(1)});
    parameters.allocate(DType::float32);
    parameters.initialize(7);
    if (world_.rank() == 0) {
      flip_bit(*parameters.find("whole"), 3, 4);
    }
    auto const error = check(make_parallel_state(world_, mesh), parameters);
    ASSERT_EQ(error.has_value(), world_.size() > 1);
    if (error) {
      EXPECT_EQ(error->code(), ExitCode::replicas_diverged);
      expect_contains(error->what(), "processor or the network may be faulty");
      EXPECT_EQ(std::string(error->what()).find("gradient_partial_over") != std::string::npos, tensor);
    }
  }
}

/// A parameter of each kind, on any mesh: "split" over tensor, "experts", "whole", "shared" by the first stage and the
/// last.
ParameterSet make_kinds(Mesh const& mesh) {
  ParameterSet parameters(mesh);
  int const stage = mesh.coordinate(MeshAxis::pipeline);
  int const last = mesh.size(MeshAxis::pipeline) - 1;
  if (stage != 0) {
    parameters.declare({"later", {{3}}, Initializer::normal(1)});
  }
  parameters.declare({"split", {{8, 3}, {{MeshAxis::tensor}}}, Initializer::normal(1)});
  parameters.declare({"experts", {{8, 3}, {{expert_axis}}}, Initializer::normal(1)});
  parameters.declare({"whole", {{7}}, Initializer::normal(1)});
  if (last > 0 && (stage == 0 || stage == last)) {
    parameters.declare({"shared", {{8, 2}, {{MeshAxis::tensor}}, {}, {0, last}}, Initializer::normal(1)});
  }
  parameters.allocate(DType::float32);
  parameters.initialize(7);
  return parameters;
}

TEST_F(ReplicaCheckTest, EveryRankThatMustHoldTheSameIsCompared) {
  for (auto const& layout : all_layouts_of(world_.size())) {
    Mesh const mesh = mesh_of(layout);
    ParallelState const state = make_parallel_state(world_, mesh);
    EXPECT_NO_THROW(check_replicas(state, make_kinds(mesh)));
    int const faulty = world_.size() - 1;
    for (std::string const name : {"split", "experts", "whole", "shared"}) {
      SCOPED_TRACE(testing::Message() << mesh.to_string() << ", " << name);
      ParameterSet const parameters = make_kinds(mesh);
      if (name == "shared" && mesh.size(MeshAxis::pipeline) == 1) {
        continue;
      }
      if (world_.rank() == faulty) {
        flip_bit(*parameters.find(name), 0, 4);
      }
      // Some rank differs from the last one only along axes over which the parameter is the same; all report it.
      bool const expected = mesh.shape().size(replica_axes()) > 1 ||
                            (name != "split" && mesh.size(MeshAxis::tensor) > 1) ||
                            (name != "experts" && mesh.size(expert_axis) > 1) || name == "shared";
      auto const error = check(state, parameters);
      EXPECT_EQ(error.has_value(), expected);
      if (error) {
        EXPECT_EQ(error->code(), ExitCode::replicas_diverged);
        expect_contains(error->what(), {"parameter " + name + " differs", std::to_string(faulty) + "}"});
      }
    }
  }
}

TEST_F(ReplicaCheckTest, EveryRankNamesTheRanksOfTheFaultyDataGroup) {
  if (world_.size() < 4 || world_.size() % 2 != 0) {
    return;  // tensor 2 × data 2 needs four ranks
  }
  Mesh const mesh = mesh_of({1, world_.size() / 2, 1, 2});
  ParameterSet const parameters = make_parameters(mesh);
  if (world_.rank() == 3) {
    flip_bit(parameters.all()[2], 0, 3);
  }
  auto const error = check(make_parallel_state(world_, mesh), parameters);
  ASSERT_TRUE(error.has_value());
  expect_contains(error->what(), world_.size() == 4 ? "{1} and {3}" : "{1, 5, 7} and {3}");
}

// A damaged value makes what tensor ranks compute from it differ, too: all values that they should share, on all
// replicas alike, after one step.
TEST_F(ReplicaCheckTest, TheDamagedTensorIsNamedAndNotWhatFollowsFromIt) {
  if (world_.size() < 4 || world_.size() % 2 != 0) {
    return;  // tensor 2 × data 2 needs four ranks
  }
  Mesh const mesh = mesh_of({1, world_.size() / 2, 1, 2});
  ParameterSet parameters(mesh);
  for (char const* const name : {"first", "second", "third"}) {
    parameters.declare({name, {{10}}, Initializer::normal(1)});
  }
  parameters.allocate(DType::float32);
  parameters.initialize(7);
  if (world_.rank() % 2 == 1) {
    flip_bit(*parameters.find("first"), 2, 5);
    flip_bit(*parameters.find("third"), 2, 5);
  }
  if (world_.rank() == 3) {
    flip_bit(*parameters.find("second"), 9, 30);
  }
  auto const error = check(make_parallel_state(world_, mesh), parameters);
  ASSERT_TRUE(error.has_value());
  expect_contains(error->what(),
                  "parameter second differs between ranks " +
                      std::string(world_.size() == 4 ? "{1} and {3} (1 of 3 tensors" : "{1, 5, 7} and {3} (1 of 3"));
}

TEST(DigestTest, SeesBitsNotNumbers) {
  auto const of = [](std::vector<float> const& values) { return digest(tensor_of(values)); };
  float const nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(of({1, nan}), of({1, nan}));
  EXPECT_NE(of({0.0F}), of({-0.0F}));
  EXPECT_NE(of({1, 2}), of({2, 1}));
  EXPECT_NE(of({0}), of({0, 0}));
}

TEST(DigestTest, SeesEverySingleBit) {
  std::vector<std::int32_t> words(11, 0);
  auto const untouched = digest(tensor_of(words));
  for (auto& word : words) {
    for (int bit = 0; bit < 32; ++bit) {
      word = static_cast<std::int32_t>(1U << bit);
      EXPECT_NE(digest(tensor_of(words)), untouched);
    }
    word = 0;
  }
}

// Different state makes values differ only in the next step, and a checkpoint in between would keep them.
TEST_F(ReplicaCheckTest, OptimizerStateThatMustBeTheSameIsCompared) {
  for (auto const& layout : all_layouts_of(world_.size())) {
    Mesh const mesh = mesh_of(layout);
    for (bool const shard : {false, true}) {
      SCOPED_TRACE(testing::Message() << mesh.to_string() << (shard ? ", sharded" : ""));
      SyntheticModel model(make_parallel_state(world_, mesh), {.shard = shard});
      model.step(0, 2);
      auto const compare = [&] { check_replicas(model.parallel, model.parameters, &model.optimizer); };
      EXPECT_NO_THROW(compare());
      bool const replicated = mesh.size(MeshAxis::data) * mesh.size(MeshAxis::context) > 1;
      if (!replicated || shard) {
        continue;
      }
      // Changed on the last rank only; its replicas must detect it.
      Parameter const& faulty = model.parameters.all().front();
      std::vector<float> const zeros(static_cast<std::size_t>(faulty.local_shape.size()));
      if (world_.rank() == world_.size() - 1) {
        copy_from_host(model.optimizer.local().state_in("adam.second_moment", elements_of(faulty)), zeros.data());
      }
      EXPECT_NO_THROW(check_replicas(model.parallel, model.parameters));
      std::string const name = broadcast_text(world_, faulty.spec.name, world_.size() - 1);  // of that rank's stage
      expect_contains(error_of(compare), "adam.second_moment of " + name + " differs");
    }
  }
}

/// Changes one element of a parameter's values (key 0) or state that a sharded optimizer keeps on this rank; returns
/// whether there is one.
bool damage_own(SyntheticModel& model, Parameter const& parameter, std::size_t key) {
  auto const kept = intersection({elements_of(parameter)}, model.optimizer.local().parts());
  if (kept.empty()) {
    return false;
  }
  Tensor const tensor = key == 0 ? model.parameters.values().rows(kept.back().begin, kept.back().count())
                                 : model.optimizer.local().state_in(parameter.state[key - 1], kept.back());
  auto values = to_host<float>(tensor);
  values.back() = std::bit_cast<float>(std::bit_cast<std::uint32_t>(values.back()) ^ 1U);
  copy_from_host(tensor, values.data());
  return true;
}

/// Sets values and state as a checkpoint does.
void load_other_state(SyntheticModel& model) {
  for (Parameter const& parameter : model.parameters.all()) {
    for (std::string const& key : parameter.state) {
      for (IndexRange const& kept : model.optimizer.kept_state(parameter, key)) {
        model.optimizer.set_state(parameter, key, kept,
                                  std::vector<float>(static_cast<std::size_t>(kept.count()), 0.5F));
      }
    }
  }
  model.parameters.initialize(5);
}

// With a sharded optimizer all replicas get the values from the one that updates them, damaged or not, and nobody else
// has its moments.
TEST_F(ReplicaCheckTest, StateOfAWholeMatrixIsComparedWhereSeveralStagesKeepIt) {
  int const stages = world_.size();
  SyntheticModel model(make_parallel_state(world_, mesh_of({stages, 1, 1, 1})),
                       {.groups = {{"matrices", {"tied"}, {.name = "soap"}}}});
  model.step(0, 2);
  auto const compare = [&] { check_replicas(model.parallel, model.parameters, &model.optimizer); };
  EXPECT_NO_THROW(compare());
  if (Parameter const* const tied = model.parameters.find("tied"); world_.rank() == stages - 1) {
    Tensor const basis = model.optimizer.state_in(*tied, "soap.row_basis", {0, 1});
    copy_from_host(basis, std::vector<float>{2}.data());
  }
  if (stages > 1) {
    expect_contains(error_of(compare), "soap.row_basis of tied differs");
  }
}

TEST_F(ReplicaCheckTest, WhatOnlyTheOwnerKeepsIsComparedWithWhatItsUpdateLeft) {
  for (auto const& layout : all_layouts_of(world_.size())) {
    Mesh const mesh = mesh_of(layout);
    if (mesh.size(MeshAxis::data) * mesh.size(MeshAxis::context) == 1) {
      continue;
    }
    for (std::size_t key = 0; key < 3; ++key) {
      SCOPED_TRACE(testing::Message() << mesh.to_string() << ", key " << key);
      SyntheticModel model(make_parallel_state(world_, mesh), {.shard = true});
      auto const compare = [&] { check_replicas(model.parallel, model.parameters, &model.optimizer); };
      model.step(0, 2);
      Parameter const* damaged = nullptr;
      for (Parameter const& parameter : model.parameters.all()) {
        if (world_.rank() == world_.size() - 1 && damaged == nullptr && damage_own(model, parameter, key)) {
          damaged = &parameter;
        }
      }
      model.step(1, 2);  // the other replicas get what became of it
      model.step(2, 2);
      std::string const own = damaged == nullptr ? "" : damaged->spec.name;
      std::string const name = broadcast_text(world_, own, world_.size() - 1);
      std::string const kind = std::array{"parameter ", "adam.first_moment of ", "adam.second_moment of "}[key];
      expect_contains(error_of(compare),
                      {kind + name, "on rank " + std::to_string(world_.size() - 1), "1 of its tensors"});
      load_other_state(model);
      EXPECT_NO_THROW(compare()) << "a state that was loaded is not damage";
      model.step(3, 2);
      EXPECT_NO_THROW(compare());
    }
  }
}

}  // namespace
}  // namespace heddle
