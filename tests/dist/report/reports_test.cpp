#include <gmock/gmock.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/base/host_name.hpp>
#include <heddle/dist/planning/layout_choice.hpp>
#include <heddle/dist/report/mesh_report.hpp>
#include <heddle/dist/report/traffic_report.hpp>
#include <map>

#include "dist_fixture.hpp"
#include "golden_model.hpp"

namespace heddle {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr VocabularySizes vocabulary{1000, 1000, true};

std::string mesh_text(std::array<int, mesh_axes> const& sizes, std::vector<std::string> const& hosts,
                      VocabularySizes const& sizes_of_vocabulary = vocabulary) {
  Config const config = with_layout({}, {.sizes = sizes, .sequence_parallel = true});
  return describe_mesh(config, description_of(config.model), Mesh(sizes, 0, static_cast<int>(hosts.size())),
                       sizes_of_vocabulary, hosts);
}

using MeshReportTest = DistTest;

TEST_F(MeshReportTest, HostsAreThoseOfTheRanks) {
  EXPECT_EQ(gather_hosts(world_), std::vector<std::string>(static_cast<std::size_t>(world_.size()), host_name()));
}

TEST_F(MeshReportTest, OneRankIsOneLine) {
  EXPECT_EQ(mesh_text({1, 1, 1, 1}, {"loom"}), "one rank on loom\n");
}

TEST_F(MeshReportTest, SaysWhatEveryRankHolds) {
  std::string const text = mesh_text({2, 1, 2, 2}, {"a", "a", "a", "a", "b", "b", "b", "b"});
  EXPECT_EQ(
      text,
      "8 ranks on 2 hosts with 4 each: pipeline 2 × data 1 × context 2 × tensor 2, schedule 1f1b, context by ring\n"
      "stage 0: encoder layers 1 to 6, decoder layer 1 (52 % of the cost)\n"
      "stage 1: decoder layers 2 to 6 (48 % of the cost)\n"
      "sequence parallel: between sublayers tensor rank r holds rows r/2 to (r+1)/2 of the stream\n"
      "rank  host  stage  context  chunks of 4  tensor  heads  d_ff       vocabulary\n"
      "0     a     0      0        0, 3         0       0-3    0-1023     0-499\n"
      "1     a     0      0        0, 3         1       4-7    1024-2047  500-999\n"
      "2     a     0      1        1, 2         0       0-3    0-1023     0-499\n"
      "3     a     0      1        1, 2         1       4-7    1024-2047  500-999\n"
      "4     b     1      0        0, 3         0       0-3    0-1023     0-499\n"
      "5     b     1      0        0, 3         1       4-7    1024-2047  500-999\n"
      "6     b     1      1        1, 2         0       0-3    0-1023     0-499\n"
      "7     b     1      1        1, 2         1       4-7    1024-2047  500-999\n");
}

TEST_F(MeshReportTest, WarnsOfTensorGroupsThatSpanHosts) {
  EXPECT_THAT(mesh_text({1, 2, 1, 2}, {"a", "a", "b", "b"}), Not(HasSubstr("warning")));
  std::string const text = mesh_text({1, 2, 1, 2}, {"a", "a", "a", "b"}, {1000, 700, false});
  EXPECT_THAT(text, HasSubstr("warning: 1 of 2 tensor groups span several hosts (that of ranks 2 to 3 lies on a, b)"));
  EXPECT_THAT(text, HasSubstr("2 hosts with 1 to 3 each"));
  EXPECT_THAT(text, HasSubstr("500-999              350-699"));
}

TEST_F(MeshReportTest, FoldsManyRanks) {
  std::vector<std::string> hosts;
  for (int host = 0; host < 128; ++host) {
    hosts.insert(hosts.end(), 4, "node" + std::to_string(host));
  }
  std::vector<std::string> const few(hosts.begin(), hosts.begin() + 128);
  std::string const by_host = mesh_text({2, 16, 1, 4}, few);
  EXPECT_THAT(by_host, HasSubstr("4-7      node1   0      1     0 to 3  0-1 to 6-7"));
  std::string const by_stage = mesh_text({2, 64, 1, 4}, hosts);
  EXPECT_THAT(by_stage, HasSubstr("256-511  node64 to node127  1      0 to 63  0 to 3  0-1 to 6-7"));
}

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
    EXPECT_THAT(table, Not(HasSubstr("all_reduce")));
    return;
  }
  std::map<std::string, Traffic> const expected{{"data.all_reduce", {2, 80}}, {"replicas.broadcast", {1, 40}}};
  EXPECT_EQ(reported, expected);
  std::int64_t const ranks = world_.size();
  EXPECT_EQ(all[TrafficGroup::data][static_cast<std::size_t>(Verb::all_reduce)], (Traffic{2 * ranks, 80 * ranks}));
  EXPECT_THAT(table, HasSubstr("data.all_reduce                       2         80 B"));
  EXPECT_THAT(table, HasSubstr("replicas.broadcast"));
}

}  // namespace
}  // namespace heddle
