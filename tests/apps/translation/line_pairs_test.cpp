#include "translation/line_pairs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <heddle/core/base/error.hpp>

#include "temporary_directory.hpp"

namespace heddle {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LinePairs, ComeInWindowsOfLinesAndBytes) {
  test::TemporaryDirectory const directory;
  std::string const text = directory.write("text", "a\nb\nc\n");
  std::string const reference = directory.write("reference", "1\n2\n3\n");
  LinePairs pairs(text, reference, InvalidUtf8::fail);
  auto const first = pairs.next(2);
  EXPECT_EQ(first.lines.size(), 2U);
  EXPECT_THAT(first.references, ElementsAre("1", "2"));
  auto const second = pairs.next(2);
  ASSERT_EQ(second.lines.size(), 1U);
  EXPECT_EQ(second.lines[0].text, "c");
  EXPECT_EQ(second.lines[0].number, 3);
  EXPECT_TRUE(pairs.next(2).empty());
  std::string const line(max_window_bytes / 2, 'x');
  std::string const long_lines = directory.write("long", line + "\n" + line + "\n");
  EXPECT_EQ(LinePairs(long_lines, long_lines, InvalidUtf8::fail).next(9).lines.size(), 1U);
}

TEST(LinePairs, NeedALineForEachLine) {
  test::TemporaryDirectory const directory;
  std::string const text = directory.write("text", "a\nb\nc\n");
  std::string const shorter = directory.write("shorter", "1\n");
  std::string const empty = directory.write("empty", "");
  auto const refusal = [](std::string const& one, std::string const& other) {
    return test::message_of<DataError>([&] { require_equal_lines(one, other, InvalidUtf8::fail); });
  };
  EXPECT_EQ(refusal(text, text), "");
  EXPECT_THAT(refusal(text, shorter), AllOf(HasSubstr("text has 3 lines"), HasSubstr("shorter has 1")));
  EXPECT_THAT(refusal(shorter, text), AllOf(HasSubstr("shorter has 1 lines"), HasSubstr("text has 3")));
  EXPECT_THAT(refusal(empty, empty), HasSubstr("empty is empty"));
  EXPECT_THAT(refusal(text, directory / "absent"), HasSubstr("absent"));
  // A pipe is read once, by whoever scores its lines.
  std::string const pipe = directory / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(refusal(pipe, text), "");
}

}  // namespace
}  // namespace heddle
