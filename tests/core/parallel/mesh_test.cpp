#include <heddle/core/parallel/mesh.hpp>
#include <limits>

#include "test.hpp"

namespace heddle {
namespace {

MeshShape const sizes{2, 3, 2, 2};
constexpr int ranks = 24;

TEST(MeshTest, OneRankIsTheDefault) {
  Mesh const mesh;
  EXPECT_EQ(mesh.rank(), 0);
  for (MeshAxis const axis : known_axes) {
    EXPECT_EQ(mesh.size(axis), 1);
    EXPECT_EQ(mesh.coordinate(axis), 0);
    EXPECT_EQ(mesh.group({axis}).first, 0);
  }
}

TEST(MeshTest, TensorIsTheInnermostAxis) {
  for (int rank = 0; rank < ranks; ++rank) {
    Mesh const mesh(sizes, rank, ranks);
    int const composed = ((mesh.coordinate(MeshAxis::pipeline) * 3 + mesh.coordinate(MeshAxis::data)) * 2 +
                          mesh.coordinate(MeshAxis::context)) *
                             2 +
                         mesh.coordinate(MeshAxis::tensor);
    EXPECT_EQ(composed, rank);
  }
}

TEST(MeshTest, AGroupHasTheRanksThatDifferOnlyAlongItsAxes) {
  std::vector<MeshAxes> const sets{{},
                                   {MeshAxis::pipeline},
                                   {MeshAxis::data},
                                   {MeshAxis::context},
                                   {MeshAxis::tensor},
                                   {MeshAxis::context, MeshAxis::data},
                                   {MeshAxis::pipeline, MeshAxis::tensor},
                                   {known_axes.begin(), known_axes.end()}};
  for (MeshAxes const& set : sets) {
    std::map<int, std::vector<int>> members;  // by their group's first rank
    for (int rank = 0; rank < ranks; ++rank) {
      MeshGroup const group = Mesh(sizes, rank, ranks).group(set);
      EXPECT_EQ(group.size, sizes.size(set));
      EXPECT_EQ(group.place, std::ssize(members[group.first]));
      EXPECT_EQ(sizes.rank_at(set, group.place, group.first), rank);
      members[group.first].push_back(rank);
      for (MeshAxis const axis : known_axes) {
        bool const inside = std::ranges::find(set, axis) != set.end();
        EXPECT_TRUE(inside || sizes.coordinate(axis, rank) == sizes.coordinate(axis, group.first)) << axis.name();
      }
    }
    for (auto const& [first, group] : members) {
      EXPECT_EQ(first, group.front());
      EXPECT_EQ(std::ssize(group), sizes.size(set));
    }
  }
}

TEST(MeshTest, DivisorsOfAnyNumberAscend) {
  EXPECT_EQ(divisors_of(1), (std::vector{1}));
  EXPECT_EQ(divisors_of(36), (std::vector{1, 2, 3, 4, 6, 9, 12, 18, 36}));
  int const prime = std::numeric_limits<int>::max();
  EXPECT_EQ(divisors_of(prime), (std::vector{1, prime}));
}

TEST(MeshTest, TwoGridsOfTheSameRanksHaveAnySizesWithTheSameProduct) {
  for (auto const& [tensor, context] : {std::pair{4, 1}, {1, 4}, {2, 3}, {6, 2}, {4, 6}}) {
    for (int const encoder : divisors_of(tensor * context)) {
      MeshShape const shape = MeshShape(2, 3, context, tensor).with_encoder_tensor(encoder);
      SCOPED_TRACE(shape.to_string());
      EXPECT_EQ(shape.ranks(), 6 * tensor * context);
      EXPECT_EQ(shape.size(MeshShape::tensor_axes(Grid::decoder)), tensor);
      EXPECT_EQ(shape.size(MeshShape::context_axes(Grid::decoder)), context);
      EXPECT_EQ(shape.size(MeshShape::tensor_axes(Grid::encoder)), encoder);
      EXPECT_EQ(shape.size(MeshShape::context_axes(Grid::encoder)), tensor * context / encoder);
      EXPECT_EQ(shape.has_grids(), encoder != tensor);
    }
  }
}

TEST(MeshTest, TheGroupsOfTwoGridsHaveNamesOfTheirOwn) {
  Mesh const mesh(MeshShape(1, 1, 3, 2).with_encoder_tensor(3), 5, 6);
  auto const name = [&](MeshAxes const& axes) { return mesh.group(axes).name; };
  EXPECT_EQ(name(MeshShape::context_axes(Grid::decoder)), "context");
  EXPECT_EQ(name(MeshShape::tensor_axes(Grid::decoder)), "tensor");
  EXPECT_EQ(name(MeshShape::context_axes(Grid::encoder)), "encoder_context");
  EXPECT_EQ(name(MeshShape::tensor_axes(Grid::encoder)), "encoder_tensor");
  EXPECT_EQ(name({MeshAxis::tensor}), "tensor axis");
  EXPECT_EQ(name(replica_axes()), "replicas");
}

TEST(MeshTest, AllAxesButOneAreThoseOfTheRanksThatShareACoordinate) {
  MeshShape const shape(2, 3, 1, 2);
  MeshAxes const axes = shape.axes_except(MeshAxis::data);
  EXPECT_EQ(axes, (MeshAxes{MeshAxis::pipeline, MeshAxis::context, MeshAxis::tensor}));
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    for (int place = 0; place < shape.size(axes); ++place) {
      EXPECT_EQ(shape.coordinate(MeshAxis::data, shape.rank_at(axes, place, rank)),
                shape.coordinate(MeshAxis::data, rank));
    }
  }
}

TEST(MeshTest, RunsOfReplicasHaveNeighboursAndCopies) {
  // 6 replicas: 2 context ranks in each of 3 data ranks, 2 tensor ranks apart from one another.
  std::vector<MeshGroup> runs;
  std::vector<MeshGroup> across;
  for (int const rank : {0, 2, 4, 6, 8, 10}) {
    runs.push_back(Mesh(sizes, rank, ranks).replica_run(3, "run"));
    across.push_back(Mesh(sizes, rank, ranks).across_replica_runs(3, "across"));
  }
  auto const firsts = [](std::vector<MeshGroup> const& groups) {
    std::vector<std::array<int, 3>> found;
    for (MeshGroup const& group : groups) {
      found.push_back({group.first, group.place, group.size});
    }
    return found;
  };
  EXPECT_EQ(firsts(runs),
            (std::vector<std::array<int, 3>>{{0, 0, 3}, {0, 1, 3}, {0, 2, 3}, {6, 0, 3}, {6, 1, 3}, {6, 2, 3}}));
  EXPECT_EQ(firsts(across),
            (std::vector<std::array<int, 3>>{{0, 0, 2}, {2, 0, 2}, {4, 0, 2}, {0, 1, 2}, {2, 1, 2}, {4, 1, 2}}));
  EXPECT_EQ(Mesh(sizes, 13, ranks).replica_run(3, "run").first, 13) << "of another stage and tensor rank";
}

TEST(MeshTest, AMeshMayHaveOtherAxes) {
  MeshAxis const expert("expert");
  MeshShape const whole(2, 6, 1, 2);
  MeshShape const finer({{MeshAxis::pipeline, 2}, {MeshAxis::data, 2}, {expert, 3}, {MeshAxis::tensor, 2}});
  EXPECT_EQ(finer.to_string(), "pipeline 2 × data 2 × expert 3 × tensor 2");
  EXPECT_EQ(finer.ranks(), whole.ranks());
  for (int rank = 0; rank < whole.ranks(); ++rank) {
    EXPECT_EQ(finer.place({MeshAxis::data, expert}, rank), whole.coordinate(MeshAxis::data, rank));
    EXPECT_EQ(finer.coordinate(expert, rank), whole.coordinate(MeshAxis::data, rank) % 3);
    EXPECT_EQ(finer.coordinate(MeshAxis::context, rank), 0);
  }
  EXPECT_EQ(finer.model_axes(), (MeshAxes{MeshAxis::tensor, expert})) << "the innermost first";
  EXPECT_EQ(whole.model_axes(), MeshAxes{MeshAxis::tensor});
  EXPECT_THROW(whole.with(expert, 2), Error);
  EXPECT_THROW(MeshAxis("a name of sixteen"), std::length_error);
}

TEST(MeshTest, ALayoutThatDoesNotFitTheRanksIsAnError) {
  expect_config_error([] { Mesh({1, 1, 1, 2}, 0, 8); }, "tensor 2 needs 2 ranks, but 8 run");
  expect_config_error([] { Mesh({1, 0, 1, 1}, 0, 1); }, "parallel.data = 0 must be at least 1");
}

TEST(MeshTest, ALayoutOfMoreRanksThanCanBeCountedDoesNotFitEither) {
  expect_config_error([] { Mesh({65536, 65536, 1, 1}, 0, 2); }, "at least 2147483647 ranks");
}

using Layout = MeshShape;

bool any(Layout const& /*layout*/) {
  return true;
}

TEST(NearestLayoutsTest, ChangeFewAxesByLittleAndDataFirst) {
  EXPECT_THAT(nearest_shapes({2, 2, 1, 2}, 8, any, 1), ElementsAre(Layout{2, 2, 1, 2}));
  // One axis changes by a factor of 2, data before others; only then one axis by more, or two axes.
  EXPECT_THAT(nearest_shapes({2, 2, 1, 2}, 4, any, 4),
              ElementsAre(Layout{2, 1, 1, 2}, Layout{1, 2, 1, 2}, Layout{2, 2, 1, 1}, Layout{1, 1, 1, 4}));
  // No single change makes 8 ranks 6; 3/2 · 2 is the smallest pair of changes.
  EXPECT_THAT(nearest_shapes({2, 2, 1, 2}, 6, any, 3),
              ElementsAre(Layout{2, 1, 1, 3}, Layout{3, 1, 1, 2}, Layout{1, 3, 1, 2}));
}

TEST(NearestLayoutsTest, LeaveOpenWhatWasLeftOpen) {
  EXPECT_THAT(nearest_shapes({2, 0, 1, 1}, 12, any, 1), ElementsAre(Layout{2, 6, 1, 1}));
  EXPECT_THAT(nearest_shapes({1, 0, 1, 4}, 6, any, 2), ElementsAre(Layout{1, 2, 1, 3}, Layout{1, 1, 1, 6}));
}

TEST(NearestLayoutsTest, NameOnlyWhatWorks) {
  auto const heads_divide = [](Layout const& layout) { return 4 % layout.size(MeshAxis::tensor) == 0; };
  auto const nearest = nearest_shapes({1, 1, 1, 8}, 8, heads_divide, 100);
  EXPECT_EQ(nearest.front(), (Layout{1, 2, 1, 4}));
  EXPECT_EQ(nearest.size(), 19U);  // of the 20 ways to write 8 as four factors, all but tensor = 8
  EXPECT_TRUE(std::ranges::all_of(nearest, heads_divide));
  EXPECT_TRUE(nearest_shapes({1, 1, 1, 8}, 8, [](Layout const&) { return false; }).empty());
}

TEST(NearestLayoutsTest, AreListedAsTheConfigWritesThem) {
  std::vector<Layout> const layouts{{1, 2, 1, 4}, {2, 1, 1, 4}};
  EXPECT_EQ(list_shapes(layouts),
            "parallel.pipeline = 1, data = 2, context = 1, tensor = 4; "
            "or parallel.pipeline = 2, data = 1, context = 1, tensor = 4");
}

}  // namespace
}  // namespace heddle
