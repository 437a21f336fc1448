#include <cerrno>
#include <heddle/core/base/paths.hpp>

#include "test.hpp"

namespace heddle {
namespace {

TEST(Paths, AMissingFileIsNamedWithTheDirectoryItsPathIsRelativeTo) {
  EXPECT_EQ(missing_file("data/train.h5"),
            "data/train.h5: does not exist (relative to " + std::filesystem::current_path().string() + ")");
  EXPECT_EQ(missing_file("/data/train.h5"), "/data/train.h5: does not exist");
  EXPECT_EQ(open_problem("/data/train.h5", EACCES), "/data/train.h5: cannot be opened: Permission denied");
}

TEST(Paths, OnlyRegularFilesHaveNoProblem) {
  TemporaryDirectory const directory;
  std::string const path = directory.write("file", "text");
  EXPECT_EQ(file_problem(path), "");
  EXPECT_EQ(file_problem(path + "/below"), path + "/below: does not exist");
  EXPECT_EQ(file_problem(directory.path()), directory.path().string() + ": is a directory");
  EXPECT_EQ(file_problem("/dev/zero"), "/dev/zero: is not a regular file");
}

TEST(Paths, ASmallFileIsReadWhole) {
  TemporaryDirectory const directory;
  std::string const path = directory.write("file", std::string("a\0b\n", 4));
  EXPECT_EQ(read_file_text(path).text, std::string("a\0b\n", 4));
  EXPECT_EQ(read_file_text(path).problem, "");
  std::filesystem::resize_file(path, (std::uintmax_t{1} << 20) + 1);
  FileText const large = read_file_text(path, std::uintmax_t{1} << 20);
  EXPECT_EQ(large.text, "");
  EXPECT_EQ(large.problem, path + ": is larger than 1 MiB");
  EXPECT_EQ(read_file_text("/dev/zero").problem, "/dev/zero: is not a regular file");
}

}  // namespace
}  // namespace heddle
