#include "inspection/model/search_tree.hpp"

#include "test.hpp"

namespace heddle {
namespace {

using Fate = SearchStep::Fate;

TEST(SearchTree, FollowsHypothesesFromStepToStep) {
  constexpr std::int32_t end = 2;
  SearchTree tree;
  tree.extended({0, 0, {{0, 7, -1.0, Fate::live}, {0, 8, -2.0, Fate::live}, {0, 9, -3.0, Fate::dropped}}});
  tree.extended({0, 1, {{1, 5, -2.5, Fate::live}, {0, end, -2.75, Fate::finished}, {0, 6, -3.5, Fate::live}}});
  tree.extended({0, 2, {{0, end, -2.6, Fate::finished}, {1, end, -4.0, Fate::finished}}});
  ASSERT_EQ(tree.nodes().size(), 9U);
  EXPECT_EQ(tree.nodes()[4].parent, 2);  // token 5 follows 8
  EXPECT_EQ(tree.nodes()[4].step, 2);
  EXPECT_EQ(tree.path_of({8, 5}), (std::vector<std::int64_t>{2, 4, 7}));
  EXPECT_EQ(tree.path_of({7}), (std::vector<std::int64_t>{1, 5}));
  EXPECT_EQ(tree.path_of({7, 6}), (std::vector<std::int64_t>{1, 6, 8}));
  EXPECT_TRUE(tree.path_of({7, 5}).empty());
}

}  // namespace
}  // namespace heddle
