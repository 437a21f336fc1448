#include "command_line/terminal.hpp"

#include <cstdlib>

#include "test.hpp"

namespace heddle {
namespace {

TEST(Terminal, TextIsWrappedAtWordsAndKeepsItsEmptyLines) {
  EXPECT_EQ(wrapped("", 10), "");
  EXPECT_EQ(wrapped("one two\nthree", 80), "one two three");
  EXPECT_EQ(wrapped("one two three", 7), "one two\nthree");
  EXPECT_EQ(wrapped("one two three", 9, 2), "one two\n  three");
  EXPECT_EQ(wrapped("one incomprehensible", 5), "one\nincomprehensible");
  EXPECT_EQ(wrapped("one\ntwo\n\nthree four", 80), "one two\n\nthree four");
}

TEST(Terminal, AUsageIsWrappedOutsideOfBrackets) {
  std::string const usage =
      "RUN.toml [--set KEY=VALUE]... [--fresh]\n   or: heddle train RUN.toml --dry-run [--ranks N]";
  EXPECT_EQ(wrapped_usage("train", usage, 80), "Usage: heddle train " + usage);
  EXPECT_EQ(wrapped_usage("train", usage, 40),
            "Usage: heddle train RUN.toml\n"
            "       [--set KEY=VALUE]... [--fresh]\n"
            "   or: heddle train RUN.toml --dry-run\n"
            "       [--ranks N]");
  EXPECT_EQ(wrapped_usage("init", "[a b c d e f g h i j k l m n o p q r s t u v w]", 40),
            "Usage: heddle init [a b c d e f g h i j\n       k l m n o p q r s t u v w]");
  EXPECT_EQ(wrapped_usage("selftest", "", 40), "Usage: heddle selftest");
}

TEST(Terminal, HelpIsAsWideAsTheUserSays) {
  ::setenv("COLUMNS", "72", 1);
  EXPECT_EQ(help_columns(), 72U);
  ::setenv("COLUMNS", "3", 1);
  EXPECT_EQ(help_columns(), 40U);
  ::unsetenv("COLUMNS");
}

}  // namespace
}  // namespace heddle
