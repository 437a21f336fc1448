#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <heddle/core/base/error.hpp>

#include "temporary_directory.hpp"
#include "translation/translation.hpp"

namespace heddle {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(LineWindows, AreOneLineWhereSomebodyTypesThem) {
  int const keyboard = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  ASSERT_GE(keyboard, 0);
  ASSERT_EQ(::grantpt(keyboard), 0);
  ASSERT_EQ(::unlockpt(keyboard), 0);
  std::string const terminal = ::ptsname(keyboard);
  LineWindows typed({.input = terminal});
  EXPECT_EQ(::write(keyboard, "a\nb\n", 4), 4);
  EXPECT_EQ(typed.next().size(), 1U);
  EXPECT_EQ(typed.next().size(), 1U);
  LineWindows two({.input = terminal, .window = 2});
  EXPECT_EQ(::write(keyboard, "c\nd\n", 4), 4);
  EXPECT_EQ(two.next().size(), 2U) << "as it was asked for";
  ::close(keyboard);
  test::TemporaryDirectory const directory;
  LineWindows file({.input = directory.write("text", "a\nb\n\xFF\n")});
  auto const lines = file.next();
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[2].text, "\uFFFD") << "one byte must not end a translation";
  EXPECT_EQ(lines[2].number, 3);
  EXPECT_TRUE(file.next().empty());
}

TEST(LineWindows, PairLinesWithTheirReferences) {
  test::TemporaryDirectory const directory;
  LineWindows pairs({.input = directory.write("text", "a\nb\nc\n"), .window = 2},
                    directory.write("reference", "1\n2\n3\n"));
  auto const first = pairs.next();
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[1].reference, "2");
  auto const second = pairs.next();
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].text, "c");
  EXPECT_EQ(second[0].reference, "3");
  EXPECT_EQ(second[0].number, 3);
  EXPECT_TRUE(pairs.next().empty());
  std::string const line(max_window_bytes / 2, 'x');
  std::string const long_lines = directory.write("long", line + "\n" + line + "\n");
  EXPECT_EQ(LineWindows({.input = long_lines, .window = 9}, long_lines).next().size(), 1U);
}

TEST(LineWindows, NeedAReferenceForEachLine) {
  test::TemporaryDirectory const directory;
  std::string const text = directory.write("text", "a\nb\nc\n");
  std::string const shorter = directory.write("shorter", "1\n");
  std::string const empty = directory.write("empty", "");
  auto const error = [](std::string const& one, std::string const& other) {
    return test::message_of<DataError>([&] { require_equal_lines({.input = one, .window = 3}, other); });
  };
  EXPECT_EQ(error(text, text), "");
  EXPECT_THAT(error(text, shorter), AllOf(HasSubstr("text has 3 lines"), HasSubstr("shorter has 1")));
  EXPECT_THAT(error(shorter, text), AllOf(HasSubstr("shorter has 1 lines"), HasSubstr("text has 3")));
  EXPECT_THAT(error(empty, text), HasSubstr("empty has 0 lines"));
  EXPECT_THAT(error(empty, empty), HasSubstr("empty is empty"));
  EXPECT_THAT(error(text, directory / "absent"), HasSubstr("absent"));
  // A pipe is read once, where its lines are scored.
  std::string const pipe = directory / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(error(pipe, text), "");
}

}  // namespace
}  // namespace heddle
