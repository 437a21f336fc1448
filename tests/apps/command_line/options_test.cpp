#include "command_line/options.hpp"

#include "test.hpp"

namespace heddle {
namespace {

TEST(Options, ValuesAreAmongTheNamedWordsUnlessOneIsInCapitals) {
  std::string which = "best";
  std::string by = "newest";
  CommandSyntax syntax{.name = "use", .usage = "", .summary = ""};
  syntax.options.add_options()                               //
      ("which", with_default(which, "best|last"), "closed")  //
      ("by", with_default(by, "newest|best|METRIC"), "open");
  parse_options(syntax, {"--which", "last", "--by", "bleu/medical"});
  EXPECT_EQ(which, "last");
  EXPECT_EQ(by, "bleu/medical");
  expect_usage_error([&] { parse_options(syntax, {"--which", "first"}); }, "--which is \"first\"; expected best|last");
  EXPECT_THROW(parse_options(syntax, {"--which", "best|last"}), UsageError);
}

TEST(Options, AnUnknownOneIsAnsweredWithTheNearest) {
  std::int64_t beam = 1;
  std::string out = "x";
  CommandSyntax syntax{.name = "use", .usage = "", .summary = ""};
  syntax.options.add_options()                   //
      ("beam", with_default(beam, "N"), "size")  //
      ("out", with_default(out, "FILE"), "file");
  auto const answer = [&](std::string const& option) {
    return message_of<UsageError>([&] { parse_options(syntax, {option, "5"}); });
  };
  for (char const* const option : {"--beamsize", "--beam-size", "--beam_size", "--baem", "--Beam"}) {
    EXPECT_THAT(answer(option), HasSubstr("did you mean --beam?")) << option;
  }
  expect_lacks(answer("--outline-of-everything"), "did you mean");
}

}  // namespace
}  // namespace heddle
