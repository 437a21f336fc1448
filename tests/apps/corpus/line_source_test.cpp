#include "corpus/line_source.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.hpp"

namespace heddle {
namespace {

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
  TemporaryDirectory const directory;
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
  TemporaryDirectory const directory;
  LineSource pairs({.input = directory.write("text", "a\nb\nc\n")},
                   {directory.write("reference", "1\n2\n3\n").string()});
  SourceLine line;
  for (std::string const expected : {"a 1", "b 2", "c 3"}) {
    ASSERT_TRUE(pairs.next(line));
    EXPECT_EQ(line.text + " " + line.references.front(), expected);
  }
  EXPECT_FALSE(pairs.next(line));
}

TEST(LineSource, HavePrefixesFromATextOrAColumn) {
  TemporaryDirectory const directory;
  std::string const text = directory.write("text", "a\nb\n");
  SourceLine line;
  LineSource beside({.input = text, .prefix = directory.write("prefixes", "A\nB\n").string()}, {text});
  for (std::string const expected : {"a a A", "b b B"}) {
    ASSERT_TRUE(beside.next(line));
    EXPECT_EQ(line.text + " " + line.references.front() + " " + line.prefix, expected);
  }
  EXPECT_FALSE(beside.next(line));
  LineSource columns(
      {.input = directory.write("columns", "law\ta\tA\nb\n"), .adapter_column = true, .prefix_column = true});
  ASSERT_TRUE(columns.next(line));
  EXPECT_EQ(line.adapter + " " + line.text + " " + line.prefix, "law a A");
  expect_data_error([&] { columns.next(line); }, "line 2 has no tab");
  LineSource shorter({.input = text, .prefix = directory.write("shorter", "A\n").string()});
  EXPECT_TRUE(shorter.next(line));
  expect_data_error([&] { shorter.next(line); }, "shorter has 1");
  LineSource streamed({.input = text, .stream = true});
  EXPECT_TRUE(streamed.answers_each_line());
  EXPECT_EQ(streamed.next_chunk()->lines.size(), 1U);
  EXPECT_THROW(require_valid({.window = 3, .stream = true}), UsageError);
  EXPECT_THROW(require_valid({.prefix = text, .prefix_column = true}), UsageError);
}

TEST(LineSource, NeedAReferenceForEachLine) {
  TemporaryDirectory const directory;
  std::string const text = directory.write("text", "a\nb\nc\n");
  std::string const shorter = directory.write("shorter", "1\n");
  std::string const empty = directory.write("empty", "");
  auto const error = [](std::string const& one, std::string const& other) {
    return message_of<DataError>([&] { require_equal_lines({.input = one}, {other}); });
  };
  EXPECT_EQ(error(text, text), "");
  expect_contains(error(text, shorter), {"text has 3 lines", "shorter has 1"});
  expect_contains(error(shorter, text), {"shorter has 1 lines", "text has 3"});
  expect_contains(error(empty, text), "empty has 0 lines");
  expect_contains(error(empty, empty), "empty is empty");
  expect_contains(error(text, directory / "absent"), "absent");
  // A pipe is read once, where its lines are scored.
  std::string const pipe = directory / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(error(pipe, text), "");
}

}  // namespace
}  // namespace heddle
