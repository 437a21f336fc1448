#include "serving/requests/translation_request.hpp"

#include "test.hpp"

namespace heddle {
namespace {

/// The status and the message with which a body is refused; 200 for one that is not.
std::pair<int, std::string> refusal(std::string const& body, ServingLimits const& limits = {}) {
  try {
    parse_translation_request(body, limits);
    return {200, ""};
  } catch (HttpError const& error) {
    return {error.status, error.what()};
  }
}

TEST(TranslationRequestTest, ReadsOneTextOrMany) {
  EXPECT_EQ(parse_translation_request(R"({"text": "a"})", {}).lines, (std::vector<std::string>{"a"}));
  TranslationRequest const request = parse_translation_request(
      R"({"texts": ["a", ""], "beam_size": 4, "n_best": 3, "max_length": 20, "length_penalty": 1, "scores": true,
          "stream": true, "model": "m", "adapter": "law", "source_language": "en", "target_language": "de"})",
      {});
  EXPECT_EQ(request.lines, (std::vector<std::string>{"a", ""}));
  EXPECT_EQ(request.options, (ServedOptions{"m", "law", "en", "de", 4, 3, 20, 1, true, false, true}));
  EXPECT_TRUE(parse_translation_request(R"({"texts": []})", {}).lines.empty());
}

TEST(TranslationRequestTest, SplitsTextsIntoLinesAsAFileHasThem) {
  TranslationRequest const request =
      parse_translation_request(R"({"texts": ["a\nb", "", "c\r\n\nd\n", "\n", "e\u2028f"]})", {});
  EXPECT_EQ(request.lines, (std::vector<std::string>{"a", "b", "", "c", "", "d", "", "e\u2028f"}));
  EXPECT_EQ(request.line_counts, (std::vector<std::size_t>{2, 1, 3, 1, 1}));
}

TEST(TranslationRequestTest, RefusesWhatIsNotARequest) {
  for (char const* const body : {"",
                                 "{",
                                 "[]",
                                 "3",
                                 "null",
                                 "{}",
                                 R"({"text": "a", "texts": []})",
                                 R"({"text": 3})",
                                 R"({"texts": "a"})",
                                 R"({"texts": [3]})",
                                 R"({"text": "a", "beam_size": 0})",
                                 R"({"text": "a", "beam_size": 17})",
                                 R"({"text": "a", "beam_size": 1.5})",
                                 R"({"text": "a", "beam_size": "5"})",
                                 R"({"text": "a", "n_best": 6})",
                                 R"({"text": "a", "n_best": 0})",
                                 R"({"text": "a", "max_length": -1})",
                                 R"({"text": "a", "max_length": 9223372036854775807})",
                                 R"({"text": "a", "max_length": -9223372036854775808})",
                                 R"({"text": "a", "length_penalty": -1})",
                                 R"({"text": "a", "length_penalty": 1e300})",
                                 R"({"text": "a", "scores": 1})",
                                 R"({"text": "a", "text": "b"})",
                                 R"({"text": "a", "beam_size": 1, "beam\u005fsize": 1})",
                                 R"({"text": "a"} {})",
                                 "{\"text\": \"\xFF\"}",
                                 R"({"text": "\ud800"})"}) {
    EXPECT_EQ(refusal(body).first, 400) << body;
  }
  EXPECT_EQ(refusal("{\"text\":" + std::string(100'000, '[')).first, 400);
  expect_contains(refusal(R"({"text": "a", "beem_size": 3})").second, "did you mean beam_size?");
  expect_contains(refusal(R"({"texts": ["a", "a"], "scores": true, "texts": []})").second, "duplicate key \"texts\"");
}

TEST(TranslationRequestTest, HasLimits) {
  ServingLimits limits;
  limits.texts = 2;
  limits.text_bytes = 3;
  limits.beam_size = 2;
  EXPECT_EQ(refusal(R"({"texts": ["abc", "a"], "beam_size": 2})", limits).first, 200);
  EXPECT_EQ(refusal(R"({"texts": ["a", "b", "c"], "beam_size": 2})", limits).first, 413);
  EXPECT_EQ(refusal(R"({"text": "abcd", "beam_size": 2})", limits).first, 413);
  EXPECT_EQ(refusal(R"({"text": "abc\nabc\n", "beam_size": 2})", limits).first, 200);
  EXPECT_EQ(refusal(R"({"texts": ["a\nb", "c"], "beam_size": 2})", limits).first, 413);
  expect_contains(refusal(R"({"text": "abc\nabcd", "beam_size": 2})", limits).second, "line 1 of text 0");
  EXPECT_EQ(refusal(R"({"text": "a", "beam_size": 3})", limits).first, 400);
  EXPECT_EQ(parse_translation_request(R"({"text": "a"})", limits).options.beam_size, 2) << "a default that is allowed";
}

TEST(TranslationRequestTest, TextsThatDifferInLanguagesAndInWhatIsAskedAreComputedTogether) {
  ServedOptions const options{.beam_size = 3};
  EXPECT_TRUE(options.same_search(
      {.source_language = "en", .target_language = "de", .beam_size = 3, .scores = true, .alignments = true}));
  EXPECT_FALSE(options.same_search({.beam_size = 2}));
  EXPECT_FALSE(options.same_search({.model = "m", .beam_size = 3}));
  EXPECT_FALSE(options.same_search({.beam_size = 3, .stream = true}));
}

}  // namespace
}  // namespace heddle
