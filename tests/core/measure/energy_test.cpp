#include <heddle/core/measure/energy.hpp>

#include "test.hpp"

namespace heddle {
namespace {

/// A tree such as /sys/class/powercap, in which pm_counters is one such as /sys/cray/pm_counters.
class EnergyMeterTest : public testing::Test {
 protected:
  void write(std::string const& file, std::string const& text) {
    std::filesystem::path const path = root_.path() / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
  }
  void make_domain(std::string const& directory, std::string const& name, std::int64_t microjoules) {
    write(directory + "/name", name);
    write(directory + "/energy_uj", std::to_string(microjoules));
    write(directory + "/max_energy_range_uj", "262143328850");
  }

  EnergyMeter begin() const { return EnergyMeter({root_.path() / "pm_counters", root_.path()}); }

  TemporaryDirectory root_;
};

TEST_F(EnergyMeterTest, AddsUpPackagesAndTheirMemory) {
  make_domain("intel-rapl:0", "package-0", 5'000'000);
  make_domain("intel-rapl:0/intel-rapl:0:0", "core", 1'000'000);  // a part of the package
  make_domain("intel-rapl:0/intel-rapl:0:1", "dram", 7'000'000);
  make_domain("intel-rapl:0:1", "dram", 7'000'000);  // the same, beside it
  make_domain("intel-rapl:1", "package-1", 0);
  make_domain("intel-rapl:2", "psys", 0);                    // the whole machine, packages included
  make_domain("intel-rapl-mmio:0", "package-0", 5'000'000);  // the same counter by another way
  EnergyMeter meter = begin();
  EXPECT_EQ(meter.joules(), 0);
  write("intel-rapl:0/energy_uj", "8500000");
  write("intel-rapl:0/intel-rapl:0:0/energy_uj", "3000000");
  write("intel-rapl:0/intel-rapl:0:1/energy_uj", "7250000");
  write("intel-rapl:1/energy_uj", "1000000");
  write("intel-rapl:2/energy_uj", "99000000");
  write("intel-rapl-mmio:0/energy_uj", "8500000");
  meter.sample();
  EXPECT_EQ(meter.reason(), "");
  EXPECT_DOUBLE_EQ(meter.joules(), 3.5 + 0.25 + 1);
}

TEST_F(EnergyMeterTest, CountersThatOverflowBeginAgain) {
  make_domain("intel-rapl:0", "package-0", 262'143'000'000);
  EnergyMeter meter = begin();
  write("intel-rapl:0/energy_uj", "671150");
  meter.sample();
  EXPECT_NEAR(meter.joules(), 1.0, 1e-9);
  write("intel-rapl:0/energy_uj", "2671150");
  meter.sample();
  EXPECT_NEAR(meter.joules(), 3.0, 1e-9);
}

TEST_F(EnergyMeterTest, ANodesOwnCounterIsUsedInsteadOfItsProcessors) {
  make_domain("intel-rapl:0", "package-0", 5'000'000);
  EXPECT_EQ(begin().source(), "RAPL");
  write("pm_counters/energy", "123456 J 1700000000000000 us");
  EnergyMeter meter = begin();
  EXPECT_EQ(meter.source(), "the nodes' counters");
  write("intel-rapl:0/energy_uj", "9000000");
  write("pm_counters/energy", "123706 J 1700000001000000 us");
  meter.sample();
  EXPECT_EQ(meter.reason(), "");
  EXPECT_DOUBLE_EQ(meter.joules(), 250);
  write("pm_counters/energy", "4 J 1700000002000000 us");  // the controller has been started again
  meter.sample();
  expect_contains(meter.reason(), "pm_counters/energy has restarted");
}

TEST_F(EnergyMeterTest, WithoutCountersTheEnergyIsUnknown) {
  expect_contains(begin().reason(), "no counters of energy in ");
  expect_contains(EnergyMeter({root_.path(), root_.path() / "nowhere"}).reason(), "no counters of energy in ");
}

TEST_F(EnergyMeterTest, CountersThatStandStillMakeItUnknown) {
  make_domain("intel-rapl:0", "package-0", 5'000'000);
  EnergyMeter meter = begin();
  meter.sample();
  EXPECT_EQ(meter.reason(), "the energy by RAPL did not advance");
  write("intel-rapl:0/energy_uj", "5000001");
  meter.sample();
  EXPECT_EQ(meter.reason(), "");
}

TEST_F(EnergyMeterTest, ACounterThatCannotBeReadMakesItUnknown) {
  make_domain("intel-rapl:0", "package-0", 1);
  make_domain("intel-rapl:1", "package-1", 1);
  std::filesystem::remove(root_.path() / "intel-rapl:1/energy_uj");
  expect_contains(begin().reason(), "intel-rapl:1/energy_uj cannot be read");

  make_domain("intel-rapl:1", "package-1", 1);
  EnergyMeter meter = begin();
  write("intel-rapl:0/energy_uj", "2");
  meter.sample();
  EXPECT_EQ(meter.reason(), "");
  std::filesystem::remove(root_.path() / "intel-rapl:0/energy_uj");
  meter.sample();
  expect_contains(meter.reason(), "intel-rapl:0/energy_uj cannot be read any more");
}

}  // namespace
}  // namespace heddle
