#include <sys/stat.h>

#include <heddle/io/files/file_lease.hpp>
#include <heddle/io/files/file_lock.hpp>
#include <thread>

#include "test.hpp"

namespace heddle {
namespace {

using std::chrono::milliseconds;

constexpr FileLease::Times quick{milliseconds(20), milliseconds(200)};

std::optional<FileLease> take(std::filesystem::path const& path, std::string& holder) {
  return FileLease::take(path, "process 7 on n1", holder, quick);
}

TEST(FileLease, KeepsASecondProcessOutWhileItIsHeldAndIsGoneAfterwards) {
  TemporaryDirectory const directory;
  auto const path = directory / "lease";
  std::string holder;
  EXPECT_EQ(FileLease::holder(path, quick), std::nullopt);
  {
    auto const first = take(path, holder);
    ASSERT_TRUE(first);
    EXPECT_TRUE(first->held());
    EXPECT_FALSE(take(path, holder));
    EXPECT_EQ(holder, "process 7 on n1");
    EXPECT_EQ(FileLease::holder(path, quick), "process 7 on n1");
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(FileLease, OneWhoseHolderDiedIsTakenOver) {
  TemporaryDirectory const directory;
  auto const path = directory / "lease";
  std::ofstream(path) << "0123456789abcdef 41\nprocess 3 on n2\n";
  std::string holder;
  EXPECT_TRUE(take(path, holder));
}

TEST(FileLease, ShowsThatItWaits) {
  TemporaryDirectory const directory;
  auto const path = directory / "lease";
  std::ofstream(path) << "0123456789abcdef 41\nprocess 3 on n2\n";
  std::string holder;
  auto latest = std::chrono::steady_clock::now();
  std::chrono::steady_clock::duration longest{};
  int calls = 0;
  auto const waiting = [&] {
    auto const now = std::chrono::steady_clock::now();
    longest = std::max(longest, now - latest);
    latest = now;
    ++calls;
  };
  constexpr FileLease::Times slow{milliseconds(500), milliseconds(1000)};
  EXPECT_TRUE(FileLease::take(path, "process 7 on n1", holder, slow, waiting));
  EXPECT_GE(calls, 30) << "in the time of expiry, and after the file was written";
  EXPECT_LT(longest, milliseconds(500)) << "else the wait could be taken for a hang";
}

TEST(FileLease, OneThatWasRemovedOrReplacedIsNotHeld) {
  TemporaryDirectory const directory;
  auto const path = directory / "lease";
  std::string holder;
  auto const first = take(path, holder);
  ASSERT_TRUE(first);
  std::filesystem::remove(path);
  EXPECT_FALSE(first->held());
  std::ofstream(path) << "0123456789abcdef 41\nprocess 3 on n2\n";
  EXPECT_FALSE(first->held());
  std::this_thread::sleep_for(3 * quick.renewal);
  std::ifstream file(path);
  std::string owner;
  file >> owner;
  EXPECT_EQ(owner, "0123456789abcdef") << "the other process's lease was overwritten";
}

TEST(FileLease, WhatIsNoRegularFileIsRefusedAtOnce) {
  TemporaryDirectory const directory;
  directory.write("target", "0123456789abcdef 41\nprocess 3 on n2\n");
  std::filesystem::create_symlink("target", directory / "link");
  ASSERT_EQ(::mkfifo((directory / "fifo").c_str(), 0600), 0);
  std::string holder;
  EXPECT_THROW(take(directory / "link", holder), DataError);
  EXPECT_THROW(take(directory / "fifo", holder), DataError);
  EXPECT_THROW(FileLease::holder(directory / "fifo", quick), DataError);
  EXPECT_EQ(read_whole(directory / "target"), "0123456789abcdef 41\nprocess 3 on n2\n");
}

TEST(FileLease, OneInWhosePlaceSomethingElseWasPutIsNotHeld) {
  TemporaryDirectory const directory;
  auto const path = directory / "lease";
  std::string holder;
  auto const first = take(path, holder);
  ASSERT_TRUE(first);
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(first->held());
}

TEST(FileLock, DescribesItsHolderAndNoticesThatItsFileIsGone) {
  TemporaryDirectory const directory;
  FileLock held(directory / "lock");
  ASSERT_EQ(held.try_take(FileLock::Kind::exclusive), FileLock::Result::taken);
  held.describe("a long description");
  held.describe("process 7");
  FileLock other(directory / "lock");
  EXPECT_EQ(other.try_take(FileLock::Kind::shared), FileLock::Result::busy);
  EXPECT_EQ(other.description(), "process 7");
  EXPECT_TRUE(held.in_place());
  std::filesystem::remove(directory / "lock");
  EXPECT_FALSE(held.in_place());
  FileLock const replaced(directory / "lock");
  EXPECT_FALSE(held.in_place());
}

}  // namespace
}  // namespace heddle
