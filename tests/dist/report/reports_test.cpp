#include <heddle/dist/report/traffic_report.hpp>

#include "dist_fixture.hpp"

namespace heddle {
namespace {

using TrafficReportTest = DistTest;

TEST_F(TrafficReportTest, ReportsTheTrafficOfTheGroupsSince) {
  ParallelState const parallel = state_of({1, world_.size(), 1, 1});
  Tensor const numbers = Tensor::allocate(DType::float32, {10});
  parallel.data.all_reduce(numbers);
  TrafficByGroup const before = traffic_of(parallel);
  parallel.data.all_reduce(numbers);
  parallel.data.all_reduce(numbers);
  parallel.replicas.broadcast(numbers, 0);
  TrafficByGroup const since = traffic_of(parallel) - before;
  std::map<std::string, Traffic> reported;
  for_each_traffic(since, [&](std::string const& name, Traffic const& traffic) { reported[name] = traffic; });
  TrafficByGroup const all = sum_over_ranks(world_, since);
  std::string const table = describe_traffic("rank 0", since, all);
  if (world_.size() == 1) {
    EXPECT_TRUE(reported.empty());
    expect_lacks(table, "all_reduce");
    return;
  }
  std::map<std::string, Traffic> const expected{{"data.all_reduce", {2, 80}}, {"replicas.broadcast", {1, 40}}};
  EXPECT_EQ(reported, expected);
  std::int64_t const ranks = world_.size();
  EXPECT_EQ(all[TrafficGroup::data][static_cast<std::size_t>(CollectiveOp::all_reduce)],
            (Traffic{2 * ranks, 80 * ranks}));
  expect_contains(table, {"data.all_reduce                       2         80 B", "replicas.broadcast"});
}

}  // namespace
}  // namespace heddle
