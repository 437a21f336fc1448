#include "dist_fixture.hpp"

namespace heddle {
namespace {

/// More than MPI sends before the receiver is ready.
constexpr std::int64_t large = std::int64_t{1} << 17;

std::vector<float> values_of(int rank, std::int64_t count) {
  std::vector<float> values;
  for (std::int64_t index = 0; index < count; ++index) {
    values.push_back(static_cast<float>((rank * 101 + index) % 509));
  }
  return values;
}

Tensor wrong(std::int64_t count) {
  return tensor_of(std::vector<float>(static_cast<std::size_t>(count), -1));
}

struct Ring {
  explicit Ring(Communicator const& group)
      : next((group.rank() + 1) % group.size()), previous((group.rank() + group.size() - 1) % group.size()) {}
  int next;
  int previous;
};

/// Every rank sends to both neighbours and receives from both, all at once.
void check_ring(Communicator const& group, std::int64_t count) {
  Ring const ring(group);
  Tensor const forward = tensor_of(values_of(group.rank(), count));
  Tensor const backward = tensor_of(values_of(group.rank() + 50, count));
  Tensor const from_previous = wrong(count);
  Tensor const from_next = wrong(count);
  {
    Transfer to_next = group.start_send(forward, ring.next, 1);
    Transfer to_previous = group.start_send(backward, ring.previous, 2);
    Transfer receive_next = group.start_receive(from_next, ring.next, 2);
    Transfer receive_previous = group.start_receive(from_previous, ring.previous, 1);
    receive_previous.wait();
    receive_next.wait();
  }  // the sends are waited for here
  EXPECT_EQ(to_host<float>(from_previous), values_of(ring.previous, count));
  EXPECT_EQ(to_host<float>(from_next), values_of(ring.next + 50, count));
}

class TransferTest : public DistTest {
 protected:
  bool alone() const { return world_.size() == 1; }  ///< nobody to talk to
};

TEST_F(TransferTest, NeighboursInARingExchangeAtOnce) {
  for (std::int64_t const count : {std::int64_t{0}, std::int64_t{7}, large}) {
    check_ring(world_, count);
  }
}

TEST_F(TransferTest, NeighboursExchangeInPieces) {
  MpiSession const session(1000);
  for (std::int64_t const count : {std::int64_t{0}, std::int64_t{999}, std::int64_t{2001}, large}) {
    check_ring(session.world(), count);
  }
}

TEST_F(TransferTest, ProgressReachesDone) {
  Ring const ring(world_);
  Tensor const sent = tensor_of(values_of(world_.rank(), large));
  Tensor const received = wrong(large);
  Transfer receive = world_.start_receive(received, ring.previous);
  Transfer send = world_.start_send(sent, ring.next);
  while (!send.progress() || !receive.progress()) {
  }
  EXPECT_EQ(to_host<float>(received), values_of(ring.previous, large));
  EXPECT_TRUE(receive.progress());
  receive.wait();
}

TEST_F(TransferTest, IsNotDoneBeforeTheSenderComes) {
  if (alone()) {
    return;
  }
  Ring const ring(world_);
  Tensor const received = wrong(3);
  Transfer receive = world_.start_receive(received, ring.previous);
  EXPECT_FALSE(receive.progress());
  world_.barrier();
  world_.send(tensor_of(values_of(world_.rank(), 3)), ring.next);
  receive.wait();
  EXPECT_EQ(to_host<float>(received), values_of(ring.previous, 3));
}

TEST_F(TransferTest, MeetsTheBlockingVerbsInOrder) {
  Ring const ring(world_);
  auto const first = tensor_of(values_of(world_.rank(), large));
  auto const second = tensor_of(values_of(world_.rank() + 1, 5));
  Tensor const received_first = wrong(large);
  Tensor const received_second = wrong(5);
  {
    Transfer const send = world_.start_send(first, ring.next);
    Transfer const send_too = world_.start_send(second, ring.next);
    world_.receive(received_first, ring.previous);
    world_.receive(received_second, ring.previous);
  }
  EXPECT_EQ(to_host<float>(received_first), values_of(ring.previous, large));
  EXPECT_EQ(to_host<float>(received_second), values_of(ring.previous + 1, 5));
  {
    Transfer const receive = world_.start_receive(received_second, ring.previous);
    Transfer const receive_too = world_.start_receive(received_first, ring.previous);
    world_.send(second, ring.next);
    world_.send(first, ring.next);
  }
  EXPECT_EQ(to_host<float>(received_first), values_of(ring.previous, large));
  EXPECT_EQ(to_host<float>(received_second), values_of(ring.previous + 1, 5));
}

TEST_F(TransferTest, ReceivesMayBeLookedAfterInAnyOrder) {
  Ring const ring(world_);
  std::vector<Transfer> sends;
  std::vector<Transfer> receives;
  std::vector<Tensor> received;
  for (int message = 0; message < 4; ++message) {
    received.push_back(wrong(large));
    receives.push_back(world_.start_receive(received.back(), ring.previous));
    sends.push_back(world_.start_send(tensor_of(values_of(world_.rank() + message, large)), ring.next));
  }
  for (int const message : {3, 1, 0, 2}) {
    auto const slot = static_cast<std::size_t>(message);
    receives[slot].wait();
    EXPECT_EQ(to_host<float>(received[slot]), values_of(ring.previous + message, large));
  }
}

TEST_F(TransferTest, KeepsItsTensorAndMoves) {
  Ring const ring(world_);
  Tensor const received = wrong(large);
  std::vector<Transfer> transfers;
  transfers.push_back(world_.start_receive(received, ring.previous));
  transfers.push_back(world_.start_send(tensor_of(values_of(world_.rank(), large)), ring.next));  // a temporary
  for (Transfer& transfer : transfers) {
    transfer.wait();
  }
  EXPECT_EQ(to_host<float>(received), values_of(ring.previous, large));
}

void check_all_gather(Communicator const& group, std::int64_t part) {
  std::vector<float> expected;
  for (int rank = 0; rank < group.size(); ++rank) {
    auto const values = values_of(rank, part);
    expected.insert(expected.end(), values.begin(), values.end());
  }
  Tensor const output = wrong(part * group.size());
  Tensor const in_place = wrong(part * group.size());
  Tensor const own = in_place.rows(part * group.rank(), part);
  copy_from_host(own, values_of(group.rank(), part).data());
  Transfer first = group.start_all_gather(tensor_of(values_of(group.rank(), part)), output);
  Transfer second = group.start_all_gather(own, in_place);
  second.wait();
  while (!first.progress()) {
  }
  EXPECT_EQ(to_host<float>(output), expected);
  EXPECT_EQ(to_host<float>(in_place), expected);
}

TEST_F(TransferTest, AllGathersRunSideBySide) {
  MpiSession const session(50);
  for (std::int64_t const part : {0, 1, 13, 400}) {
    check_all_gather(world_, part);
    check_all_gather(session.world(), part);
  }
}

/// Rank 0 sends a message that rank 1 does not expect, which the sender does not notice; another tag still works.
void check_mismatch(Communicator const& world, Tensor const& sent, Tensor const& expected, char const* words) {
  SCOPED_TRACE(words);
  if (world.rank() == 0) {
    world.send(sent, 1, 1);
    world.send(tensor_of(std::vector<float>{1, 2, 3}), 1, 2);
  } else if (world.rank() == 1) {
    Transfer receive = world.start_receive(expected, 0, 1);
    auto const receive_all = [&] {
      while (!receive.progress()) {
      }
    };
    expect_contains(error_of(receive_all), {"receive: expected", words});
    Tensor const three = wrong(3);
    world.receive(three, 0, 2);
    EXPECT_EQ(to_host<float>(three), (std::vector<float>{1, 2, 3}));
  }
  world.barrier();
}

TEST_F(TransferTest, AMessageOfAnotherSizeOrTypeThrowsAndIsTaken) {
  if (alone()) {
    return;
  }
  auto const floats = [](std::int64_t count) { return Tensor::allocate(DType::float32, {count}); };
  check_mismatch(world_, floats(4), floats(3), "float32 [3] from rank 0 with tag 1, but it sent 4 elements of float32");
  check_mismatch(world_, floats(3), floats(400), "sent 3 elements");
  check_mismatch(world_, floats(large), floats(3), "sent 131072 elements");
  check_mismatch(world_, floats(0), floats(3), "sent 0 elements");
  check_mismatch(world_, floats(3), floats(0), "sent 3 elements");
  check_mismatch(world_, Tensor::allocate(DType::int32, {large}), floats(large), "131072 elements of int32");
  check_mismatch(world_, Tensor::allocate(DType::float64, {large}), floats(large), "131072 elements of float64");
}

TEST_F(TransferTest, AMessageOfAnotherNumberOfPiecesThrowsAndIsTaken) {
  MpiSession const session(2);
  if (alone()) {
    return;
  }
  check_mismatch(session.world(), wrong(9), wrong(2), "sent 9 elements");
  check_mismatch(session.world(), wrong(99), wrong(100), "sent 99 elements");
}

TEST_F(TransferTest, IsNotWaitedForWhileAnExceptionPasses) {
  if (alone()) {
    return;
  }
  Communicator const group = world_.split(0, world_.rank());
  EXPECT_THROW(
      {
        Transfer const never_sent = group.start_receive(wrong(3), Ring(group).previous);
        throw Error("the rank's own fault");
      },
      Error);
}

TEST_F(TransferTest, MayOutliveMpi) {
  static std::array<float, 3> memory{};
  static std::optional<Transfer> kept;  // destroyed after MPI_Finalize
  kept.emplace(world_.start_receive(Tensor::borrow(memory.data(), DType::float32, {3}), world_.rank(), 5));
  EXPECT_FALSE(kept->progress());
}

}  // namespace
}  // namespace heddle
