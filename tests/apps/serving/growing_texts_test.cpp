#include "serving/workers/growing_texts.hpp"

#include "test.hpp"

namespace heddle {
namespace {

using Fate = SearchStep::Fate;
using Tokens = GrowingTexts::Tokens;

TEST(GrowingTextsTest, TheHypothesisWithTheBestScoreIsShown) {
  std::vector<Tokens> shown;
  GrowingTexts texts(1, [&](std::int64_t, Tokens const& tokens) { shown.push_back(tokens); });
  texts.extended({1, 0, {{0, 7, -1, Fate::live}, {0, 8, -2, Fate::live}}});
  texts.extended({1, 1, {{1, 5, -2.1, Fate::live}, {0, 2, -2.4, Fate::finished}, {0, 6, -3, Fate::live}}});
  EXPECT_THAT(shown, ElementsAre(Tokens{7}, Tokens{8, 5})) << "-2.1 / 2 is above -2.4 / 2, also if it is another text";
  texts.extended({1, 2, {{0, 5, -6, Fate::live}, {1, 5, -7, Fate::dropped}}});
  EXPECT_THAT(shown.back(), ElementsAre(7)) << "-2.4 / 2 is above -6 / 3: the finished one";
  texts.extended({1, 3, {{0, 2, -6.1, Fate::finished}}});
  EXPECT_THAT(shown.back(), ElementsAre(7)) << "a worse one that ends changes nothing";
  texts.forget(1);
  texts.extended({1, 0, {{0, 9, -1, Fate::live}}});
  EXPECT_THAT(shown.back(), ElementsAre(9));
}

TEST(GrowingTextsTest, TextsGrowByThemselves) {
  std::map<std::int64_t, Tokens> shown;
  GrowingTexts texts(0, [&](std::int64_t number, Tokens const& tokens) { shown[number] = tokens; });
  texts.extended({1, 0, {{0, 7, -1, Fate::live}}});
  texts.extended({2, 0, {{0, 2, -1, Fate::finished}}});
  texts.extended({1, 1, {{0, 8, -2, Fate::live}}});
  EXPECT_THAT(shown[1], ElementsAre(7, 8));
  EXPECT_TRUE(shown[2].empty());
}

}  // namespace
}  // namespace heddle
