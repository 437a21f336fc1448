#include <heddle/core/parameters/placement.hpp>

#include "test.hpp"

namespace heddle {
namespace {

constexpr MeshAxis expert{"expert"};

MeshShape const mesh({{MeshAxis::pipeline, 2}, {MeshAxis::data, 2}, {expert, 3}, {MeshAxis::tensor, 2}});

Mesh rank_of(int rank) {
  return {mesh, rank, mesh.ranks()};
}

TEST(PlacementTest, SlicesOfTheRanksAreTheWhole) {
  Placement const placement{.global_shape = {7, 5}, .shards = {{expert, MeshAxis::tensor}, {}}};
  EXPECT_EQ(placement.shards_along(0, mesh), 6);
  EXPECT_EQ(placement.shards_along(1, mesh), 1);
  std::map<std::pair<int, int>, std::vector<IndexRange>> by_coordinates;
  std::int64_t next = 0;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    auto const ranges = placement.slice(mesh, rank).ranges();
    auto const [known, is_new] =
        by_coordinates.try_emplace({mesh.coordinate(expert, rank), mesh.coordinate(MeshAxis::tensor, rank)}, ranges);
    EXPECT_EQ(known->second, ranges) << "copies hold the same";
    EXPECT_EQ(ranges[1], (IndexRange{0, 5}));
    if (is_new) {
      EXPECT_EQ(ranges[0].begin, next) << "the first axis that is named is the outermost";
      next = ranges[0].end;
    }
  }
  EXPECT_EQ(next, 7);
  EXPECT_EQ(placement.slice({1, 4, 1, 1}, 3).size(), 35) << "a mesh without the axes";
}

TEST(PlacementTest, AnAxisOfATensorIsSplitOverTheGivenAxis) {
  EXPECT_TRUE(Placement::sharded_along(-1).empty());
  Placement const placement{{7, 6}, Placement::sharded_along(1)};
  EXPECT_TRUE(placement.is_split_over(MeshAxis::tensor));
  EXPECT_FALSE(placement.is_split_over(expert));
  EXPECT_EQ(placement.slice(mesh, 1).ranges(), (std::vector<IndexRange>{{0, 7}, {3, 6}}));
}

TEST(PlacementTest, EachElementCountsOnceForEachReplica) {
  for (Placement const& placement :
       {Placement{{6}}, Placement{{6}, {{expert}}}, Placement{{6}, {{expert, MeshAxis::tensor}}},
        Placement{.global_shape = {6}, .shards = {{MeshAxis::tensor}}, .stages = {0, 1}}}) {
    std::int64_t counted = 0;
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      bool const held = placement.on_several_stages() || mesh.coordinate(MeshAxis::pipeline, rank) == 1;
      counted += held && placement.counts(rank_of(rank)) ? placement.slice(mesh, rank).size() : 0;
    }
    EXPECT_EQ(counted, 6 * mesh.size(replica_axes()));
  }
}

}  // namespace
}  // namespace heddle
