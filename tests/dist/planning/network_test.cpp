#include <heddle/dist/planning/network.hpp>

#include "dist_fixture.hpp"

namespace heddle {
namespace {

constexpr double latency = 2e-6;
constexpr double per_byte = 1e-9;

TEST(NetworkModel, ComputesTheTimesOfARing) {
  NetworkModel const network = NetworkModel::uniform(latency, per_byte, "");
  GroupTopology const four{.ranks = 4};
  auto const seconds = [&](CollectiveOp collective, std::int64_t operations, std::int64_t bytes) {
    return seconds_of(network, four, collective, {operations, bytes});
  };
  EXPECT_DOUBLE_EQ(seconds(CollectiveOp::all_reduce, 1, 1000), 2 * latency + 1500 * per_byte);
  EXPECT_DOUBLE_EQ(seconds(CollectiveOp::all_gather, 3, 1000), 6 * latency + 750 * per_byte);
  EXPECT_DOUBLE_EQ(seconds(CollectiveOp::reduce_scatter, 1, 1000), 2 * latency + 750 * per_byte);
  EXPECT_DOUBLE_EQ(seconds(CollectiveOp::all_to_all, 1, 1000), 3 * latency + 750 * per_byte);
  EXPECT_DOUBLE_EQ(seconds(CollectiveOp::receive, 2, 1000), 2 * latency + 1000 * per_byte);
  EXPECT_DOUBLE_EQ(seconds_of(network, {.ranks = 1}, CollectiveOp::all_reduce, {1, 1000}), 0);
}

TEST(NetworkModel, EachVerbAndSumHasItsOwnLink) {
  NetworkModel network;
  double factor = 1;
  for (LinkModel& link : network.inside_node) {
    link = {factor * latency, factor * per_byte};
    factor *= 2;
  }
  NetworkModel::Links const& links = network.inside_node;
  auto const uses = [&](CollectiveOp collective, SumKind sums, LinkModel const& link) {
    // Two ranks: one latency, and half of the bytes moves; twice that in an all-reduce, all of it in a message.
    double const share = collective == CollectiveOp::all_reduce || collective == CollectiveOp::receive ? 1 : 0.5;
    EXPECT_DOUBLE_EQ(seconds_of(network, {.ranks = 2}, collective, {1, 1000}, sums), link.seconds(share * 1000));
  };
  uses(CollectiveOp::all_reduce, SumKind::float32, links[NetworkModel::all_reduce]);
  uses(CollectiveOp::all_reduce, SumKind::bfloat16, links[NetworkModel::bfloat16_all_reduce]);
  uses(CollectiveOp::all_reduce, SumKind::gradients, links[NetworkModel::reduction]);
  uses(CollectiveOp::reduce_scatter, SumKind::float32, links[NetworkModel::reduce_scatter]);
  uses(CollectiveOp::reduce_scatter, SumKind::bfloat16, links[NetworkModel::bfloat16_reduce_scatter]);
  uses(CollectiveOp::reduce_scatter, SumKind::gradients, links[NetworkModel::reduction]);
  for (SumKind const sums : {SumKind::float32, SumKind::bfloat16, SumKind::gradients}) {
    uses(CollectiveOp::all_gather, sums, links[NetworkModel::all_gather]);
    uses(CollectiveOp::broadcast, sums, links[NetworkModel::all_gather]);
    uses(CollectiveOp::all_to_all, sums, links[NetworkModel::all_to_all]);
    uses(CollectiveOp::receive, sums, links[NetworkModel::message]);
  }
}

TEST(NetworkModel, KnowsWhichGroupsCrossNodes) {
  LayoutChoice const layout{.shape = {2, 4, 1, 2}};  // 16 ranks: tensor pairs, data beside, pipeline outside
  auto const places = group_places(layout, {.nodes = 4, .ranks_per_node = 4});
  GroupTopology const& pipeline = places[TrafficGroup::pipeline];
  GroupTopology const& data = places[TrafficGroup::data];
  GroupTopology const& tensor = places[TrafficGroup::tensor];
  EXPECT_TRUE(tensor.inside_node);
  EXPECT_FALSE(data.inside_node);
  EXPECT_EQ(data.sharers, 2) << "a node has two ranks of each data group";
  EXPECT_FALSE(pipeline.inside_node);
  EXPECT_EQ(pipeline.sharers, 4);
  for (GroupTopology const& place : group_places(layout, {.nodes = 1, .ranks_per_node = 16})) {
    EXPECT_TRUE(place.inside_node);
  }
}

TEST(NetworkModel, FitsALine) {
  std::vector<TimedMessage> messages;
  for (double const bytes : {64.0, 4096.0, 1e6}) {
    messages.push_back({2, bytes, 2 * latency + bytes * per_byte});
  }
  LinkModel const link = fit_link(messages);
  EXPECT_NEAR(link.latency, latency, 1e-3 * latency);
  EXPECT_NEAR(link.seconds_per_byte, per_byte, 1e-3 * per_byte);
}

TEST(NetworkModel, NeverFitsNegativeNumbers) {
  std::vector<TimedMessage> const falling{{1, 100, 3e-6}, {1, 1e6, 1e-6}};
  LinkModel const link = fit_link(falling);
  EXPECT_GE(link.latency, 0);
  EXPECT_GE(link.seconds_per_byte, 0);
  EXPECT_GT(link.seconds(1000), 0);
}

class NetworkMeasurementTest : public DistTest {};

TEST_F(NetworkMeasurementTest, EveryRankGetsTheSameTimes) {
  Communicator const pair = world_.split(world_.rank() / 2, world_.rank());
  if (world_.rank() >= 2) {
    return;  // two ranks are enough
  }
  NetworkModel const network = measure_network(pair);
  for (std::size_t link = 0; link < network.inside_node.size(); ++link) {
    EXPECT_GT(network.inside_node[link].seconds(1 << 20), 0) << NetworkModel::link_names[link];
  }
  double min = network.inside_node[NetworkModel::all_reduce].seconds(1 << 20);
  double max = min;
  Tensor const both = tensor_of<double>({-min, max});
  pair.all_reduce(both, ReduceOp::max);
  auto const values = to_host<double>(both);
  EXPECT_EQ(-values[0], values[1]);
}

}  // namespace
}  // namespace heddle
