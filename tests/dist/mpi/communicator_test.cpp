#include "dist_fixture.hpp"

namespace heddle {
namespace {

/// Small integers: exact in every dtype, and so are their sums over 8 ranks.
template <class Element>
std::vector<float> values_of(int rank, std::int64_t count) {
  std::vector<float> values;
  for (std::int64_t index = 0; index < count; ++index) {
    values.push_back(static_cast<float>((rank * 5 + index * 3) % 13) - 4);
  }
  return values;
}

template <class Element>
Tensor make(std::vector<float> const& values) {
  std::vector<Element> elements;
  for (float const value : values) {
    elements.push_back(static_cast<Element>(value));
  }
  return tensor_of(elements);
}

template <class Element>
std::vector<float> read(Tensor const& tensor) {
  std::vector<float> values;
  for (Element const element : to_host<Element>(tensor)) {
    values.push_back(static_cast<float>(element));
  }
  return values;
}

float combined(float left, float right, ReduceOp op) {
  return op == ReduceOp::sum ? left + right : op == ReduceOp::max ? std::max(left, right) : std::min(left, right);
}

/// The reduction over a group's ranks, each of which makes its values from its rank in the group.
template <class Element>
std::vector<float> reduced(int ranks, std::int64_t count, ReduceOp op) {
  auto result = values_of<Element>(0, count);
  for (int rank = 1; rank < ranks; ++rank) {
    auto const values = values_of<Element>(rank, count);
    for (std::size_t index = 0; index < result.size(); ++index) {
      result[index] = combined(result[index], values[index], op);
    }
  }
  return result;
}

template <class Element>
void check_reductions(Communicator const& group, std::int64_t part) {
  std::int64_t const count = part * group.size();
  for (ReduceOp const op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
    auto const expected = reduced<Element>(group.size(), count, op);
    Tensor const tensor = make<Element>(values_of<Element>(group.rank(), count));
    group.all_reduce(tensor, op);
    EXPECT_EQ(read<Element>(tensor), expected);
  }
}

template <class Element>
void check_movements(Communicator const& group, std::int64_t part) {
  std::int64_t const count = part * group.size();
  std::vector<float> gathered;
  for (int rank = 0; rank < group.size(); ++rank) {
    auto const values = values_of<Element>(rank, part);
    gathered.insert(gathered.end(), values.begin(), values.end());
  }
  Tensor const output = make<Element>(std::vector<float>(static_cast<std::size_t>(count)));
  group.all_gather(make<Element>(values_of<Element>(group.rank(), part)), output);
  EXPECT_EQ(read<Element>(output), gathered);
  int const root = group.size() - 1;
  Tensor const tensor = make<Element>(values_of<Element>(group.rank(), part));
  group.broadcast(tensor, root);
  EXPECT_EQ(read<Element>(tensor), values_of<Element>(root, part));
}

/// A message from each rank to the next.
template <class Element>
void check_messages(Communicator const& group, std::int64_t count) {
  if (group.size() == 1) {
    return;
  }
  int const next = (group.rank() + 1) % group.size();
  int const previous = (group.rank() + group.size() - 1) % group.size();
  Tensor const sent = make<Element>(values_of<Element>(group.rank(), count));
  Tensor const received = make<Element>(std::vector<float>(static_cast<std::size_t>(count)));
  if (group.rank() % 2 == 0) {
    group.send(sent, next, 3);
    group.receive(received, previous, 3);
  } else {
    group.receive(received, previous, 3);
    group.send(sent, next, 3);
  }
  EXPECT_EQ(read<Element>(received), values_of<Element>(previous, count));
}

template <class Element>
void check_collectives_of(Communicator const& group) {
  for (std::int64_t const part : {1, 7, 50}) {
    SCOPED_TRACE(testing::Message() << name_of(DTypeOf<Element>::value) << ", parts of " << part);
    check_reductions<Element>(group, part);
    check_movements<Element>(group, part);
    check_messages<Element>(group, part);
  }
}

void check_collectives(Communicator const& group) {
  check_collectives_of<float>(group);
  check_collectives_of<double>(group);
  check_collectives_of<std::int32_t>(group);
  check_collectives_of<BFloat16>(group);
  group.barrier();
}

using CommunicatorTest = DistTest;

TEST_F(CommunicatorTest, EveryVerbOnTheWorld) {
  check_collectives(world_);
}

TEST_F(CommunicatorTest, EveryVerbInPiecesOfAFewElements) {
  MpiSession const session(5);
  check_collectives(session.world());
  check_collectives(session.world().split(world_.rank() % 2, world_.rank()));
}

TEST_F(CommunicatorTest, SplitGroupsAreOrderedByKey) {
  int const color = world_.rank() % 2;
  Communicator const group = world_.split(color, -world_.rank());
  int const size = (world_.size() + 1 - color) / 2;
  ASSERT_EQ(group.size(), size);
  EXPECT_EQ(group.rank(), size - 1 - world_.rank() / 2);
  check_collectives(group);
}

TEST_F(CommunicatorTest, MeshGroupsHoldTheRanksAlongTheirAxis) {
  for (auto const& layout : layouts_of(world_.size())) {
    Mesh const mesh(layout, world_.rank(), world_.size());
    SCOPED_TRACE(mesh.to_string());
    ParallelState const state = make_parallel_state(world_, mesh);
    auto const check = [&](Communicator const& group, MeshAxis axis) {
      EXPECT_EQ(group.size(), mesh.size(axis));
      EXPECT_EQ(group.rank(), mesh.coordinate(axis));
      // Among a group's members only this axis' coordinate differs, so all of them have the colour of its first.
      Tensor const color = tensor_of(std::vector<std::int32_t>{mesh.group({axis}).first});
      group.broadcast(color, 0);
      EXPECT_EQ(to_host<std::int32_t>(color)[0], mesh.group({axis}).first);
      check_collectives_of<float>(group);
    };
    check(state.pipeline, MeshAxis::pipeline);
    check(state.data, MeshAxis::data);
    check(state.context, MeshAxis::context);
    check(state.tensor, MeshAxis::tensor);
    check(state.group({expert_axis}), expert_axis);
    Communicator const& replicas = state.replicas;
    EXPECT_EQ(replicas.size(), mesh.size(MeshAxis::data) * mesh.size(MeshAxis::context));
    EXPECT_EQ(replicas.rank(),
              mesh.coordinate(MeshAxis::data) * mesh.size(MeshAxis::context) + mesh.coordinate(MeshAxis::context));
    Tensor const shard =
        tensor_of(std::vector<std::int32_t>{mesh.coordinate(MeshAxis::pipeline), mesh.coordinate(MeshAxis::tensor)});
    auto const own = to_host<std::int32_t>(shard);
    replicas.broadcast(shard, 0);
    EXPECT_EQ(to_host<std::int32_t>(shard), own);
  }
}

TEST_F(CommunicatorTest, BFloat16SumsAreRoundedNumbersNotWords) {
  Tensor const tensor = tensor_of(std::vector<BFloat16>{BFloat16(1.5F), BFloat16(-0.0078125F)});
  world_.all_reduce(tensor);
  auto const size = static_cast<float>(world_.size());
  EXPECT_EQ(read<BFloat16>(tensor), (std::vector<float>{1.5F * size, -0.0078125F * size}));
}

TEST_F(CommunicatorTest, AMessageOfAnotherSizeOrTypeThrowsAndIsTaken) {
  if (world_.size() == 1) {
    return;  // nobody to send
  }
  auto const large = static_cast<std::size_t>(1) << 16;  // more than MPI sends without waiting for the receiver
  if (world_.rank() == 0) {
    world_.send(Tensor::allocate(DType::float32, {4}), 1);
    world_.send(Tensor::allocate(DType::int32, {static_cast<std::int64_t>(large)}), 1);
    world_.send(tensor_of(std::vector<float>{1, 2, 3}), 1);
  } else if (world_.rank() == 1) {
    Tensor const three = Tensor::allocate(DType::float32, {3});
    Tensor const many = Tensor::allocate(DType::float32, {static_cast<std::int64_t>(large)});
    expect_error([&] { world_.receive(three, 0); }, {"receive", "float32 [3]", "4 elements"});
    expect_error([&] { world_.receive(many, 0); }, {"receive", "65536 elements of int32"});
    world_.receive(three, 0);
    EXPECT_EQ(to_host<float>(three), (std::vector<float>{1, 2, 3}));
  }
}

TEST_F(CommunicatorTest, AMessageMayBeEmpty) {
  if (world_.size() > 1 && world_.rank() < 2) {
    Tensor const nothing = Tensor::allocate(DType::float32, {0});
    world_.rank() == 0 ? world_.send(nothing, 1) : world_.receive(nothing, 0);
  }
  world_.all_reduce(Tensor::allocate(DType::float32, {0}));
}

TEST_F(CommunicatorTest, ErrorsOfMpiNameTheVerb) {
  Tensor const tensor = Tensor::allocate(DType::float32, {1});
  EXPECT_THAT(error_of([&] { world_.send(tensor, 0, -7); }),
              AllOf(HasSubstr("send: MPI error"), AnyOf(HasSubstr("MPI_ERR_TAG"), HasSubstr("Invalid tag"))));
  expect_error([&] { world_.send(tensor, world_.size(), 0); }, "there is no rank");
  expect_error([&] { world_.receive(tensor, 0, 8192); }, "receive: tag 8192");
}

TEST_F(CommunicatorTest, MayOutliveMpi) {
  static Communicator const kept = world_.split(0, 0);  // destroyed after MPI_Finalize
  EXPECT_EQ(kept.size(), world_.size());
}

}  // namespace
}  // namespace heddle
