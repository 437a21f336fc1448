#include <cstdlib>
#include <heddle/core/parameters/parameter.hpp>
#include <tuple>

#include "test.hpp"

namespace heddle {
namespace {

constexpr std::uint64_t seed = 11;

ParameterSpec sharded(std::string name, Shape const& shape, int axis) {
  return {std::move(name), {shape, Placement::sharded_along(axis)}, Initializer::normal(0.5)};
}

/// The same parameters on one rank of any mesh.
ParameterSet make_parameters(Mesh const& mesh, std::uint64_t with_seed = seed) {
  ParameterSet parameters(mesh);
  parameters.declare(sharded("whole", {3, 5}, -1));
  parameters.declare(sharded("rows", {6, 5}, 0));
  parameters.declare(sharded("columns", {3, 8}, 1));
  parameters.declare(sharded("middle", {2, 4, 3}, 1));
  parameters.declare({"bias", {{6}, {{MeshAxis::tensor}}}, Initializer::xavier_uniform(6, 6)});
  parameters.allocate(DType::float32);
  parameters.initialize(with_seed);
  return parameters;
}

TEST(ParameterSetTest, AShardStartsAsTheSliceOfTheWhole) {
  ParameterSet const whole = make_parameters(Mesh());
  for (int rank : {0, 1}) {
    ParameterSet const parts = make_parameters(Mesh({1, 1, 1, 2}, rank, 2));
    for (Parameter const& part : parts.all()) {
      SCOPED_TRACE(part.spec.name);
      auto const values = to_host<float>(whole.find(part.spec.name)->value);
      auto const own = to_host<float>(part.value);
      Shape expected = part.global_shape();
      if (int const axis = static_cast<int>(part.placement().shards.size()) - 1; axis >= 0) {
        auto extents = expected.to_vector();
        extents[static_cast<std::size_t>(axis)] /= 2;
        expected = Shape(extents);
        EXPECT_EQ(part.global_offset(axis), rank * expected[axis]);
      }
      EXPECT_EQ(part.local_shape, expected);
      part.slice.for_each_run({0, std::ssize(own)}, [&](std::int64_t first, std::int64_t index, std::int64_t count) {
        EXPECT_TRUE(std::equal(own.begin() + first, own.begin() + first + count, values.begin() + index));
      });
    }
  }
}

TEST(ParameterSetTest, AnAxisThatDoesNotDivideIsSharedOutAtTheSamePlaces) {
  auto const make = [](Mesh const& mesh) {
    ParameterSet parameters(mesh);
    parameters.declare(sharded("odd", {7, 33}, 0));
    parameters.declare(sharded("after", {5}, -1));
    parameters.allocate(DType::float32);
    parameters.initialize(seed);
    return parameters;
  };
  auto const whole = to_host<float>(make(Mesh()).find("odd")->value);
  std::vector<float> together;
  std::set<std::int64_t> places;
  for (int rank : {0, 1, 2}) {
    ParameterSet const part = make(Mesh({1, 1, 1, 3}, rank, 3));
    Parameter const& odd = *part.find("odd");
    EXPECT_EQ(odd.global_offset(0) * 33, static_cast<std::int64_t>(together.size()));
    auto const values = to_host<float>(odd.value);
    together.insert(together.end(), values.begin(), values.end());
    places.insert(part.find("after")->place.begin);
  }
  EXPECT_EQ(together, whole);
  EXPECT_EQ(places.size(), 1U) << "what follows an uneven shard begins elsewhere on some rank";
}

TEST(ParameterSetTest, BuffersDivideByTheReplicasAndSoDoParametersOfSeveralStages) {
  ParameterSet parameters(Mesh({2, 2, 3, 1}, 0, 12));
  parameters.declare({"first", {{5}}, Initializer::ones()});
  parameters.declare({"shared", {{7, 3}, {}, {}, {0, 1}}, Initializer::ones()});
  parameters.declare({"last", {{100}}, Initializer::ones()});
  parameters.allocate(DType::float32);
  std::int64_t const unit = 16 * 6;
  EXPECT_EQ(parameters.size() % unit, 0);
  EXPECT_EQ(parameters.find("shared")->place.begin, unit);
  EXPECT_EQ(parameters.find("last")->place.begin, 2 * unit);
}

TEST(ParameterSetTest, MembersOfABlockStandSideBySideAndStartAsOneMatrix) {
  auto const part = [](char const* name, std::int64_t rows, std::int64_t first_row) {
    ParameterSpec spec = sharded(name, {rows, 5}, 0);
    spec.initializer_key = "whole";
    spec.initializer_offset = first_row * 5;
    return spec;
  };
  ParameterSet one(Mesh{});
  one.declare(sharded("whole", {14, 5}, 0));
  one.allocate(DType::float32);
  one.initialize(seed);
  std::vector<float> const whole = to_host<float>(one.find("whole")->value);
  for (int rank : {0, 1}) {
    ParameterSet parameters(Mesh({1, 1, 1, 2}, rank, 2));
    parameters.declare(sharded("before", {3}, -1));
    ParameterBlock const& block = parameters.declare_block({part("q", 6, 0), part("k", 4, 6), part("v", 4, 10)});
    parameters.declare(sharded("after", {3}, -1));
    parameters.allocate(DType::float32);
    parameters.initialize(seed);
    EXPECT_EQ(block.size(), 35);
    EXPECT_EQ(block.value.data<float>(), parameters.find("q")->value.data<float>());
    EXPECT_EQ(parameters.find("k")->value.data<float>(), block.value.data<float>() + 15);
    EXPECT_EQ(parameters.find("v")->gradient.data<float>(), block.gradient.data<float>() + 25);
    EXPECT_EQ(parameters.find("v")->place.end, parameters.find("after")->place.begin);
    EXPECT_EQ(parameters.find("after")->place.begin % 16, 0);
    for (auto const& [name, rows, first_row] : {std::tuple{"q", 6, 0}, {"k", 4, 6}, {"v", 4, 10}}) {
      auto const begin = whole.begin() + (first_row + rank * rows / 2) * 5;
      EXPECT_EQ(to_host<float>(parameters.find(name)->value), std::vector<float>(begin, begin + rows / 2 * 5)) << name;
    }
    std::uint64_t const version = block.weight_version().version;
    ++parameters.find("k")->version;
    EXPECT_GT(block.weight_version().version, version);
  }
  ParameterSet parameters(Mesh({1, 1, 1, 2}, 0, 2));
  EXPECT_THROW(parameters.declare_block({part("q", 6, 0), part("k", 3, 6)}), Error) << "ranks hold 2 and 1 rows";
}

TEST(ParameterSetTest, OtherAxesDoNotShard) {
  ParameterSet const whole = make_parameters(Mesh());
  ParameterSet const replica = make_parameters(Mesh({1, 4, 1, 1}, 3, 4));
  for (Parameter const& parameter : whole.all()) {
    EXPECT_EQ(to_host<float>(replica.find(parameter.spec.name)->value), to_host<float>(parameter.value));
  }
}

TEST(ParameterSetTest, ValuesFollowSeedAndName) {
  ParameterSet const parameters = make_parameters(Mesh());
  ParameterSet const other_seed = make_parameters(Mesh(), seed + 1);
  std::set<float> firsts;
  for (Parameter const& parameter : parameters.all()) {
    float const first = to_host<float>(parameter.value)[0];
    EXPECT_TRUE(firsts.insert(first).second) << parameter.spec.name << " starts like another";
    EXPECT_NE(to_host<float>(other_seed.find(parameter.spec.name)->value)[0], first);
  }
}

TEST(ParameterSetTest, InitializersHaveTheirMoments) {
  ParameterSet parameters{Mesh()};
  std::int64_t const count = 20000;
  auto const declare = [&](char const* name, Initializer const& initializer) {
    parameters.declare({name, {{count}}, initializer});
  };
  declare("zeros", Initializer::zeros());
  declare("ones", Initializer::ones());
  declare("normal", Initializer::normal(2));
  declare("xavier", Initializer::xavier_uniform(100, 200));
  parameters.allocate(DType::float64);
  parameters.initialize(seed);
  auto const moments = [&](char const* name) {
    double sum = 0;
    double squares = 0;
    double largest = 0;
    for (double const value : to_host<double>(parameters.find(name)->value)) {
      sum += value;
      squares += value * value;
      largest = std::max(largest, std::abs(value));
    }
    return std::array{sum / static_cast<double>(count), std::sqrt(squares / static_cast<double>(count)), largest};
  };
  EXPECT_EQ(moments("zeros"), (std::array{0.0, 0.0, 0.0}));
  EXPECT_EQ(moments("ones"), (std::array{1.0, 1.0, 1.0}));
  auto const normal = moments("normal");
  EXPECT_NEAR(normal[0], 0, 0.06);  // four standard errors
  EXPECT_NEAR(normal[1], 2, 0.04);
  EXPECT_GT(normal[2], 6);
  auto const xavier = moments("xavier");
  double const bound = std::sqrt(6.0 / 300);
  EXPECT_NEAR(xavier[0], 0, 0.003);
  EXPECT_NEAR(xavier[1], bound / std::sqrt(3.0), 0.001);
  EXPECT_LE(xavier[2], bound);
  EXPECT_GT(xavier[2], 0.99 * bound);
}

TEST(ParameterSetTest, ValuesAndGradientsAreViewsOfTheTwoBuffers) {
  ParameterSet const parameters = make_parameters(Mesh());
  auto const* const values = parameters.values().data<float>();
  auto const* const gradients = parameters.gradients().data<float>();
  std::int64_t next = 0;
  for (Parameter const& parameter : parameters.all()) {
    std::int64_t const begin = parameter.value.data<float>() - values;
    EXPECT_GE(begin, next) << parameter.spec.name << " overlaps the one before";
    EXPECT_EQ(parameter.gradient.data<float>() - gradients, begin);
    EXPECT_EQ(begin % 16, 0) << "a parameter starts on a cache line";
    next = begin + parameter.local_shape.size();
  }
  EXPECT_LE(next, parameters.size());
  EXPECT_THAT(to_host<float>(parameters.gradients()), Each(0.0F));
}

TEST(ParameterSetTest, FrozenParametersLieAfterTheOthersAndHaveNoGradient) {
  ParameterSet parameters{Mesh({1, 3, 1, 1}, 0, 3)};
  for (char const* const name : {"a", "b", "c"}) {
    parameters.declare(sharded(name, {5, 5}, -1));
  }
  parameters.find("a")->rule.frozen = true;
  ParameterBlock const& half =
      parameters.declare_block({sharded("q", {2, 5}, 0), sharded("k", {2, 5}, 0)});  // q is frozen
  half.members.front()->rule.frozen = true;
  ParameterBlock const& still = parameters.declare_block({sharded("v", {2, 5}, 0)});
  still.members.front()->rule.frozen = true;
  parameters.allocate(DType::float32);
  EXPECT_EQ(parameters.gradient_size(), 96) << "25, 25 and 20 elements in cache lines, divided by three";
  EXPECT_EQ(parameters.gradients().size(), 96);
  EXPECT_EQ(parameters.size(), 96 + 32 + 16);
  std::vector<std::string> trained;
  for (Parameter const* const parameter : parameters.trained()) {
    trained.push_back(parameter->spec.name);
  }
  EXPECT_EQ(trained, (std::vector<std::string>{"b", "c", "q", "k"}));
  EXPECT_TRUE(parameters.find("a")->gradient.empty());
  EXPECT_EQ(parameters.find("a")->place.begin, 96);
  EXPECT_EQ(half.gradient.size(), 20) << "a block with a trained member is trained";
  EXPECT_TRUE(still.gradient.empty());
  EXPECT_EQ(still.value.size(), 10);
}

TEST(ParameterSetTest, RoundedValuesAreAfterAllOthersInABufferOfTheirOwn) {
  ParameterSet parameters{Mesh()};
  ParameterSet exact{Mesh()};
  auto const rounded = [](std::string name, int axis) {
    ParameterSpec spec = sharded(std::move(name), {2, 5}, axis);
    spec.rounded = true;
    return spec;
  };
  Parameter const& first = parameters.declare(rounded("first", -1));
  Parameter const& trained = parameters.declare(sharded("trained", {5}, -1));
  ParameterBlock const& block = parameters.declare_block({rounded("q", 0), rounded("k", 0)});
  Parameter const& original = exact.declare(sharded("first", {2, 5}, -1));
  EXPECT_THROW(parameters.declare_block({rounded("v", 0), sharded("w", {2, 5}, 0)}), Error) << "two dtypes";
  for (ParameterSet* const set : {&parameters, &exact}) {
    set->allocate(DType::float32);
    set->initialize(seed);
  }
  EXPECT_EQ(parameters.values().size(), 16);
  EXPECT_EQ(parameters.gradients().size(), 16);
  EXPECT_GE(parameters.rounded().size(), 16 + 20);
  EXPECT_TRUE(exact.rounded().empty());
  EXPECT_EQ(trained.value.dtype(), DType::float32);
  EXPECT_TRUE(first.gradient.empty());
  EXPECT_TRUE(block.gradient.empty());
  EXPECT_EQ(first.weight_version().id, 0U) << "kernels keep no copies";
  EXPECT_NE(trained.weight_version().id, 0U);
  EXPECT_EQ(block.value.size(), 20);
  EXPECT_EQ(block.value.raw(), parameters.find("q")->value.raw());
  EXPECT_EQ(parameters.values_in(first.place).raw(), first.value.raw());
  auto const halves = to_host<BFloat16>(first.value);
  auto const numbers = to_host<float>(original.value);
  for (std::size_t element = 0; element < numbers.size(); ++element) {
    EXPECT_EQ(halves[element].bits, BFloat16(numbers[element]).bits);
  }
}

TEST(ParameterSetTest, WithoutGradientsThereAreValuesAlone) {
  ParameterSet parameters{Mesh()};
  Parameter const& alone = parameters.declare(sharded("alone", {3, 5}, -1));
  ParameterBlock const& block = parameters.declare_block({sharded("q", {2, 5}, 0), sharded("k", {2, 5}, 0)});
  parameters.arrange();
  parameters.bind(Tensor::allocate(DType::float32, {parameters.size()}), Tensor());
  parameters.initialize(seed);
  EXPECT_TRUE(parameters.gradients().empty());
  EXPECT_TRUE(alone.gradient.empty());
  EXPECT_TRUE(block.gradient.empty());
  EXPECT_EQ(alone.value.shape(), Shape({3, 5}));
  EXPECT_EQ(block.value.size(), 20);
}

TEST(ParameterSetTest, TakesValuesOfAnotherSetWhereTheyAre) {
  auto const declare = [](ParameterSet& parameters, std::int64_t rows) {
    parameters.declare(sharded("alone", {3, 5}, -1));
    parameters.declare(sharded("other", {rows, 5}, -1));
    parameters.declare_block({sharded("q", {2, 5}, 0), sharded("k", {2, 5}, 0)});
    return &parameters.declare_block({sharded("up", {2, 5}, 0), sharded("gate", {2, 5}, 0)});
  };
  ParameterSet owner{Mesh()};
  ParameterSet set{Mesh()};
  ParameterBlock const& half = *declare(owner, 4);
  ParameterBlock const& own_half = *declare(set, 3);
  owner.allocate(DType::float32);
  owner.initialize(seed);
  set.share_values(owner, [](std::string const& name) { return name != "gate"; });
  set.share_values(owner, [](std::string const& name) { return name == "alone"; });
  set.allocate(DType::float32);
  set.initialize(seed + 1);
  for (char const* const name : {"alone", "q", "k"}) {
    Parameter const& parameter = *set.find(name);
    EXPECT_TRUE(parameter.shared) << name;
    EXPECT_EQ(parameter.value.raw(), owner.find(name)->value.raw()) << name;
    EXPECT_EQ(parameter.weight_version().id, owner.find(name)->weight_version().id) << name;
    EXPECT_EQ(parameter.weight_version().version, owner.find(name)->weight_version().version) << name;
    EXPECT_TRUE(parameter.gradient.empty()) << name;
  }
  EXPECT_FALSE(set.find("other")->shared) << "another shape";
  EXPECT_FALSE(set.find("up")->shared) << "a part of a block";
  EXPECT_NE(own_half.value.raw(), half.value.raw());
  EXPECT_EQ(set.size(), 16 + 32) << "other, and up with gate";
  EXPECT_EQ(set.trained().size(), 3U);
  EXPECT_NE(set.find("other")->weight_version().id, owner.find("other")->weight_version().id);
}

// Two runs of two among four replicas.
TEST(ParameterSetTest, RunsOfReplicasDivideExperts) {
  for (int rank = 0; rank < 4; ++rank) {
    ParameterSet set(Mesh({1, 4, 1, 1}, rank, 4), {.expert_ranks = 2});
    ParameterSpec experts{.name = "up",
                          .placement = {.global_shape = {4, 3, 5}},
                          .initializer = Initializer::normal(1),
                          .of_experts = true};
    set.declare(experts);
    experts.name = "whole";
    experts.of_experts = false;
    set.declare(experts);
    set.allocate(DType::float32);
    set.initialize(seed);
    Parameter const& up = *set.find("up");
    EXPECT_EQ(up.value.shape(), (Shape{2, 3, 5}));
    EXPECT_EQ(up.gradient.shape(), (Shape{2, 3, 5}));
    EXPECT_EQ(set.held_sizes().values, set.size() - 30);
    EXPECT_EQ(set.held_sizes().gradients, set.size() - 30);
    EXPECT_EQ(set.counts(up), rank < 2) << "of two copies the first";
    ParameterSet whole{Mesh()};
    whole.declare({.name = "up", .placement = {.global_shape = {4, 3, 5}}, .initializer = Initializer::normal(1)});
    whole.allocate(DType::float32);
    whole.initialize(seed);
    EXPECT_EQ(to_host<float>(up.value), to_host<float>(whole.find("up")->value.rows(2 * (rank % 2), 2)));
  }
}

TEST(ParameterSetTest, ExpertsThatARuleUpdatesWholeAreNotDivided) {
  ParameterSet set(Mesh({1, 2, 1, 1}, 0, 2), {.expert_ranks = 2});
  Parameter& up = set.declare({.name = "up",
                               .placement = {.global_shape = {4, 3, 5}},
                               .initializer = Initializer::zeros(),
                               .of_experts = true});
  up.rule.name = "lamb";
  up.spec.placement.owner = Placement::Owner::single;
  expect_config_error([&] { set.arrange(); }, {"parallel.expert = 2: the rule lamb updates the whole parameter up"});
}

TEST(ParameterSetTest, IdsAreUniqueAndVersionsGrow) {
  ParameterSet first = make_parameters(Mesh());
  ParameterSet const second = make_parameters(Mesh());
  std::set<std::uint64_t> ids;
  for (ParameterSet const* const set : {&std::as_const(first), &second}) {
    for (Parameter const& parameter : set->all()) {
      EXPECT_NE(parameter.id, 0U);
      EXPECT_TRUE(ids.insert(parameter.id).second);
    }
  }
  auto const before = first.all().front().version;
  first.bump_versions();
  EXPECT_GT(first.all().front().version, before);
}

TEST(ParameterSetTest, RefusesWhatCannotBeDeclared) {
  ParameterSet parameters(Mesh({1, 1, 1, 2}, 0, 2));
  parameters.declare(sharded("weight", {4, 4}, 0));
  expect_error([&] { parameters.declare(sharded("weight", {4, 4}, 0)); }, "parameter weight: the name is taken");
  expect_config_error(
      [&] {
        parameters.declare(sharded("narrow", {4, 1}, 1));
      },
      {"parameter narrow [4, 1]", "parallel.tensor = 2"});
  parameters.allocate(DType::float32);
  EXPECT_THROW(parameters.declare(sharded("late", {2}, -1)), Error);
  EXPECT_EQ(parameters.find("late"), nullptr);
}

}  // namespace
}  // namespace heddle
