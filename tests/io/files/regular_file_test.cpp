#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <heddle/io/files/file_lock.hpp>
#include <heddle/io/files/regular_file.hpp>

#include "test.hpp"

namespace heddle {
namespace {

class RegularFileTest : public testing::Test {
 protected:
  std::string append_error(std::string const& name) const {
    return message_of<DataError>([&] { open_output(directory_ / name, OutputMode::append); });
  }

  TemporaryDirectory directory_;
};

TEST_F(RegularFileTest, IsWrittenAtItsEndAndReadFromThere) {
  directory_.write("file", "first\n");
  *open_output(directory_ / "file", OutputMode::append) << "second\n" << std::string(100'000, 'x') << "\nlast";
  EXPECT_EQ(read_regular(directory_ / "file"), "first\nsecond\n" + std::string(100'000, 'x') + "\nlast");
  EXPECT_EQ(read_regular(directory_ / "file", 5), "\nlast");
  EXPECT_EQ(read_regular(directory_ / "other"), std::nullopt);
}

TEST_F(RegularFileTest, ANewOneMustNotExist) {
  *open_output(directory_ / "new", OutputMode::create_new) << "text" << std::flush;
  EXPECT_THROW(open_output(directory_ / "new", OutputMode::create_new), Error);
  EXPECT_EQ(read_whole(directory_ / "new"), "text");
}

TEST_F(RegularFileTest, NoLinkIsFollowed) {
  auto const target = directory_.write("target", "somebody's\n");
  std::filesystem::create_symlink("target", directory_ / "link");
  std::filesystem::create_symlink("nothing", directory_ / "dangling");
  expect_contains(append_error("link"), "link: is a symbolic link; move it away");
  expect_contains(append_error("dangling"), "dangling: is a symbolic link; move it away");
  expect_data_error([&] { FileLock const lock(directory_ / "link"); }, "link: is a symbolic link; move it away");
  expect_data_error([&] { FileLock const lock(directory_ / "dangling"); },
                    "dangling: is a symbolic link; move it away");
  expect_data_error([&] { read_regular(directory_ / "link"); }, "is a symbolic link");
  expect_data_error([&] { open_input(directory_ / "link"); }, "is a symbolic link");
  EXPECT_EQ(read_whole(target), "somebody's\n");
  EXPECT_FALSE(std::filesystem::exists(directory_ / "nothing"));
}

TEST_F(RegularFileTest, NoFifoIsWaitedFor) {
  ASSERT_EQ(::mkfifo((directory_ / "fifo").c_str(), 0600), 0);
  expect_contains(append_error("fifo"), "fifo: is not a regular file; move it away");
  expect_data_error([&] { read_regular(directory_ / "fifo"); }, "is not a regular file");
  expect_data_error([&] { open_input(directory_ / "fifo"); }, "is not a regular file");
}

TEST_F(RegularFileTest, IsWrittenAfterItsFirstBytes) {
  directory_.write("file", "first\nsecond\n");
  *open_output_after(directory_ / "file", 6) << "third\n";
  std::string line;
  EXPECT_TRUE(std::getline(open_input(directory_ / "file")->seekg(6), line));
  EXPECT_EQ(line, "third");
  EXPECT_EQ(read_whole(directory_ / "file"), "first\nthird\n");
  *open_output_after(directory_ / "new", 0) << "text";
  EXPECT_EQ(read_whole(directory_ / "new"), "text");
  auto const target = directory_.write("target", "somebody's\n");
  std::filesystem::create_symlink("target", directory_ / "link");
  EXPECT_THROW(open_output_after(directory_ / "link", 0), DataError);
  EXPECT_EQ(read_whole(target), "somebody's\n");
}

TEST_F(RegularFileTest, AStreamNeedsItsReader) {
  ASSERT_EQ(::mkfifo((directory_ / "fifo").c_str(), 0600), 0);
  auto const open = [&] { return open_output(directory_ / "fifo", OutputMode::stream); };
  expect_data_error(open, "fifo: is a FIFO without a reader");
  int const reader = ::open((directory_ / "fifo").c_str(), O_RDONLY | O_NONBLOCK);
  *open() << "text" << std::flush;
  std::string text(8, ' ');
  EXPECT_EQ(::read(reader, text.data(), text.size()), 4);
  EXPECT_EQ(text.substr(0, 4), "text");
  ::close(reader);
  EXPECT_TRUE(open_output("/dev/null", OutputMode::stream)->good());
}

TEST_F(RegularFileTest, ADeviceOrAMissingDirectoryIsRefused) {
  auto const full = std::filesystem::path("/dev/full");
  expect_data_error([&] { open_output(full, OutputMode::append); }, "is not a regular file");
  EXPECT_THROW(open_output(directory_ / "missing" / "file", OutputMode::append), Error);
}

}  // namespace
}  // namespace heddle
