#include <heddle/dist/planning/available_memory.hpp>

#include "dist_fixture.hpp"

namespace heddle {
namespace {

using AvailableMemoryTest = DistTest;

constexpr std::int64_t gibibyte = std::int64_t{1} << 30;

void write(TemporaryDirectory const& root, std::filesystem::path const& name, std::string_view content) {
  std::filesystem::create_directories((root.path() / name).parent_path());
  root.write(name.string(), content);
}

TEST_F(AvailableMemoryTest, IsReadFromMeminfoAndGroups) {
  TemporaryDirectory const root;
  EXPECT_EQ(available_memory(root.path()).host, AvailableMemory::unlimited);
  write(root, "proc/meminfo", "MemTotal:  8 kB\nMemFree: 3 kB\nMemAvailable:    1048576 kB\nCached: 5 kB\n");
  EXPECT_EQ(available_memory(root.path()).host, gibibyte);
  EXPECT_EQ(available_memory(root.path()).group, AvailableMemory::unlimited);

  write(root, "proc/self/cgroup", "0::/job/step\n");
  write(root, "sys/fs/cgroup/job/step/memory.max", "max\n");
  write(root, "sys/fs/cgroup/job/step/memory.current", "5\n");
  EXPECT_EQ(available_memory(root.path()).group, AvailableMemory::unlimited);
  write(root, "sys/fs/cgroup/job/memory.max", "1000\n");
  write(root, "sys/fs/cgroup/job/memory.current", "700\n");
  write(root, "sys/fs/cgroup/job/memory.stat", "anon 400\ninactive_file 300\nactive_file 0\n");
  EXPECT_EQ(available_memory(root.path()).group, 600);
  EXPECT_EQ(available_memory(root.path()).group_name, "/job");

  write(root, "proc/self/cgroup", "4:cpu,cpuacct:/x\n3:memory:/old\n");
  write(root, "sys/fs/cgroup/memory/old/memory.limit_in_bytes", "9223372036854771712\n");
  write(root, "sys/fs/cgroup/memory/old/memory.usage_in_bytes", "520\n");
  EXPECT_EQ(available_memory(root.path()).group, AvailableMemory::unlimited);
  write(root, "sys/fs/cgroup/memory/old/memory.limit_in_bytes", "500\n");
  EXPECT_EQ(available_memory(root.path()).group, 0);
  EXPECT_EQ(available_memory(root.path()).group_name, "/old");
}

TEST_F(AvailableMemoryTest, OfThisMachineIsKnown) {
  AvailableMemory const memory = available_memory();
  EXPECT_GT(memory.host, 0);
  EXPECT_LT(memory.host, AvailableMemory::unlimited);
}

TEST_F(AvailableMemoryTest, RanksOfAMachineShareIt) {
  MemoryNeed const planned{
      .use = {.parameters = 2 * gibibyte, .activations = gibibyte}, .packs = gibibyte / 4, .scratch = gibibyte / 4};
  ASSERT_EQ(planned.total(), 7 * gibibyte / 2 + 7 * gibibyte / 40);  // a twentieth of margin
  std::int64_t const all = planned.total() * world_.size();
  EXPECT_NO_THROW(require_memory(world_, planned, {.host = all}));
  std::string const error = error_of([&] { require_memory(world_, planned, {.host = all - 1}); });
  EXPECT_NE(error.find("does not fit into the memory of host"), std::string::npos) << error;
  EXPECT_NE(error.find("activations " + std::to_string(world_.size()) + ".0 GiB"), std::string::npos) << error;
}

TEST_F(AvailableMemoryTest, AGroupLimitsItsOwnRanksOnly) {
  MemoryNeed const planned{.use = {.gradients = gibibyte}};
  AvailableMemory const own{.group = planned.total(), .group_name = "/task-" + std::to_string(world_.rank())};
  EXPECT_NO_THROW(require_memory(world_, planned, own));
  AvailableMemory const shared{.group = planned.total(), .group_name = "/job"};
  std::string const error = error_of([&] { require_memory(world_, planned, shared); });
  EXPECT_EQ(error.find("control group /job") != std::string::npos, world_.size() > 1) << error;
}

}  // namespace
}  // namespace heddle
