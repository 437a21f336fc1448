#include "corpus/text_conversion.hpp"

#include "test.hpp"

namespace heddle {
namespace {

TEST(TextConversion, TenMessagesOfEachKindAreWritten) {
  TemporaryDirectory const directory;
  LineSource text({.input = directory.write("text", "a\n"), .window = 1});
  auto const compute = [](Chunk const&, std::function<void()> const&) {
    ChunkResult result{.lines = 1};
    for (int line = 1; line <= 12; ++line) {
      result.messages.push_back(fmt::format("line {}: {} tokens are too many", line, 1000 * line));
    }
    result.messages.emplace_back("line 13: another kind");
    return result;
  };
  testing::internal::CaptureStderr();
  convert_chunks(
      {}, text, [&] { return text.next_chunk(); }, compute, [](ChunkResult const&) {});
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("line 10: "), Not(HasSubstr("line 11: ")), HasSubstr("line 13: another kind"),
                    HasSubstr("2 more lines like these")));
}

}  // namespace
}  // namespace heddle
