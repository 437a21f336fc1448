#include "translation/line_window.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include "temporary_directory.hpp"

namespace heddle {
namespace {

TEST(LineWindows, AreOneLineWhereSomebodyTypesThem) {
  int const keyboard = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  ASSERT_GE(keyboard, 0);
  ASSERT_EQ(::grantpt(keyboard), 0);
  ASSERT_EQ(::unlockpt(keyboard), 0);
  std::string const terminal = ::ptsname(keyboard);
  LineWindows typed({.input = terminal, .window = {}});
  EXPECT_EQ(::write(keyboard, "a\nb\n", 4), 4);
  EXPECT_EQ(typed.next().size(), 1U);
  EXPECT_EQ(typed.next().size(), 1U);
  LineWindows two({.input = terminal, .window = 2});
  EXPECT_EQ(::write(keyboard, "c\nd\n", 4), 4);
  EXPECT_EQ(two.next().size(), 2U) << "as it was asked for";
  ::close(keyboard);
  test::TemporaryDirectory const directory;
  LineWindows file({.input = directory.write("text", "a\nb\n\xFF\n"), .window = {}});
  auto const lines = file.next();
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[2].text, "\uFFFD") << "one byte must not end a translation";
  EXPECT_EQ(lines[2].number, 3);
  EXPECT_TRUE(file.next().empty());
}

}  // namespace
}  // namespace heddle
