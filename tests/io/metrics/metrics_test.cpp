#include <sys/resource.h>

#include <heddle/io/metrics/metric.hpp>
#include <heddle/io/metrics/significance.hpp>

#include "test.hpp"

namespace heddle {
namespace {

/// Golden values made with sacreBLEU: see tests/golden/metrics.py for the format.
std::vector<std::vector<std::string>> golden_rows() {
  std::filesystem::path const path = std::filesystem::path(HEDDLE_TEST_DATA) / "metrics.tsv";
  std::vector<std::vector<std::string>> rows;
  for (std::string const& line : lines_of(read_whole(path))) {
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

/// Texts of golden_rows.
struct Corpus {
  std::vector<std::string> hypotheses, references, baseline;
};

std::map<std::string, Corpus> golden_corpora() {
  std::map<std::string, Corpus> corpora;
  for (auto const& row : golden_rows()) {
    if (row.at(0) == "pair") {
      corpora[row.at(1)].hypotheses.push_back(row.at(2));
      corpora[row.at(1)].references.push_back(row.at(3));
    } else if (row.at(0) == "baseline") {
      corpora[row.at(1)].baseline.push_back(row.at(2));
    }
  }
  return corpora;
}

/// The score of a corpus, with a second reference if `two`: that of the next pair.
CorpusScore scored(std::unique_ptr<TranslationMetric> metric, std::vector<std::string> const& hypotheses,
                   std::vector<std::string> const& references, bool two = false) {
  CorpusScore corpus(std::move(metric), true);
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    std::vector<std::string> all{references.at(i)};
    if (two) {
      all.push_back(references.at((i + 1) % references.size()));
    }
    corpus.add(hypotheses[i], all);
  }
  return corpus;
}

std::string digits(double number) {
  return fmt::format("{:.10f}", number);
}

/// BLEU, chrF, chrF++, TER.
std::vector<std::unique_ptr<TranslationMetric>> all_metrics() {
  std::vector<std::unique_ptr<TranslationMetric>> metrics;
  metrics.push_back(bleu_metric());
  metrics.push_back(chrf_metric());
  metrics.push_back(chrf_metric(2));
  metrics.push_back(ter_metric());
  return metrics;
}

BleuTokenization tokenization_named(std::string const& name) {
  auto const& names = value_names<BleuTokenization>;
  auto const found = std::ranges::find(names, name);
  EXPECT_NE(found, names.end()) << name;
  return static_cast<BleuTokenization>(found - names.begin());
}

TEST(Metrics, TokenizesAsSacreBleu) {
  int compared = 0;
  for (auto const& row : golden_rows()) {
    if (row.at(0) == "token") {
      EXPECT_EQ(tokenize(tokenization_named(row.at(1)), row.at(2)), row.at(3)) << row.at(1) << ": " << row.at(2);
      ++compared;
    }
  }
  EXPECT_GT(compared, 120);
}

TEST(Metrics, KnowsTextThatIsWrittenWithoutSpaces) {
  EXPECT_TRUE(is_written_without_spaces("\u72ac\u304c\u8d70\u308b\u3002 OK"));
  EXPECT_FALSE(is_written_without_spaces("The dog \u72ac runs."));
  EXPECT_FALSE(is_written_without_spaces("\ub2ec\ub9ac\ub2e4 ..."));
  EXPECT_FALSE(is_written_without_spaces(""));
}

TEST(Metrics, ScoresEqualSacreBleuToThePrintedDigit) {
  std::map<std::string, Corpus> const corpora = golden_corpora();
  int compared = 0;
  auto const text = [](CorpusScore const& corpus) {
    return fmt::format("BLEU = {:.2f}{}", corpus.score(), corpus.details());
  };
  for (auto const& row : golden_rows()) {
    if (row.at(0) == "bleu") {
      Corpus const& corpus = corpora.at(row.at(1));
      EXPECT_EQ(text(scored(bleu_metric(tokenization_named(row.at(2))), corpus.hypotheses, corpus.references)),
                row.at(3))
          << row.at(1) << " " << row.at(2);
      ++compared;
    }
    if (row.at(0) != "score" && row.at(0) != "two") {
      continue;
    }
    bool const two = row.at(0) == "two";
    auto const& [hypotheses, references, baseline] = corpora.at(row.at(1));
    if (!two) {
      EXPECT_EQ(text(scored(bleu_metric(), hypotheses, references)), row.at(2)) << row.at(1);
      EXPECT_EQ(text(scored(bleu_metric(BleuTokenization::none), hypotheses, references)), row.at(3)) << row.at(1);
    }
    auto metrics = all_metrics();
    for (std::size_t metric = two ? 0 : 1; metric < metrics.size(); ++metric) {
      EXPECT_EQ(digits(scored(std::move(metrics[metric]), hypotheses, references, two).score()),
                row.at(metric + (two ? 2 : 3)))
          << row.at(1) << " " << row.at(0) << " " << metric;
      ++compared;
    }
  }
  EXPECT_GT(compared, 50);
}

TEST(Metrics, ResamplingDrawsWhatSacreBleuDraws) {
  std::map<std::string, Corpus> const corpora = golden_corpora();
  int compared = 0;
  for (auto const& row : golden_rows()) {
    if (row.at(0) != "resampled") {
      continue;
    }
    auto const& [hypotheses, references, baseline] = corpora.at(row.at(1));
    auto metrics = all_metrics();
    auto others = all_metrics();
    std::size_t const metric = compared % metrics.size();
    CorpusScore const system = scored(std::move(metrics[metric]), hypotheses, references);
    CorpusScore const other = scored(std::move(others[metric]), baseline, references);
    ASSERT_EQ(system.metric().name(), row.at(2));
    auto const [mean, half_width] = confidence_of(system);
    // sacreBLEU computes chrF and TER of samples in float32.
    EXPECT_NEAR(mean, std::stod(row.at(3)), 1e-3);
    EXPECT_NEAR(half_width, std::stod(row.at(4)), 1e-3);
    EXPECT_EQ(fmt::format("{:.6f}", p_value_of(other, system)), row.at(5)) << row.at(1) << " " << row.at(2);
    ++compared;
  }
  EXPECT_EQ(compared, 8);
}

TEST(Metrics, ResamplingNeedsSentencesAndEqualCorpora) {
  CorpusScore const none(bleu_metric(), true);
  EXPECT_THROW(confidence_of(none), DataError);
  CorpusScore const one = scored(bleu_metric(), {"a"}, {"a"});
  EXPECT_THROW(p_value_of(none, one), Error);
  EXPECT_EQ(p_value_of(one, scored(bleu_metric(), {"a"}, {"a"})), 1) << "a system and itself";
  EXPECT_THROW(p_value_of(scored(ter_metric(), {"a"}, {"a"}), one), Error);
}

TEST(Metrics, TerTakesMemoryForItsBeamOnly) {
  auto const words = [](char const* word) {
    std::string text;
    for (int count = 0; count < 15'000; ++count) {
      text += word;
    }
    return text;
  };
  auto const peak = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;  // KiB
  };
  auto const before = peak();
  EXPECT_EQ(digits(scored(ter_metric(), {words("a ")}, {words("b ")}).score()), digits(100));
  EXPECT_LT(peak() - before, 200'000) << "a cell for each pair of words takes 1.8 GB";
}

TEST(Metrics, AreRegisteredAsFunctionsOfACorpus) {
  MetricRegistry registry;
  register_metrics(registry);
  std::vector<std::string> const translations{"the cat sat on the mat", "a dog"};
  std::vector<std::string> const references{"the cat sat on a mat", "one dog barks"};
  auto const score = [&](char const* name) {
    return digits(registry.of(name, "").metric.score({translations, references, {}}));
  };
  EXPECT_EQ(score("bleu"), digits(scored(bleu_metric(), translations, references).score()));
  EXPECT_EQ(score("chrf"), digits(scored(chrf_metric(), translations, references).score()));
  EXPECT_EQ(score("chrf++"), digits(scored(chrf_metric(2), translations, references).score()));
  EXPECT_EQ(score("ter"), digits(scored(ter_metric(), translations, references).score()));
  EXPECT_NE(score("chrf"), score("chrf++"));
  EXPECT_NE(score("bleu"), score("bleu_char"));
  EXPECT_EQ(score("bleu_char"),
            digits(scored(bleu_metric(BleuTokenization::characters), translations, references).score()));
  EXPECT_TRUE(registry.of("bleu", "").metric.higher_is_better);
  EXPECT_FALSE(registry.of("ter", "").metric.higher_is_better);
}

TEST(Metrics, ChrfRefusesTextThatIsNotUtf8) {
  EXPECT_THROW(chrf_metric()->count("\xFF", std::vector<std::string>{"a"}), DataError);
}

}  // namespace
}  // namespace heddle
