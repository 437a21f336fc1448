#include "mpi/segment_name.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <heddle/core/base/error.hpp>

#include "temporary_directory.hpp"

namespace heddle {
namespace {

TEST(SegmentNameTest, OneProcessAtATimeHasIt) {
  test::TemporaryDirectory const directory;
  std::string const path = directory.path().string();
  {
    SegmentName const first(path, "host.17.0");
    SegmentName const other_rank(path, "host.17.1");
    try {
      SegmentName const second(path, "host.17.0", std::chrono::milliseconds(0));
      FAIL() << "two jobs have one name";
    } catch (ConfigError const& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("another job on this host has the same name"));
      EXPECT_THAT(error.what(), testing::HasSubstr("host.17.0"));
    }
  }
  SegmentName const again(path, "host.17.0");
  SegmentName const nowhere(path + "/none", "host.17.0");
}

}  // namespace
}  // namespace heddle
