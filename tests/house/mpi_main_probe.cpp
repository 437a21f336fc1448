#include <mpi.h>

#include "runs_on.hpp"
#include "test.hpp"

// The cases that prove-mpi-main runs, one at a time, on two ranks: only the first may succeed. Without a filter the
// last one is left out.
namespace {

int rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

TEST(Probe, Passes) {
  EXPECT_LT(rank(), 2);
}
TEST(Probe, FailsOnRankOne) {
  EXPECT_EQ(rank(), 0) << "the probe's message";
}
TEST(Probe, ThrowsOnRankOne) {
  if (rank() == 1) {
    throw std::runtime_error("the probe's exception");
  }
}
TEST(Probe, SkipsOnRankOne) {
  if (rank() == 1) {
    GTEST_SKIP() << "the probe's reason";
  }
}

heddle::RunsOn const four_ranks({"Probe.RunsOnFourRanks"}, {4});
TEST(Probe, RunsOnFourRanks) {}

}  // namespace
