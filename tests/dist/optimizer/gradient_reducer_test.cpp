#include <bit>
#include <heddle/core/base/random.hpp>
#include <heddle/core/operations/registry.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/dist/optimizer/gradient_reducer.hpp>
#include <heddle/kernels/register.hpp>

#include "dist_fixture.hpp"

namespace heddle {
namespace {

using Values = std::vector<float>;

constexpr std::int64_t max_micro_batches = 11;

std::shared_ptr<TensorOps> tensor_operations() {
  KernelRegistries registries;
  register_built_in_kernels(registries);
  return registries.of<TensorOps>().select("auto", {DType::float32});
}

/// Micro-batch `leaf`'s gradient: numbers of either sign from 1e-6 to 1e6, whose sum depends on its order.
float gradient_of(std::int64_t leaf, std::int64_t index) {
  auto const words = Philox::words(99, {static_cast<std::uint32_t>(leaf), static_cast<std::uint32_t>(index), 0, 0});
  double const exponent = 12 * (static_cast<double>(words[0]) * 0x1.0p-32) - 6;
  return static_cast<float>((words[1] % 2 == 0 ? 1 : -1) * std::pow(10.0, exponent));
}

double loss_of(std::int64_t leaf, std::int64_t index) {
  return (leaf % 2 == 0 ? 1e16 : -1e16) / static_cast<double>(leaf + 1) + static_cast<double>(index) / 3;
}

/// The tree, written a second time: a node is the sum of its halves, the left one the largest power of two below the
/// whole.
template <class Element, class Leaf>
Element tree_sum(std::int64_t begin, std::int64_t end, Leaf const& leaf) {
  if (end - begin == 1) {
    return leaf(begin);
  }
  std::int64_t half = 1;
  while (2 * half < end - begin) {
    half *= 2;
  }
  return tree_sum<Element>(begin, begin + half, leaf) + tree_sum<Element>(begin + half, end, leaf);
}

Values tree_gradients(std::int64_t micro_batches, std::int64_t size) {
  Values sums;
  for (std::int64_t index = 0; index < size; ++index) {
    sums.push_back(tree_sum<float>(0, micro_batches, [&](std::int64_t leaf) { return gradient_of(leaf, index); }));
  }
  return sums;
}

bool same_bits(Values const& left, Values const& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), [](float one, float other) {
    return std::bit_cast<std::uint32_t>(one) == std::bit_cast<std::uint32_t>(other);
  });
}

/// A reducer over a group, with the objects that it works on.
struct Bench {
  explicit Bench(Communicator const& group, std::int64_t bucket = GradientReducer::default_bucket)
      : reducer(state_of(group), declared(parameters), tensor_operations(), execution, {.bucket_elements = bucket}) {}

  static ParallelState state_of(Communicator const& group) {
    ParallelState state;
    state.data = group;
    state.replicas = state.loss_parts = group;
    return state;
  }

  static ParameterSet& declared(ParameterSet& set) {
    set.declare({"weight", {{5, 7}, {}, {MeshAxis::data}}, Initializer::zeros()});
    set.declare({"bias", {{9}}, Initializer::zeros()});
    set.allocate(DType::float32);
    return set;
  }

  /// Adds to the gradients, as a backward pass does.
  void run_micro_batch(std::int64_t leaf) {
    auto sums = gradients();
    for (std::size_t index = 0; index < sums.size(); ++index) {
      sums[index] += gradient_of(leaf, static_cast<std::int64_t>(index));
    }
    copy_from_host(parameters.gradients(), sums.data());
    auto losses = to_host<double>(loss_sums);
    losses[0] += loss_of(leaf, 0);
    losses[1] += loss_of(leaf, 1);
    copy_from_host(loss_sums, losses.data());
  }

  Values gradients() const { return to_host<float>(parameters.gradients()); }

  ParameterSet parameters{Mesh()};
  Tensor loss_sums = Tensor::allocate(DType::float64, {2});
  Arena scratch{1 << 20};
  Execution execution{Kokkos::DefaultExecutionSpace(), scratch};
  GradientReducer reducer;
};

