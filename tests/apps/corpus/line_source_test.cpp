#include "corpus/line_source.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <heddle/core/base/error.hpp>

#include "temporary_directory.hpp"

namespace heddle {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(LineSource, AreAnsweredOneByOneWhereSomebodyTypesThem) {
  int const keyboard = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  ASSERT_GE(keyboard, 0);
  ASSERT_EQ(::grantpt(keyboard), 0);
  ASSERT_EQ(::unlockpt(keyboard), 0);
  std::string const terminal = ::ptsname(keyboard);
  LineSource typed({.input = terminal});
  EXPECT_TRUE(typed.answers_each_line());
  SourceLine line;
  EXPECT_EQ(::write(keyboard, "a\nb\n", 4), 4);
  EXPECT_TRUE(typed.next(line));
  EXPECT_EQ(line.text, "a");
  EXPECT_FALSE(LineSource({.input = terminal, .window = 2}).answers_each_line()) << "as it was asked for";
  ::close(keyboard);
  test::TemporaryDirectory const directory;
  LineSource file({.input = directory.write("text", "a\nb\n\xFF\n")});
  EXPECT_FALSE(file.answers_each_line());
  for (std::int64_t number = 1; number <= 3; ++number) {
    ASSERT_TRUE(file.next(line));
    EXPECT_EQ(line.number, number);
  }
  EXPECT_EQ(line.text, "\uFFFD") << "one byte must not end a translation";
  EXPECT_FALSE(file.next(line));
}

TEST(LineSource, PairLinesWithTheirReferences) {
  test::TemporaryDirectory const directory;
  LineSource pairs({.input = directory.write("text", "a\nb\nc\n")},
                   {directory.write("reference", "1\n2\n3\n").string()});
  SourceLine line;
  for (std::string const expected : {"a 1", "b 2", "c 3"}) {
    ASSERT_TRUE(pairs.next(line));
    EXPECT_EQ(line.text + " " + line.references.front(), expected);
  }
  EXPECT_FALSE(pairs.next(line));
}

TEST(LineSource, NeedAReferenceForEachLine) {
  test::TemporaryDirectory const directory;
  std::string const text = directory.write("text", "a\nb\nc\n");
  std::string const shorter = directory.write("shorter", "1\n");
  std::string const empty = directory.write("empty", "");
  auto const error = [](std::string const& one, std::string const& other) {
    return test::message_of<DataError>([&] { require_equal_lines({.input = one}, {other}); });
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
