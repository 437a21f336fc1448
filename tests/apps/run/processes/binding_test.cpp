#include "run/processes/binding.hpp"

#include <cstdlib>
#include <heddle/core/base/error.hpp>

#include "test.hpp"

namespace heddle {
namespace {

/// hwloc reads another node's cores from the environment, as it does for users.
class BindingTest : public testing::Test {
 protected:
  ~BindingTest() override {
    unsetenv("HWLOC_SYNTHETIC");
    unsetenv("HWLOC_XMLFILE");
  }

  static NodeTopology synthetic(char const* description) {
    setenv("HWLOC_SYNTHETIC", description, 1);
    return node_topology();
  }
  /// Two sockets of four domains of two caches of eight cores with two threads each, as on LUMI-C.
  static NodeTopology large_node() { return synthetic("pack:2 numa:4 l3:2 core:8 pu:2"); }

  /// Ranks side by side, each on all processors of `each` cores.
  static std::vector<RankCores> ranks_on(NodeTopology const& node, std::size_t count, std::size_t each) {
    std::vector<RankCores> ranks(count);
    for (std::size_t rank = 0; rank < count; ++rank) {
      ranks[rank].host = "n1";
      for (std::size_t core = rank * each; core < (rank + 1) * each; ++core) {
        std::ranges::copy(node.cores[core].processors, std::back_inserter(ranks[rank].cores));
      }
    }
    return ranks;
  }
};

TEST_F(BindingTest, ANodeHasCoresCachesAndDomains) {
  NodeTopology const node = large_node();
  EXPECT_EQ(describe(node), "128 cores in 8 NUMA domains");
  EXPECT_EQ(node.caches(), 16);
  EXPECT_THAT(node.cores[17].processors, ElementsAre(34, 35));
  EXPECT_EQ(node.cores[17].domain, 1);
  EXPECT_EQ(node.cores[17].cache, 2);
  EXPECT_EQ(describe(synthetic("pu:3")), "3 cores in 1 NUMA domain") << "a virtual machine without cores";
}

TEST_F(BindingTest, TheOwnMachineHasTheCoresOfThisProcess) {
  NodeTopology const node = node_topology();
  ASSERT_FALSE(node.cores.empty());
  std::vector<int> processors;
  for (NodeTopology::Core const& core : node.cores) {
    std::ranges::copy(core.processors, std::back_inserter(processors));
  }
  EXPECT_THAT(processors, testing::IsSupersetOf(own_cores()));
}

TEST_F(BindingTest, AFileThatIsNotATopologyIsRefused) {
  setenv("HWLOC_XMLFILE", "/dev/null", 1);
  EXPECT_THROW(node_topology(), Error);
}

TEST_F(BindingTest, GroupsAreAsNearAsTheirRanksLie) {
  NodeTopology const node = large_node();
  auto const described = [&](std::size_t each, int group) {
    return describe_binding(ranks_on(node, 128 / each, each), node, {"tensor", group});
  };
  EXPECT_EQ(described(1, 1), "1 core for each rank");
  EXPECT_EQ(described(1, 8), "1 core for each rank; tensor groups in one last-level cache");
  EXPECT_EQ(described(1, 16), "1 core for each rank; tensor groups in one NUMA domain");
  EXPECT_EQ(described(4, 8), "4 cores for each rank; tensor groups over 2 NUMA domains");
  NodeTopology const small = synthetic("core:4 pu:1");
  EXPECT_EQ(describe_binding(ranks_on(small, 4, 1), small, {"tensor", 4}), "1 core for each rank");
  auto uneven = ranks_on(node, 2, 2);
  uneven[1].cores = {8};
  EXPECT_EQ(describe_binding(uneven, node, {"tensor", 1}), "1 to 2 cores for each rank");
  uneven[1].host = "n2";
  EXPECT_EQ(describe_binding(uneven, node, {"context", 2}),
            "1 to 2 cores for each rank; context groups over several hosts");
  uneven = ranks_on(node, 3, 2);
  uneven[2].cores = uneven[0].cores;
  EXPECT_EQ(describe_binding(uneven, node, {"tensor", 1}), "2 ranks of n1 share 2 cores");
  EXPECT_EQ(describe_binding({{"n1", {0}}, {"n1", {1}}}, node, {"tensor", 1}), "2 ranks of n1 share 1 core")
      << "two threads of one core";
}

TEST_F(BindingTest, RanksOfAPlanLieSideBySideOnEachNode) {
  NodeTopology const node = large_node();
  std::vector<RankCores> const ranks = ranks_side_by_side(6, 3, node);
  EXPECT_EQ(ranks[4].host, "1");
  EXPECT_THAT(ranks[4].cores, SizeIs(32));
  EXPECT_EQ(ranks[4].cores.front(), 32) << "the first thread of core 16";
  EXPECT_EQ(describe_binding(ranks, node, {"context", 3}),
            "16 cores for each rank; context groups over 3 NUMA domains");
  EXPECT_EQ(describe_binding(ranks, node, {"tensor", 2}), "16 cores for each rank; tensor groups over several hosts");
  for (int count = 1; count <= 128; ++count) {
    EXPECT_EQ(scattered_ranks(ranks_side_by_side(count, count, node), node), "") << count;
  }
}

TEST_F(BindingTest, ScatteredRanksAreNamed) {
  NodeTopology const node = large_node();
  EXPECT_EQ(scattered_ranks(ranks_on(node, 128, 1), node), "");
  EXPECT_EQ(scattered_ranks(ranks_on(node, 4, 32), node), "rank 0 on n1 may run in 2 NUMA domains");
  // As Open MPI 4 places more than two ranks by itself: to the domains in turn.
  std::vector<RankCores> dealt(16);
  for (std::size_t rank = 0; rank < dealt.size(); ++rank) {
    dealt[rank] = {"n1", node.cores[rank % 8 * 16 + rank / 8].processors};
  }
  EXPECT_EQ(scattered_ranks(dealt, node), "neighbouring ranks on n1, as 7 and 8, are in different NUMA domains");
  dealt.resize(8);
  EXPECT_EQ(scattered_ranks(dealt, node), "") << "one rank in each domain";
}

TEST_F(BindingTest, ProposedRanksDoNotSpanDomains) {
  NodeTopology const node = large_node();
  EXPECT_EQ(propose_binding(128, node).mpirun, "--map-by ppr:128:node:pe=1 --bind-to core");
  EXPECT_EQ(propose_binding(32, node).mpiexec, "-ppn 32 -bind-to core:4");
  EXPECT_EQ(propose_binding(24, node).cores_per_rank, 4) << "with 5, the fourth rank would lie in two domains";
  EXPECT_EQ(propose_binding(2, node).srun,
            "--ntasks-per-node=2 --cpus-per-task=16 --threads-per-core=1 --cpu-bind=cores --distribution=block:block");
  EXPECT_EQ(propose_binding(3, node).cores_per_rank, 16) << "one whole domain";
  EXPECT_EQ(propose_binding(100, node).cores_per_rank, 1);
  EXPECT_EQ(propose_binding(2, synthetic("core:6 pu:1")).cores_per_rank, 3);
}

}  // namespace
}  // namespace heddle