TEST(GradientBucketTest, BucketsGrowWithTheReplicasOnceTheirPartsWouldBeSmallMessages) {
  for (int const few : {1, 2, 17}) {
    EXPECT_EQ(GradientReducer::bucket_for(few), GradientReducer::default_bucket);
  }
  EXPECT_EQ(GradientReducer::bucket_for(64), 64 * 15'000);
}

TEST(ShareTest, SharesFollowEachOtherAndDifferByAtMostOne) {
  for (std::int64_t count = 1; count <= 40; ++count) {
    for (int ranks = 1; ranks <= 13; ++ranks) {
      std::int64_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        IndexRange const part = share(count, rank, ranks);
        EXPECT_EQ(part.begin, next);
        EXPECT_GE(part.count(), count / ranks);
        EXPECT_LE(part.count(), count / ranks + 1);
        for (; next < part.end; ++next) {
          EXPECT_EQ(owner_of(next, count, ranks), rank);
        }
      }
      EXPECT_EQ(next, count);
    }
  }
}

using GradientReducerTest = DistTest;

/// A step over `n` micro-batches by the tree.
template <class Run>
void reduce_tree(GradientReducer& reducer, std::int64_t n, Tensor const& loss_sums, Run const& run_micro_batch) {
  IndexRange const mine = reducer.begin_tree(n, loss_sums);
  for (std::int64_t leaf = mine.begin; leaf < mine.end; ++leaf) {
    run_micro_batch(leaf);
    reducer.micro_batch_done();
  }
  reducer.finish_tree();
}

// Small messages are sent before anyone asks for them; large ones wait, and a cycle of waiting ranks would deadlock.
TEST_F(GradientReducerTest, RanksThatWaitForEachOthersLargeMessagesComeThrough) {
  ParameterSet parameters{Mesh()};
  parameters.declare({"large", {{20000}}, Initializer::zeros()});
  parameters.allocate(DType::float32);
  Bench bench(world_);
  GradientReducer reducer(Bench::state_of(world_), parameters, tensor_operations(), bench.execution, {});
  for (std::int64_t n = 1; n <= max_micro_batches; ++n) {
    reduce_tree(reducer, n, bench.loss_sums, [&](std::int64_t leaf) {
      Values const ones(static_cast<std::size_t>(parameters.size()), static_cast<float>(leaf + 1));
      copy_from_host(parameters.gradients(), ones.data());
    });
    Values const expected(static_cast<std::size_t>(parameters.size()), static_cast<float>(n * (n + 1) / 2));
    EXPECT_TRUE(same_bits(to_host<float>(parameters.gradients()), expected));
  }
}

TEST_F(GradientReducerTest, TheTreeIsBitwiseTheSameOnAnyNumberOfDataRanks) {
  for (int ranks = 1; ranks <= world_.size(); ++ranks) {
    // The other ranks form another group, which must get the same sums.
    Bench bench(world_.split(world_.rank() < ranks ? 0 : 1, world_.rank()));
    for (std::int64_t n = 1; n <= max_micro_batches; ++n) {
      SCOPED_TRACE(testing::Message() << n << " micro-batches on the first " << ranks << " ranks");
      reduce_tree(bench.reducer, n, bench.loss_sums, [&](std::int64_t leaf) { bench.run_micro_batch(leaf); });
      EXPECT_TRUE(same_bits(bench.gradients(), tree_gradients(n, bench.parameters.size())));
      auto const losses = to_host<double>(bench.loss_sums);
      for (std::int64_t index : {0, 1}) {
        EXPECT_EQ(losses[static_cast<std::size_t>(index)],
                  tree_sum<double>(0, n, [&](std::int64_t leaf) { return loss_of(leaf, index); }));
      }
    }
  }
}

