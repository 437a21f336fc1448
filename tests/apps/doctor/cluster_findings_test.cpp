#include "doctor/cluster_findings.hpp"

#include "test.hpp"

namespace heddle {
namespace {

using Kind = Finding::Kind;

TEST(Cluster, CoresAreShownAsRanges) {
  EXPECT_EQ(describe_cores({}), "");
  EXPECT_EQ(describe_cores({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
  EXPECT_EQ(describe_ranks({{"n1", {0, 1}}, {"n2", {5}}}),
            "rank 0     n1               cores 0-1\n"
            "rank 1     n2               cores 5\n");
  expect_contains(describe_ranks(std::vector<RankCores>(66, {"n1", {0}})), "… and 2 more ranks\n");
}

TEST(Cluster, MoreRanksThanCoresAreAFaultAndSharedCoresAWarning) {
  EXPECT_EQ(binding_of({{"n1", {0}}, {"n1", {1}}, {"n2", {0}}}, {}).kind, Kind::good) << "another host's core 0";
  Finding const shared = binding_of({{"n1", {0, 1}}, {"n1", {1, 2}}}, {});
  EXPECT_EQ(shared.kind, Kind::warning) << "as with ranks that are bound to sockets";
  expect_contains(shared.found, "ranks share cores on n1:");
  Finding const chained = binding_of({{"n1", {0}}, {"n1", {1}}, {"n1", {0, 1}}, {"n1", {2}}}, {});
  EXPECT_EQ(chained.kind, Kind::failed);
  EXPECT_EQ(chained.found, "3 ranks on n1 have 2 cores together (0-1)");
  Finding const crowded = binding_of({{"n1", {3}}, {"n1", {3}}}, {});
  EXPECT_EQ(crowded.kind, Kind::failed);
  EXPECT_EQ(crowded.found, "2 ranks on n1 have 1 cores together (3)");
  Finding const unbound = binding_of({{"n1", {0, 1}}, {"n1", {0, 1}}, {"n2", {0}}}, {});
  EXPECT_EQ(unbound.kind, Kind::warning);
  expect_contains(unbound.found, "share cores on n1:");
}

TEST(Cluster, RanksThatAreScatteredOverDomainsAreAWarning) {
  NodeTopology const node{{{{0}, 0, 0}, {{1}, 1, 1}}};
  EXPECT_EQ(binding_of({{"n1", {0}}, {"n1", {1}}}, node).kind, Kind::good);
  Finding const wide = binding_of({{"n1", {0, 1}}}, node);
  EXPECT_EQ(wide.kind, Kind::warning);
  EXPECT_EQ(wide.found, "rank 0 on n1 may run in 2 NUMA domains");
  EXPECT_EQ(binding_of({{"n1", {0}}, {"n1", {1}}}, {{{{0, 1}, 0, 0}}}).kind, Kind::failed) << "one core, two threads";
}

TEST(Cluster, WhatDiffersBetweenHostsIsNamed) {
  HostFacts const one{{"processor", "A"}, {"memory", "251.4 GiB"}, {"executable", "12ab"}, {"library libm.so", "9"}};
  HostFacts two = one;
  two["memory"] = "251.6 GiB";
  EXPECT_THAT(differences_of({{"n1", one}, {"n2", two}}), ElementsAre(testing::Field(&Finding::kind, Kind::good)));
  two["memory"] = "128.0 GiB";
  two["executable"] = "34cd";
  two.erase("library libm.so");
  std::vector<Finding> const found = differences_of({{"n1", one}, {"n2", two}, {"n3", one}});
  ASSERT_THAT(found, SizeIs(3));
  EXPECT_EQ(found[0].kind, Kind::failed) << "another program";
  EXPECT_EQ(found[0].found, "executable differs: 12ab on n1, n3; 34cd on n2");
  EXPECT_EQ(found[1].subject, "library");
  EXPECT_EQ(found[1].found, "library libm.so differs: 9 on n1, n3; not there on n2");
  EXPECT_EQ(found[2].kind, Kind::warning);
  EXPECT_EQ(found[2].found, "memory differs: 251.4 GiB on n1, n3; 128.0 GiB on n2");
}

TEST(Cluster, FindingsOfSeveralHostsAreOneWithTheirNames) {
  Finding const warning{Kind::warning, "threads", "too many", "set one"};
  EXPECT_THAT(merged({{"n1", {{.subject = "mpi", .found = "4.1"}}}}), IsEmpty());
  std::vector<Finding> const found =
      merged({{"n1", {warning}}, {"n2", {warning}}, {"n3", {{Kind::failed, "mpi", "x", "y"}}}});
  ASSERT_THAT(found, SizeIs(2));
  EXPECT_EQ(found[0].found, "on n1, n2: too many");
  EXPECT_EQ(found[1].found, "on n3: x");
}

TEST(Cluster, ASlowPairIsAWarning) {
  std::vector<PairTime> pairs{{"n1 - n2", 2e-6, 10e9}, {"n2 - n3", 2e-6, 11e9}, {"n3 - n1", 2e-6, 10e9}};
  EXPECT_EQ(network_of("network", pairs).kind, Kind::good);
  pairs[1].bandwidth = 4e9;
  EXPECT_EQ(network_of("network", pairs).kind, Kind::warning);
  expect_contains(network_of("network", pairs).found, "slowest n2 - n3: 2.0 us, 4.00 GB/s");
  pairs[1].bandwidth = 10e9;
  pairs[2].latency = 9e-6;
  EXPECT_EQ(network_of("network", pairs).kind, Kind::warning);
  expect_contains(network_of("network", pairs).found, "latest n3 - n1: 9.0 us");
  EXPECT_EQ(network_of("network", {}).kind, Kind::unknown);
}

TEST(Cluster, ClocksThatDifferAreAWarning) {
  EXPECT_EQ(clocks_of({{"n1", 0}, {"n2", 0.001}}).kind, Kind::good);
  EXPECT_EQ(clocks_of({{"n1", 0}, {"n2", -3}, {"n3", 1}}).kind, Kind::warning);
  EXPECT_EQ(clocks_of({{"n1", 0}, {"n2", -3}, {"n3", 1}}).found, "4.000000 s between n2 and n3");
}

TEST(Cluster, ADirectoryThatHostsDoNotShareIsAFault) {
  using Lock = HostFiles::Lock;
  auto const first = [](std::map<std::string, HostFiles> const& files) { return files_of("/runs", files).front(); };
  auto const locks = [](Lock lock) {
    return files_of("/runs", {{"n1", {}}, {"n2", {.seconds = 0.5, .lock = lock}}}).back();
  };
  EXPECT_EQ(first({{"n1", {}}, {"n2", {}}}).kind, Kind::good);
  EXPECT_EQ(first({{"n1", {}}, {"n2", {.problem = "no space"}}}).found, "on n2: no space");
  EXPECT_EQ(first({{"n1", {.unseen = {"n2"}}}, {"n2", {}}}).found, "/runs: n1 does not see what n2 wrote");
  EXPECT_EQ(locks(Lock::excluded).kind, Kind::good);
  EXPECT_EQ(locks(Lock::taken).kind, Kind::failed);
  EXPECT_EQ(locks(Lock::not_supported).kind, Kind::warning);
  EXPECT_EQ(locks(Lock::unknown).kind, Kind::unknown);
}

}  // namespace
}  // namespace heddle
