#include <heddle/core/parallel/communicator.hpp>

#include "test.hpp"

namespace heddle {
namespace {

Tensor numbers(std::vector<float> const& values) {
  return from_host(std::span<float const>(values), {static_cast<std::int64_t>(values.size())});
}

TEST(SelfCommunicatorTest, IsOneRank) {
  Communicator const self = Communicator::self();
  EXPECT_EQ(self.rank(), 0);
  EXPECT_EQ(self.size(), 1);
  EXPECT_EQ(self.split(3, 5).size(), 1);
  self.barrier();
}

TEST(SelfCommunicatorTest, ReductionsAndBroadcastLeaveTheTensorAsItIs) {
  Communicator const self = Communicator::self();
  Tensor const tensor = numbers({1, -2, 3});
  for (ReduceOp const op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
    self.all_reduce(tensor, op);
  }
  self.broadcast(tensor, 0);
  EXPECT_EQ(to_host<float>(tensor), (std::vector<float>{1, -2, 3}));
}

TEST(SelfCommunicatorTest, MovingVerbsCopyInputToOutput) {
  Communicator const self = Communicator::self();
  Tensor const input = numbers({1, -2, 3});
  auto const moved = [&](auto const& collective) {
    Tensor const output = numbers({0, 0, 0});
    collective(output);
    return to_host<float>(output);
  };
  std::vector<float> const expected{1, -2, 3};
  EXPECT_EQ(moved([&](Tensor const& output) { self.all_gather(input, output); }), expected);
  EXPECT_EQ(moved([&](Tensor const& output) { self.start_reduce_scatter(input, output).wait(); }), expected);
}

TEST(SelfCommunicatorTest, HasNobodyToTalkTo) {
  Communicator const self = Communicator::self();
  expect_error([&] { self.send(numbers({1}), 0); }, "send: ");
  expect_error([&] { self.receive(numbers({1}), 0); }, "receive: ");
}

TEST(SelfCommunicatorTest, MovesItsRowsToItself) {
  Communicator const self = Communicator::self();
  Tensor const input = numbers({1, -2, 3, 4, 5, 6}).reshaped({3, 2});
  std::vector<std::int64_t> const rows{3};
  auto const moved = [&](auto const& collective) {
    Tensor const output = Tensor::allocate(DType::float32, {3, 2});
    collective(output);
    return to_host<float>(output);
  };
  auto const expected = to_host<float>(input);
  EXPECT_EQ(moved([&](Tensor const& output) { self.all_gather_rows(input, output, rows); }), expected);
  EXPECT_EQ(moved([&](Tensor const& output) { self.reduce_scatter_rows(input, output, rows); }), expected);
  EXPECT_EQ(moved([&](Tensor const& output) { self.all_to_all_rows(input, rows, output, rows); }), expected);
  EXPECT_EQ(moved([&](Tensor const& output) { EXPECT_TRUE(self.start_all_gather(input, output).progress()); }),
            expected);
  self.all_gather(input, input);
  EXPECT_EQ(to_host<float>(input), expected);
}

TEST(SelfCommunicatorTest, KeepsAnEmptyLedger) {
  Communicator const self = Communicator::self();
  self.all_reduce(numbers({1, 2}));
  self.barrier();
  EXPECT_EQ(self.ledger(), Ledger{});
}

TEST(TransferTest, OfNothingIsDone) {
  Transfer transfer;
  EXPECT_TRUE(transfer.progress());
  transfer.wait();
}

TEST(CommunicatorTest, ChecksRowsAndNamesTheVerb) {
  Communicator const self = Communicator::self();
  Tensor const matrix = Tensor::allocate(DType::float32, {3, 2});
  Tensor const narrow = Tensor::allocate(DType::float32, {6, 1});
  std::vector<std::int64_t> const three{3};
  std::vector<std::int64_t> const two{2};
  std::vector<std::int64_t> const for_others{1, 2};
  expect_error([&] { self.all_gather_rows(narrow, matrix, three); },
               "all_gather_rows: rows of float32 [3, 2] are not rows of float32 [6, 1]");
  expect_error([&] { self.reduce_scatter_rows(matrix, matrix, two); },
               "reduce_scatter_rows: the 3 rows of [3, 2] are not the rows [2]");
  expect_error([&] { self.all_to_all_rows(matrix, three, matrix, for_others); },
               "all_to_all_rows: the 3 rows of [3, 2] are not the rows [1, 2]");
  expect_error(
      [&] {
        self.reduce_scatter_rows(matrix, Tensor::allocate(DType::float32, {2, 2}), three);
      },
      "reduce_scatter_rows: rank 0 holds 3 rows, but its part is [2, 2]");
}

TEST(CollectiveTest, HasAName) {
  EXPECT_EQ(name_of(CollectiveOp::all_reduce), "all_reduce");
  EXPECT_EQ(name_of(CollectiveOp::barrier), "barrier");
}

TEST(CommunicatorTest, ChecksTensorsAndRanksAndNamesTheVerb) {
  Communicator const self = Communicator::self();
  Tensor const two = numbers({1, 2});
  Tensor const three = numbers({1, 2, 3});
  Tensor const strided = Tensor::allocate(DType::float32, {3, 4}).columns(0, 2);
  expect_error([&] { self.all_gather(two, three); }, "all_gather: ");
  expect_error([&] { self.start_reduce_scatter(two, three).wait(); }, "reduce_scatter: ");
  expect_error([&] { self.all_reduce(strided); }, "all_reduce: a contiguous tensor");
  expect_error([&] { self.all_reduce(Tensor()); }, "all_reduce: ");
  expect_error([&] { self.broadcast(two, 1); }, "broadcast: there is no rank 1");
}

TEST(ParallelStateTest, OfOneRankHasGroupsOfOne) {
  ParallelState const state = make_parallel_state(Communicator::self(), Mesh());
  for (Communicator const& group :
       {state.world, state.pipeline, state.data, state.context, state.tensor, state.replicas}) {
    EXPECT_EQ(group.size(), 1);
  }
}

}  // namespace
}  // namespace heddle
