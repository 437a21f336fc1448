#include "run/checkpoints/checkpoint_room.hpp"

#include <gmock/gmock.h>

#include <heddle/core/base/error.hpp>

#include "temporary_directory.hpp"

namespace heddle {
namespace {

using test::message_of;
using testing::HasSubstr;
using testing::Not;

TEST(CheckpointRoom, IsRefusedWhereNotOneCheckpointHasRoom) {
  test::TemporaryDirectory const directory;
  auto const room = [&](std::int64_t bytes) { return CheckpointRoom(directory / "runs" / "new", 3, bytes); };
  CheckpointRoom const small = room(4 << 20);
  EXPECT_NO_THROW(small.require_one());
  EXPECT_TRUE(small.suffices());
  EXPECT_THAT(small.describe(), HasSubstr("A checkpoint takes 4.0 MiB on the disk; with the newest 3, the best one and "
                                          "one that is written, 20.0 MiB: "));
  EXPECT_THAT(small.describe(), Not(HasSubstr("too little")));
  CheckpointRoom const large = room(std::int64_t{1} << 46);
  EXPECT_FALSE(large.suffices());
  EXPECT_THAT(message_of<ConfigError>([&] { large.require_one(); }),
              HasSubstr("runs/new: the disk has no room for a checkpoint: it takes 65,536.0 GiB, and "));
  EXPECT_THAT(large.describe(), HasSubstr("which is too little"));
  EXPECT_FALSE(std::filesystem::exists(directory / "runs"));
}

}  // namespace
}  // namespace heddle
