#include "dist_fixture.hpp"

namespace heddle {
namespace {

using LedgerTest = DistTest;

Traffic const& of(Communicator const& group, CollectiveOp collective) {
  return group.ledger()[static_cast<std::size_t>(collective)];
}

Tensor floats(std::int64_t count) {
  return Tensor::allocate(DType::float32, {count});
}

TEST_F(LedgerTest, CountsOperationsAndPayloadOfEachVerb) {
  std::int64_t const ranks = world_.size();
  if (ranks == 1) {
    return;  // nothing is moved
  }
  world_.all_reduce(floats(10));
  world_.all_reduce(Tensor::allocate(DType::float64, {3}), ReduceOp::max);
  world_.all_reduce(floats(0));
  EXPECT_EQ(of(world_, CollectiveOp::all_reduce), (Traffic{3, 64}));

  world_.start_reduce_scatter(floats(ranks * 5), floats(5)).wait();
  EXPECT_EQ(of(world_, CollectiveOp::reduce_scatter), (Traffic{1, 20 * ranks}));
  world_.all_gather(floats(5), floats(ranks * 5));
  world_.start_all_gather(floats(1), floats(ranks)).wait();
  EXPECT_EQ(of(world_, CollectiveOp::all_gather), (Traffic{2, 24 * ranks}));
  world_.broadcast(Tensor::allocate(DType::bfloat16, {7}), 1);
  EXPECT_EQ(of(world_, CollectiveOp::broadcast), (Traffic{1, 14}));
  world_.barrier();
  EXPECT_EQ(of(world_, CollectiveOp::barrier), (Traffic{1, 0}));
  EXPECT_EQ(of(world_, CollectiveOp::send), Traffic{});
  EXPECT_EQ(of(world_, CollectiveOp::receive), Traffic{});
}

TEST_F(LedgerTest, CountsUnevenRowsWithTheirVerb) {
  std::int64_t const ranks = world_.size();
  if (ranks == 1) {
    return;  // nothing is moved
  }
  // Rank r holds r rows of two numbers: ranks (ranks - 1) / 2 rows together.
  std::vector<std::int64_t> rows;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    rows.push_back(rank);
  }
  std::int64_t const all = ranks * (ranks - 1) / 2;
  auto const matrix = [](std::int64_t count) { return Tensor::allocate(DType::float32, {count, 2}); };
  world_.all_gather_rows(matrix(world_.rank()), matrix(all), rows);
  EXPECT_EQ(of(world_, CollectiveOp::all_gather), (Traffic{1, all * 8}));
  world_.reduce_scatter_rows(matrix(all), matrix(world_.rank()), rows);
  EXPECT_EQ(of(world_, CollectiveOp::reduce_scatter), (Traffic{1, all * 8}));
  // Rank r receives r rows from each.
  std::vector<std::int64_t> const receive_rows(static_cast<std::size_t>(ranks), world_.rank());
  world_.all_to_all_rows(matrix(all), rows, matrix(world_.rank() * ranks), receive_rows);
  EXPECT_EQ(of(world_, CollectiveOp::all_to_all), (Traffic{1, all * 8}));
}

TEST_F(LedgerTest, CountsATransferOnceAtItsStart) {
  if (world_.size() == 1) {
    return;  // nothing is moved
  }
  int const next = (world_.rank() + 1) % world_.size();
  int const previous = (world_.rank() + world_.size() - 1) % world_.size();
  Transfer receive = world_.start_receive(floats(6), previous);
  EXPECT_EQ(of(world_, CollectiveOp::receive), (Traffic{1, 24}));
  Transfer send = world_.start_send(floats(6), next);
  EXPECT_EQ(of(world_, CollectiveOp::send), (Traffic{1, 24}));
  send.wait();
  receive.wait();
  EXPECT_EQ(of(world_, CollectiveOp::receive), (Traffic{1, 24}));
  EXPECT_EQ(of(world_, CollectiveOp::send), (Traffic{1, 24}));
}

TEST_F(LedgerTest, IsSharedByCopiesAndNewInASplit) {
  if (world_.size() == 1) {
    return;  // nothing is moved
  }
  Communicator const copy = world_;
  copy.barrier();
  EXPECT_EQ(of(world_, CollectiveOp::barrier).operations, 1);
  EXPECT_EQ(of(session_.world(), CollectiveOp::barrier).operations, 1);
  Communicator const group = world_.split(0, world_.rank());
  EXPECT_EQ(group.ledger(), Ledger{});
  group.barrier();
  EXPECT_EQ(of(group, CollectiveOp::barrier).operations, 1);
  EXPECT_EQ(of(world_, CollectiveOp::barrier).operations, 1);
}

TEST_F(LedgerTest, OfAGroupOfOneStaysEmpty) {
  Communicator const alone = world_.split(world_.rank(), 0);
  alone.all_reduce(floats(3));
  alone.all_gather(floats(3), floats(3));
  EXPECT_EQ(alone.ledger(), Ledger{});
}

}  // namespace
}  // namespace heddle
