#include <heddle/core/tensor/execution.hpp>
#include <heddle/dist/optimizer/bucket_reduction.hpp>
#include <heddle/dist/optimizer/buffer_shards.hpp>

#include "dist_fixture.hpp"

namespace heddle {
namespace {

using Values = std::vector<float>;

constexpr std::int64_t width = 128;  ///< of each parameter, which is a separate bucket

/// Three layers, the first of which shares its parameter with a fourth, as an output projection does with an embedding.
struct Bench {
  explicit Bench(Communicator const& replicas, bool scatter = false)
      : group(replicas),
        parameters(mesh_of(replicas)),
        parts(declared(), width, replicas.size()),
        reduction(replicas, parameters, execution, parts, scatter) {}

  static Mesh mesh_of(Communicator const& replicas) {
    return Mesh({1, replicas.size(), 1, 1}, replicas.rank(), replicas.size());
  }

  ParameterSet& declared() {
    for (char const* const name : {"table", "middle", "last"}) {
      parameters.declare({name, {{width}}, Initializer::zeros()});
    }
    parameters.add_use(*parameters.find("table"));
    parameters.allocate(DType::float32);
    return parameters;
  }

  /// Fills the gradient with 1, 2, 3 … times (rank + 1).
  void fill(char const* name) {
    Values values;
    for (std::int64_t index = 0; index < width; ++index) {
      values.push_back(static_cast<float>((index + 1) * (group.rank() + 1)));
    }
    copy_from_host(parameters.find(name)->gradient, values.data());
  }
  void use_done(char const* name) { reduction.use_done(*parameters.find(name)); }
  Values gradient(char const* name) const { return to_host<float>(parameters.find(name)->gradient); }
  Values sum() const {
    std::int64_t const ranks = group.size();
    Values values;
    for (std::int64_t index = 0; index < width; ++index) {
      values.push_back(static_cast<float>((index + 1) * ranks * (ranks + 1) / 2));
    }
    return values;
  }
  std::int64_t started(CollectiveOp collective) const {
    return group.ledger()[static_cast<std::size_t>(collective)].operations;
  }

  Communicator group;
  ParameterSet parameters;
  BufferShards parts;
  Arena scratch{1 << 20};
  Execution execution{Kokkos::DefaultExecutionSpace(), scratch};
  BucketReduction reduction;
};

class BucketReductionTest : public DistTest {
 protected:
  /// A group whose ledger belongs to the test.
  Communicator group() const { return world_.split(0, world_.rank()); }
};

TEST_F(BucketReductionTest, ABucketLeavesWhenItsGradientsAreFinalAndArrivesWhileOthersAreComputed) {
  Bench bench(group());
  std::int64_t const one = bench.group.size() > 1 ? 1 : 0;
  for (int step = 0; step < 2; ++step) {
    std::int64_t const before = bench.started(CollectiveOp::all_reduce);
    auto const started = [&] { return bench.started(CollectiveOp::all_reduce) - before; };
    bench.fill("last");
    bench.reduction.progress();
    EXPECT_EQ(started(), 0);
    bench.use_done("table");  // by the last layer, with the first one's still to come
    bench.use_done("last");
    while (bench.gradient("last") != bench.sum()) {
      bench.reduction.progress();
    }
    EXPECT_EQ(started(), one);
    bench.fill("middle");
    bench.use_done("middle");
    bench.reduction.progress();
    EXPECT_EQ(started(), 2 * one);
    bench.fill("table");
    bench.reduction.progress();
    EXPECT_EQ(started(), 2 * one) << "its other use is not done";
    bench.use_done("table");
    bench.reduction.progress();
    EXPECT_EQ(started(), 3 * one);
    bench.reduction.finish();
    for (char const* const name : {"table", "middle", "last"}) {
      EXPECT_EQ(bench.gradient(name), bench.sum()) << name;
    }
  }
}

TEST_F(BucketReductionTest, BucketsLeaveInOneOrderWhateverIsFinalFirst) {
  Bench bench(group());
  for (char const* const name : {"table", "middle", "last"}) {
    bench.fill(name);
  }
  // Replicas differ in what they report, and in how much: one of them may have had no micro-batch at all.
  if (world_.rank() % 2 == 0) {
    bench.use_done("middle");
    bench.reduction.progress();
    EXPECT_EQ(bench.started(CollectiveOp::all_reduce), 0) << "the last layer's bucket is before it";
    bench.use_done("last");
    bench.reduction.progress();
  }
  bench.reduction.finish();
  for (char const* const name : {"table", "middle", "last"}) {
    EXPECT_EQ(bench.gradient(name), bench.sum()) << name;
  }
}

TEST_F(BucketReductionTest, ScatteredEachReplicaGetsItsParts) {
  Bench bench(group(), true);
  for (char const* const name : {"last", "middle", "table"}) {
    bench.fill(name);
    bench.use_done(name);
    bench.reduction.progress();
  }
  bench.use_done("table");
  bench.reduction.finish();
  EXPECT_EQ(bench.started(CollectiveOp::reduce_scatter),
            bench.group.size() > 1 ? static_cast<std::int64_t>(bench.parts.buckets().size()) : 0);
  Values const all = to_host<float>(bench.parameters.gradients());
  Values expected;
  for (int parameter = 0; parameter < 3; ++parameter) {
    Values const sum = bench.sum();
    expected.insert(expected.end(), sum.begin(), sum.end());
  }
  for (IndexRange const& part : bench.parts.parts_of(bench.group.rank())) {
    for (std::int64_t index = part.begin; index < std::min<std::int64_t>(part.end, 3 * width); ++index) {
      EXPECT_EQ(all[static_cast<std::size_t>(index)], expected[static_cast<std::size_t>(index)]) << index;
    }
  }
}

TEST_F(BucketReductionTest, AGradientThatIsFinalMayNotGrow) {
  Bench bench(group());
  if (bench.group.size() == 1) {
    return;  // nothing leaves
  }
  bench.use_done("last");
  expect_error([&] { bench.use_done("last"); }, "parameter last: more layers add");
  bench.reduction.finish();
  bench.use_done("last");
  bench.reduction.finish();
}

}  // namespace
}  // namespace heddle