// Shows that the test above can fail: the same gradients summed in the order of a plain all_reduce have other bits.
TEST_F(GradientReducerTest, ThePlainOrderGivesOtherBits) {
  Bench bench(world_);
  int other_bits = 0;
  for (std::int64_t n = 1; n <= max_micro_batches; ++n) {
    copy_from_host(bench.parameters.gradients(), Values(static_cast<std::size_t>(bench.parameters.size())).data());
    copy_from_host(bench.loss_sums, std::vector<double>(2).data());
    IndexRange const mine = share(n, world_.rank(), world_.size());
    for (std::int64_t leaf = mine.begin; leaf < mine.end; ++leaf) {
      bench.run_micro_batch(leaf);
    }
    bench.reducer.reduce(bench.loss_sums);
    auto const plain = bench.gradients();
    auto const tree = tree_gradients(n, bench.parameters.size());
    other_bits += same_bits(plain, tree) ? 0 : 1;
    for (std::size_t index = 0; index < plain.size(); ++index) {
      EXPECT_NEAR(plain[index], tree[index], 4) << "sums of numbers up to 1e6 in float32";
    }
  }
  EXPECT_GT(other_bits, 0);
}

TEST_F(GradientReducerTest, EachRankRunsItsShare) {
  Bench bench(world_);
  for (std::int64_t n = 1; n <= max_micro_batches; ++n) {
    IndexRange const mine = bench.reducer.begin_tree(n, bench.loss_sums);
    EXPECT_EQ(mine, share(n, world_.rank(), world_.size()));
    for (std::int64_t leaf = mine.begin; leaf < mine.end; ++leaf) {
      EXPECT_EQ(bench.gradients(), Values(static_cast<std::size_t>(bench.parameters.size()))) << "before leaf " << leaf;
      bench.run_micro_batch(leaf);
      bench.reducer.micro_batch_done();
    }
    bench.reducer.finish_tree();
  }
}

TEST_F(GradientReducerTest, EveryBucketSizeSumsEveryElementOnce) {
  for (std::int64_t const bucket : {1, 3, 16, 64, 1000}) {
    Bench bench(world_, bucket);
    Values values(static_cast<std::size_t>(bench.parameters.size()));
    Values expected(values.size());
    auto const size = static_cast<float>(world_.size());
    for (std::size_t index = 0; index < values.size(); ++index) {
      values[index] = static_cast<float>(index) + static_cast<float>(world_.rank());
      expected[index] = static_cast<float>(index) * size + size * (size - 1) / 2;
    }
    copy_from_host(bench.parameters.gradients(), values.data());
    copy_from_host(bench.loss_sums, std::vector<double>{1, 2}.data());
    bench.reducer.reduce(bench.loss_sums);
    EXPECT_EQ(bench.gradients(), expected) << "buckets of " << bucket;
    EXPECT_EQ(to_host<double>(bench.loss_sums), (std::vector<double>{size, 2 * size}));
  }
}

TEST_F(GradientReducerTest, RefusesWhatItCannotSum) {
  Bench bench(world_);
  expect_error([&] { bench.reducer.begin_tree(0, bench.loss_sums); }, "0 micro-batches");
  expect_error([&] { bench.reducer.begin_tree(1, Tensor::allocate(DType::float32, {2})); },
               "the loss sums must be float64");
  EXPECT_THROW(Bench(world_, 0), Error);

  auto const make = [&](ParameterSpec const& spec) {
    ParameterSet parameters{Mesh()};
    parameters.declare(spec);
    parameters.allocate(DType::float32);
    GradientReducer(ParallelState(), parameters, tensor_operations(), bench.execution, {});
  };
  expect_config_error(
      [&] {
        make({"norm", {{4}, {}, {MeshAxis::pipeline}}, Initializer::ones()});
      },
      "parameter norm: its gradient cannot be partial over pipeline");
  expect_error(
      [&] {
        make({"tied", {{4}, {}, {}, {0, 1}}, Initializer::ones()});
      },
      "parameter tied on stage 0: its stages {0, 1} must ascend");
  EXPECT_NO_THROW(make({"tied", {{4}, {}, {}, {0}}, Initializer::ones()}));
}

}  // namespace
}  // namespace heddle
