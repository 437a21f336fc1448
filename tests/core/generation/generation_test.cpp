#include "generation_sample.hpp"

namespace heddle {
namespace {

using namespace generation_sample;

class GenerationTest : public testing::TestWithParam<SampleOptions> {
 protected:
  GenerationSample sample_{GetParam()};
};

TEST_P(GenerationTest, GreedyIsTheNaiveArgmaxOverFullPrefixes) {
  // A penalty under which a longer hypothesis may score better than the one that the likeliest end token ends.
  GenerationOptions const options{.max_length = 11, .length_penalty = 1};
  auto const sources = sample_sources();
  auto const results = sample_.generate(sources, options);
  for (std::size_t index = 0; index < sources.size(); ++index) {
    SCOPED_TRACE("sentence " + std::to_string(index));
    auto const next = [&](Tokens const& tokens) { return sample_.next_token(sources[index], tokens); };
    expect_same(results[index], naive_greedy_search(next, options), 1e-9);
  }
}

TEST_P(GenerationTest, CachedBatchedBeamsAreTheNaiveOnes) {
  for (std::int64_t const beam_size : {2, 3, 5}) {
    // n_best = beam_size: the search ends as the naive one does, without the bound that is used before.
    GenerationOptions const options{
        .beam_size = beam_size, .n_best = beam_size, .max_length = 9, .length_penalty = 0.6};
    auto const sources = sample_sources();
    auto const results = sample_.generate(sources, options);
    for (std::size_t index = 0; index < sources.size(); ++index) {
      SCOPED_TRACE("beam " + std::to_string(beam_size) + ", sentence " + std::to_string(index));
      auto const next = [&](Tokens const& tokens) { return sample_.next_token(sources[index], tokens); };
      expect_same(results[index], naive_beam_search(next, options), 1e-9);
    }
  }
}

TEST_P(GenerationTest, PatienceAndAWordPenaltyAreTheNaiveSearchs) {
  for (GenerationOptions const& options :
       {GenerationOptions{.beam_size = 3, .n_best = 3, .max_length = 9, .length_penalty = 0.6, .word_penalty = 0.3},
        GenerationOptions{.beam_size = 3, .n_best = 3, .max_length = 9, .length_penalty = 0.6, .word_penalty = -0.4},
        GenerationOptions{.beam_size = 2, .n_best = 2, .max_length = 9, .length_penalty = 1, .patience = 3}}) {
    auto const sources = sample_sources();
    auto const results = sample_.generate(sources, options);
    for (std::size_t index = 0; index < sources.size(); ++index) {
      SCOPED_TRACE("penalty " + std::to_string(options.word_penalty) + ", sentence " + std::to_string(index));
      auto const next = [&](Tokens const& tokens) { return sample_.next_token(sources[index], tokens); };
      expect_same(results[index], naive_beam_search(next, options), 1e-9);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, GenerationTest,
    testing::Values(
        SampleOptions{}, SampleOptions{.norm = NormPlacement::pre, .positions = Positions::learned},
        SampleOptions{.max_length = 24, .prompts = true},
        SampleOptions{.norm = NormPlacement::pre, .positions = Positions::learned, .max_length = 24, .prompts = true},
        SampleOptions{.positions = Positions::rotary,
                      .max_length = 24,
                      .prompts = true,
                      .self_attention = {"mask", std::string("prefix")}},
        SampleOptions{.max_length = 24, .prompts = true, .self_attention = {"score", std::string("linear")}},
        SampleOptions{.positions = Positions::relative,
                      .max_length = 24,
                      .prompts = true,
                      .self_attention = {"window", std::int64_t{2}}}));

/// Every sequence of at most `longest` tokens with its score.
void enumerate(GenerationSample& sample, Tokens const& source, Hypothesis const& prefix, std::size_t longest,
               std::pair<double, double> penalties, std::vector<Hypothesis>& all) {
  auto const next = sample.next_token(source, prefix.tokens);
  Hypothesis ended = prefix;
  ended.log_probability += next[end_id];
  ended.score = score(ended.log_probability, ended.tokens.size(), penalties.first, penalties.second);
  all.push_back(ended);
  if (prefix.tokens.size() == longest) {
    return;
  }
  for (std::int32_t token = 0; token < sample.vocabulary(); ++token) {
    if (token != end_id) {
      Hypothesis longer = prefix;
      longer.tokens.push_back(token);
      longer.log_probability += next[static_cast<std::size_t>(token)];
      enumerate(sample, source, longer, longest, penalties, all);
    }
  }
}

TEST(BeamSearch, AsWideAsAllSequencesIsExhaustiveSearch) {
  GenerationSample sample({.vocabulary = 5});
  constexpr std::size_t longest = 3;
  constexpr std::int64_t all_sequences = 1 + 4 + 16 + 64;
  for (Tokens const& source : {Tokens{3, 4}, Tokens{}, Tokens{0, 4, 4, 3, 0}}) {
    for (auto const& [penalty, word_penalty] :
         {std::pair{0.0, 0.0}, {0.5, 0.0}, {1.0, 0.0}, {2.5, 0.0}, {0.5, 1.5}, {0.0, -2.0}, {2.5, -1.0}}) {
      std::vector<Hypothesis> all;
      enumerate(sample, source, {}, longest, {penalty, word_penalty}, all);
      ASSERT_EQ(all.size(), all_sequences);
      sort_by_score(all);
      // The whole list, and a shorter one whose search may stop when no better result is possible.
      for (std::int64_t const n_best : {all_sequences, std::int64_t{4}, std::int64_t{1}}) {
        SCOPED_TRACE("penalties " + std::to_string(penalty) + " and " + std::to_string(word_penalty) + ", n-best " +
                     std::to_string(n_best));
        auto const results = sample.generate({source}, {.beam_size = all_sequences,
                                                        .n_best = n_best,
                                                        .max_length = longest,
                                                        .length_penalty = penalty,
                                                        .word_penalty = word_penalty});
        expect_same(results[0], {all.begin(), all.begin() + n_best}, 1e-9);
      }
    }
  }
}

TEST(Generation, Float32WithTheFastestKernelsFollowsFloat64) {
  GenerationSample exact({.vocabulary = 700});
  GenerationSample fast({.vocabulary = 700, .dtype = DType::float32, .kernels = "auto"});
  GenerationOptions const options{.beam_size = 3, .max_length = 6};
  auto const expected = exact.generate(sample_sources(), options);
  auto const found = fast.generate(sample_sources(), options);
  for (std::size_t index = 0; index < expected.size(); ++index) {
    expect_same(found[index], expected[index], 1e-3);
  }
}

/// The token that was drawn first, of hypotheses with at most one token.
std::int32_t first_token(std::vector<Hypothesis> const& hypotheses) {
  return hypotheses.front().tokens.empty() ? end_id : hypotheses.front().tokens.front();
}

TEST(Sampling, TokensAreDrawnByTheirProbabilities) {
  GenerationSample sample({.prompts = true});
  constexpr std::size_t draws = 4000;
  std::vector<Tokens> const prompts(draws, Tokens{4, 5});
  auto const log_probabilities = sample.next_token({4, 5}, {});
  for (Sampling const& sampling :
       {Sampling{.temperature = 1}, Sampling{.temperature = 0.5}, Sampling{.temperature = 2, .top_k = 3},
        Sampling{.temperature = 1, .top_p = 0.6}, Sampling{.temperature = 3, .top_k = 5, .top_p = 0.8},
        Sampling{.temperature = 2, .min_p = 0.4}, Sampling{.temperature = 3, .top_p = 0.9, .min_p = 0.5}}) {
    std::vector<std::size_t> order(log_probabilities.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return log_probabilities[a] > log_probabilities[b]; });
    order.resize(sampling.top_k > 0 ? static_cast<std::size_t>(sampling.top_k) : order.size());
    std::vector<double> expected(log_probabilities.size(), 0.0);
    double sum = 0;
    for (std::size_t const token : order) {
      sum += expected[token] = std::exp(log_probabilities[token] / sampling.temperature);
    }
    double const likeliest = expected[order.front()] / sum;
    double before = 0;
    double kept = 0;
    for (std::size_t const token : order) {
      double const probability = expected[token] / sum;
      bool const unlikely = probability < sampling.min_p * likeliest;
      expected[token] = before < sampling.top_p && !unlikely ? probability : 0;
      kept += expected[token];
      before += probability;
    }
    std::vector<double> drawn(log_probabilities.size(), 0.0);
    for (auto const& hypotheses : sample.generate(prompts, {.max_length = 1, .sampling = sampling})) {
      drawn[static_cast<std::size_t>(first_token(hypotheses))] += 1.0 / draws;
    }
    for (std::size_t token = 0; token < expected.size(); ++token) {
      if (expected[token] == 0) {
        EXPECT_EQ(drawn[token], 0) << token;
      }
      EXPECT_NEAR(drawn[token], expected[token] / kept, 0.03) << token;  // about four deviations
    }
  }
}

TEST(Sampling, DependsOnSeedAndNumber) {
  GenerationSample sample({.prompts = true});
  auto const prompts = sample_sources();
  GenerationOptions options{.max_length = 8, .sampling = {.temperature = 1.5, .seed = 4}};
  auto const first = sample.generate(prompts, options);
  options.sampling.seed = 5;
  auto const other = sample.generate(prompts, options);
  auto const differs = [](std::vector<Hypothesis> const& one, std::vector<Hypothesis> const& two) {
    return one.front().tokens != two.front().tokens;
  };
  EXPECT_FALSE(std::ranges::equal(first, other, std::not_fn(differs))) << "another seed";
  options.sampling.seed = 4;
  auto const equal = sample.generate(std::vector<Tokens>(6, prompts.front()), options);
  EXPECT_FALSE(std::ranges::equal(equal, std::vector(6, equal.front()), std::not_fn(differs))) << "other numbers";
  GenerationSample large({.vocabulary = 700, .prompts = true});
  auto const all = large.generate({{4}}, {.max_length = 9, .sampling = {.temperature = 1}});
  EXPECT_EQ(large.generate({{4}}, {.max_length = 9, .sampling = {.temperature = 1, .top_k = 700}})[0].front().tokens,
            all[0].front().tokens)
      << "all tokens, and as many as there are";
}

TEST(Generation, KeepsToTheModelsLength) {
  GenerationSample sample({.max_length = 6});
  for (auto const& hypotheses : sample.generate({{4, 5}, {3}}, {.beam_size = 3, .n_best = 3})) {
    EXPECT_EQ(hypotheses.size(), 3U);
    for (Hypothesis const& hypothesis : hypotheses) {
      EXPECT_LE(hypothesis.tokens.size(), 5U);
    }
  }
  EXPECT_TRUE(sample.generate({}, {}).empty());
}

template <class Thrown, class Call>
std::string message_of(Call const& call) {
  try {
    call();
  } catch (Thrown const& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Generation, AContinuationKeepsToTheModelsLengthWithItsPrompt) {
  GenerationSample sample({.max_length = 6, .prompts = true});
  auto const results = sample.generate({{4, 5, 3, 3, 4}, {}, {3, 3}}, {.beam_size = 2, .n_best = 2});
  EXPECT_TRUE(results[0].front().tokens.empty()) << "the end token alone fits";
  EXPECT_EQ(results[0].size(), 1U);
  for (Hypothesis const& hypothesis : results[2]) {
    EXPECT_LE(hypothesis.tokens.size(), 3U);
  }
}

/// The log-probabilities of the tokens that an observer saw for one source.
class ObservedSteps final : public SearchObserver {
 public:
  void extended(SearchStep const& step) override {
    EXPECT_GE(step.number, 0);
    auto& live = live_[step.number];
    live.resize(std::max<std::size_t>(live.size(), 1));
    std::vector<Tokens> next;
    for (SearchStep::Extension const& extension : step.extensions) {
      Tokens tokens = live.at(extension.parent);
      EXPECT_EQ(std::ssize(tokens), step.length);
      if (extension.fate == SearchStep::Fate::finished) {
        finished_[step.number][tokens] = extension.log_probability;
        continue;
      }
      tokens.push_back(extension.token);
      if (extension.fate == SearchStep::Fate::live) {
        next.push_back(tokens);
      }
    }
    live = next;
  }
  double finished(std::int64_t source, Tokens const& tokens) const { return finished_.at(source).at(tokens); }

 private:
  std::map<std::int64_t, std::vector<Tokens>> live_;
  std::map<std::int64_t, std::map<Tokens, double>> finished_;
};

TEST(Generation, AnObserverSeesHowEveryHypothesisCameAbout) {
  GenerationSample sample({});
  std::vector<Tokens> const sources{{4, 5}, {3}, {6, 7, 3, 4}};
  GenerationOptions options{.beam_size = 3, .n_best = 3, .max_length = 6};
  auto const expected = sample.generate(sources, options);
  ObservedSteps observer;
  options.observer = &observer;
  auto const results = sample.generate(sources, options);
  for (std::size_t source = 0; source < sources.size(); ++source) {
    expect_same(results[source], expected[source], 0);
    for (Hypothesis const& hypothesis : results[source]) {
      EXPECT_EQ(observer.finished(static_cast<std::int64_t>(source), hypothesis.tokens), hypothesis.log_probability);
    }
  }
}

TEST(Generation, RefusesWhatItCannotDo) {
  GenerationSample sample({.max_length = 6});
  auto const refused = [&](GenerationOptions const& options) {
    return message_of<UsageError>([&] { sample.generate({{4}}, options); });
  };
  EXPECT_NE(refused({.beam_size = 0}).find("expected 1 <= n-best <= beam size"), std::string::npos);
  EXPECT_NE(refused({.beam_size = 2, .n_best = 3}).find("beam size 2 and n-best 3"), std::string::npos);
  EXPECT_NE(refused({.length_penalty = std::nan("")}).find("a finite length penalty"), std::string::npos);
  EXPECT_NE(refused({.length_penalty = -0.5}).find("length penalty of at least 0"), std::string::npos);
  EXPECT_NE(refused({.sampling = {.temperature = -1}}).find("temperature -1, top-k 0, top-p 1, min-p 0: expected"),
            std::string::npos);
  EXPECT_NE(refused({.sampling = {.temperature = 1, .top_p = 0}}).find("a top-p above 0"), std::string::npos);
  EXPECT_NE(refused({.sampling = {.top_k = 4}}).find("set a temperature above 0"), std::string::npos);
  EXPECT_NE(refused({.beam_size = 2, .sampling = {.temperature = 1}}).find("the beam size is 1"), std::string::npos);
  std::string const message = message_of<DataError>([&] { sample.generate({{4}, {3, 3, 3, 3, 3, 3}}, {}); });
  GenerationSample encoder({.encoder = true});
  EXPECT_NE(message_of<ConfigError>([&] { encoder.generate({{4}}, {}); }).find("has no decoder"), std::string::npos);
  EXPECT_EQ(message, "source sentence 1 has 6 tokens; the model takes at most 5 (model.max_length = 6)");
}

}  // namespace
}  // namespace heddle
