#include "serving/http/text_results.hpp"

#include "test.hpp"

namespace heddle {
namespace {

TEST(TextResultsTest, KeepTheLinesOfATextAndTheirOwnResults) {
  TextResults results({1, 3});
  EXPECT_EQ(results.missing(), 2U);
  EXPECT_FALSE(results.add(3, R"({"translations":[{"text":"c","score":-1},{"text":"d","score":-2}]})"));
  EXPECT_FALSE(results.add(1, R"({"translations":[{"text":"\"a\u00e4"}],"truncated":{"tokens":9,"kept":8}})"));
  auto const single = results.add(0, R"({"translations":[{"text":"x"},{"text":"y"}]})");
  ASSERT_TRUE(single);
  EXPECT_EQ(single->text, 0U);
  EXPECT_EQ(single->json, R"({"translations":[{"text":"x"},{"text":"y"}]})");
  EXPECT_EQ(results.missing(), 1U);
  auto const several = results.add(2, R"({"translations":[{"text":""}]})");
  ASSERT_TRUE(several);
  EXPECT_EQ(several->text, 1U);
  EXPECT_EQ(several->json,
            "{\"translations\":[{\"text\":\"\\\"aä\\n\\nc\"}],"
            R"("lines":[{"translations":[{"text":"\"a\u00e4"}],"truncated":{"tokens":9,"kept":8}},)"
            R"({"translations":[{"text":""}]},)"
            R"({"translations":[{"text":"c","score":-1},{"text":"d","score":-2}]}]})");
  EXPECT_EQ(results.missing(), 0U);
}

TEST(TextResultsTest, KnowWhereALineIs) {
  TextResults const results({2, 1, 2});
  std::string places;
  for (std::size_t line = 0; line < 5; ++line) {
    auto const [text, line_of_text, single] = results.place(line);
    places += std::to_string(text) + "." + std::to_string(line_of_text) + (single ? "! " : " ");
  }
  EXPECT_EQ(places, "0.0 0.1 1.0! 2.0 2.1 ");
  EXPECT_EQ(TextResults::best_text(R"({"translations":[{"text":"a\nb"},{"text":"c"}]})"), R"("a\nb")");
}

TEST(TextResultsTest, BytesThatAreNotTextEndNothing) {
  TextResults results({2});
  results.add(0, "{\"translations\":[{\"text\":\"\xC3\"}]}");
  auto const result = results.add(1, R"({"translations":[{"text":"b"}]})");
  ASSERT_TRUE(result);
  EXPECT_NE(result->json.find("\xC3\\nb"), std::string::npos);
}

}  // namespace
}  // namespace heddle
