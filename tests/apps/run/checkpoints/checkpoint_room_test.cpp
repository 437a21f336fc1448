#include "run/checkpoints/checkpoint_room.hpp"

#include "test.hpp"

namespace heddle {
namespace {

TEST(CheckpointRoom, IsRefusedWhereNotOneCheckpointHasRoom) {
  TemporaryDirectory const directory;
  auto const room = [&](std::int64_t bytes) { return CheckpointRoom(directory / "runs" / "new", 3, bytes); };
  CheckpointRoom const small = room(4 << 20);
  EXPECT_NO_THROW(small.require_one());
  EXPECT_TRUE(small.suffices());
  expect_contains(small.describe(),
                  "A checkpoint takes 4.0 MiB on the disk; with the newest 3, the best one and "
                  "one that is written, 20.0 MiB: ");
  expect_lacks(small.describe(), "too little");
  CheckpointRoom const large = room(std::int64_t{1} << 46);
  EXPECT_FALSE(large.suffices());
  expect_config_error([&] { large.require_one(); },
                      "runs/new: the disk has no room for a checkpoint: it takes 65,536.0 GiB, and ");
  expect_contains(large.describe(), "which is too little");
  EXPECT_FALSE(std::filesystem::exists(directory / "runs"));
}

}  // namespace
}  // namespace heddle
