#include "mpi/segment_name.hpp"

#include <thread>

#include "test.hpp"

namespace heddle {
namespace {

using std::chrono::milliseconds;

TEST(SegmentNameTest, OneJobAtATimeHasIt) {
  TemporaryDirectory const directory;
  std::string const path = directory.path().string();
  {
    SegmentName const first(path, {"host.17", true});
    SegmentName const other_job(path, {"host.18", true});
    try {
      SegmentName const second(path, {"host.17", true}, milliseconds(20));
      FAIL() << "two jobs have one name";
    } catch (ConfigError const& error) {
      expect_contains(error.what(), {"another job on this host has the same name", "host.17"});
    }
  }
  SegmentName const again(path, {"host.17", true});
  SegmentName const nowhere(path + "/none", {"host.17", true});
}

TEST(SegmentNameTest, OtherRanksOfAJobWaitForItsFirst) {
  TemporaryDirectory const directory;
  std::string const path = directory.path().string();
  auto const began = std::chrono::steady_clock::now();
  std::thread late([&] {
    std::this_thread::sleep_for(milliseconds(50));
    SegmentName const first(path, {"host.17", true});
    std::this_thread::sleep_for(milliseconds(100));
  });
  SegmentName const other(path, {"host.17", false});
  auto const waited = std::chrono::steady_clock::now() - began;
  late.join();
  EXPECT_GE(waited, milliseconds(50));
  EXPECT_LT(waited, milliseconds(1000));
  SegmentName const alone(path, {"host.17", false}, milliseconds(1));  // continues without its first rank
}

}  // namespace
}  // namespace heddle
