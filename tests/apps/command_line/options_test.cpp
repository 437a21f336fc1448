#include "command_line/options.hpp"

#include <gmock/gmock.h>

#include <heddle/core/base/error.hpp>

#include "temporary_directory.hpp"

namespace heddle {
namespace {

using test::message_of;
using testing::HasSubstr;

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
  EXPECT_THAT(message_of<UsageError>([&] {
                parse_options(syntax, {"--which", "first"});
              }),
              HasSubstr("--which is \"first\"; expected best|last"));
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
  EXPECT_THAT(answer("--outline-of-everything"), testing::Not(HasSubstr("did you mean")));
}

}  // namespace
}  // namespace heddle
