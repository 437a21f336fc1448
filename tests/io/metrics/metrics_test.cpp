#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <heddle/core/base/error.hpp>
#include <heddle/io/metrics/bleu.hpp>
#include <heddle/io/metrics/chrf.hpp>
#include <map>
#include <string>
#include <vector>

namespace heddle {
namespace {

/// Golden values made with sacreBLEU: see tests/golden/metrics.py for the format.
std::vector<std::vector<std::string>> golden_rows() {
  std::filesystem::path const path = std::filesystem::path(HEDDLE_TEST_DATA) / "metrics.tsv";
  std::ifstream file(path);
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(file, line);) {
    std::vector<std::string> fields(1);
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (line[i] == '\t') {
        fields.emplace_back();
      } else if (line[i] == '\\') {
        char const escaped = line.at(++i);
        fields.back() += escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped;
      } else {
        fields.back() += line[i];
      }
    }
    rows.push_back(fields);
  }
  return rows;
}

template <class Counter>
auto score_of(Counter counter, std::vector<std::string> const& hypotheses, std::vector<std::string> const& references) {
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    counter.add(hypotheses[i], references.at(i));
  }
  return counter.score();
}

TEST(Metrics, TokenizesAsSacreBleu13a) {
  int compared = 0;
  for (auto const& row : golden_rows()) {
    if (row.at(0) == "token") {
      EXPECT_EQ(tokenize_13a(row.at(1)), row.at(2)) << row.at(1);
      ++compared;
    }
  }
  EXPECT_GT(compared, 30);
}

TEST(Metrics, ScoresEqualSacreBleuToThePrintedDigit) {
  std::map<std::string, std::pair<std::vector<std::string>, std::vector<std::string>>> corpora;
  int compared = 0;
  for (auto const& row : golden_rows()) {
    if (row.at(0) == "pair") {
      corpora[row.at(1)].first.push_back(row.at(2));
      corpora[row.at(1)].second.push_back(row.at(3));
    } else if (row.at(0) == "score") {
      auto const& [hypotheses, references] = corpora.at(row.at(1));
      EXPECT_EQ(score_of(BleuCounter(), hypotheses, references).text(), row.at(2)) << row.at(1);
      EXPECT_EQ(score_of(BleuCounter(BleuTokenization::none), hypotheses, references).text(), row.at(3)) << row.at(1);
      EXPECT_EQ(fmt::format("{:.10f}", score_of(ChrfCounter(), hypotheses, references)), row.at(4)) << row.at(1);
      ++compared;
    }
  }
  EXPECT_GT(compared, 8);
}

TEST(Metrics, ChrfRefusesTextThatIsNotUtf8) {
  EXPECT_THROW(ChrfCounter().add("\xFF", "a"), DataError);
}

}  // namespace
}  // namespace heddle
