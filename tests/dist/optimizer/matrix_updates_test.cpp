#include <gmock/gmock.h>

#include <heddle/dist/optimizer/matrix_updates.hpp>
#include <list>

namespace heddle {
namespace {

using testing::ElementsAre;

class DealtMatricesTest : public testing::Test {
 protected:
  /// A matrix that tensor ranks split, or none does.
  Parameter const* matrix(double cost, bool is_split) {
    Parameter& made = matrices_.emplace_back();
    made.spec.placement = {{8, 8}, Placement::sharded_along(is_split ? 0 : -1)};
    made.matrix_cost = cost;
    return &made;
  }

  std::list<Parameter> matrices_;
};

TEST_F(DealtMatricesTest, TheMostExpensiveGoFirstAndEachToTheRankWithTheLeastWork) {
  std::vector<Parameter const*> const all{matrix(3, true), matrix(5, true), matrix(4, true), matrix(3, true)};
  EXPECT_THAT(deal_matrices(all, {1, 1, 1, 2}, 1),
              ElementsAre(MatrixRank{0, 1}, MatrixRank{0, 0}, MatrixRank{0, 1}, MatrixRank{0, 0}));
  EXPECT_THAT(deal_matrices(all, {1, 2, 1, 2}, 2),
              ElementsAre(MatrixRank{1, 0}, MatrixRank{0, 0}, MatrixRank{0, 1}, MatrixRank{1, 1}));
}

TEST_F(DealtMatricesTest, AMatrixThatNoneSplitsIsWorkOfAllRanksThatHoldIt) {
  std::vector<Parameter const*> const all{matrix(5, false), matrix(4, true), matrix(3, true), matrix(2, true)};
  EXPECT_THAT(deal_matrices(all, {1, 2, 1, 2}, 2),
              ElementsAre(MatrixRank{0, 0}, MatrixRank{1, 0}, MatrixRank{1, 1}, MatrixRank{1, 1}));
}

}  // namespace
}  // namespace heddle
