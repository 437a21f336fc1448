#include <gmock/gmock.h>

#include <heddle/core/error.hpp>
#include <heddle/core/mesh.hpp>
#include <map>
#include <set>

namespace heddle {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr std::array axes{MeshAxis::pipeline, MeshAxis::data, MeshAxis::context, MeshAxis::tensor};
constexpr std::array<int, mesh_axes> sizes{2, 3, 2, 2};
constexpr int ranks = 24;

TEST(MeshTest, OneRankIsTheDefault) {
  Mesh const mesh;
  EXPECT_EQ(mesh.rank(), 0);
  for (MeshAxis const axis : axes) {
    EXPECT_EQ(mesh.size(axis), 1);
    EXPECT_EQ(mesh.coordinate(axis), 0);
    EXPECT_EQ(mesh.color(axis), 0);
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

TEST(MeshTest, RanksOfOneColorDifferOnlyAlongTheAxis) {
  for (MeshAxis const axis : axes) {
    std::map<int, std::set<int>> coordinates_by_color;
    for (int rank = 0; rank < ranks; ++rank) {
      Mesh const mesh(sizes, rank, ranks);
      EXPECT_TRUE(coordinates_by_color[mesh.color(axis)].insert(mesh.coordinate(axis)).second)
          << "two ranks of one colour share the coordinate along " << name_of(axis);
      for (int other = 0; other < ranks; ++other) {
        Mesh const there(sizes, other, ranks);
        bool differs_elsewhere = false;
        for (MeshAxis const another : axes) {
          differs_elsewhere |= another != axis && mesh.coordinate(another) != there.coordinate(another);
        }
        EXPECT_EQ(mesh.color(axis) == there.color(axis), !differs_elsewhere);
      }
    }
    for (auto const& [color, coordinates] : coordinates_by_color) {
      EXPECT_EQ(static_cast<int>(coordinates.size()), Mesh(sizes, 0, ranks).size(axis));
    }
  }
}

TEST(MeshTest, ALayoutThatDoesNotFitTheRanksSaysWhatWould) {
  EXPECT_THAT(
      [] {
        Mesh({1, 1, 1, 2}, 0, 8);
      },
      ThrowsMessage<ConfigError>(AllOf(HasSubstr("needs 2 ranks, but 8 run"), HasSubstr("parallel.data = 4"))));
  EXPECT_THAT(
      [] {
        Mesh({2, 2, 1, 2}, 0, 6);
      },
      ThrowsMessage<ConfigError>(AllOf(HasSubstr("pipeline 2"), HasSubstr("a multiple of 4 ranks"))));
  EXPECT_THAT(
      [] {
        Mesh({1, 0, 1, 1}, 0, 1);
      },
      ThrowsMessage<ConfigError>(HasSubstr("parallel.data = 0 must be at least 1")));
}

}  // namespace
}  // namespace heddle
