#include "generation_sample.hpp"

namespace heddle {
namespace {

using namespace generation_sample;

/// -infinity for tokens that the limits leave out after these, by their definition.
void leave_out(GenerationLimits const& limits, Tokens const& tokens, std::vector<double>& next) {
  auto const out = [&](std::int32_t token) {
    next[static_cast<std::size_t>(token)] = -std::numeric_limits<double>::infinity();
  };
  for (Tokens const& sequence : limits.suppressed) {
    Tokens all = tokens;
    all.push_back(sequence.back());
    if (all.size() >= sequence.size() &&
        std::equal(sequence.begin(), sequence.end(), all.end() - std::ssize(sequence))) {
      out(sequence.back());
    }
  }
  for (std::int32_t const token : limits.suppressed_first) {
    if (tokens.empty()) {
      out(token);
    }
  }
}

struct Case {
  GenerationLimits limits;
  Tokens start = {ids.target.begin};
};

std::vector<Case> cases() {
  return {{{{{4}}, {}}},
          {{{{3}, {5}, {7, 7}, {6, 8}}, {end_id, 8}}},
          {{}, {6}},
          {{}, {ids.target.begin, 4, 4}},
          {{{{8}, {7, 6}}, {5}}, {3, 7}}};
}

/// The tokens after the start's first one, and the hypothesis's.
Tokens after(Tokens const& start, Tokens const& tokens) {
  Tokens all(start.begin() + 1, start.end());
  all.insert(all.end(), tokens.begin(), tokens.end());
  return all;
}

TEST(GenerationLimits, BeamsAndGreedySearchAreTheNaiveOnes) {
  GenerationSample sample({.max_length = 24});
  auto const sources = sample_sources();
  for (auto const& [limits, start] : cases()) {
    GenerationModel model = sample.generation_model();
    model.limits = limits;
    for (std::int64_t const beam_size : {1, 2, 4}) {
      GenerationOptions const options{
          .beam_size = beam_size, .n_best = beam_size, .max_length = 7, .length_penalty = 0.6, .batch_tokens = 40};
      auto const results = sample.generate(model, sources, options, std::vector(sources.size(), start));
      for (std::size_t index = 0; index < sources.size(); ++index) {
        SCOPED_TRACE("beam " + std::to_string(beam_size) + ", sentence " + std::to_string(index));
        auto const next = [&](Tokens const& tokens) {
          auto all = sample.next_token(sources[index], after(start, tokens), start.front());
          if (std::ssize(tokens) < options.max_length) {
            leave_out(limits, tokens, all);
          }
          return all;
        };
        auto const expected = beam_size == 1 ? naive_greedy_search(next, options) : naive_beam_search(next, options);
        expect_same(results[index], expected, 1e-9);
      }
    }
  }
}

TEST(GenerationLimits, EachOfSeveralEndTokensEndsATarget) {
  GenerationSample sample({.max_length = 24});
  auto const sources = sample_sources();
  GenerationModel model = sample.generation_model();
  for (Tokens const& ends : {Tokens{end_id, 6}, {4, 5, end_id}, {7}}) {
    model.limits.ends = ends;
    for (std::int64_t const beam_size : {1, 2, 4}) {
      GenerationOptions const options{.beam_size = beam_size, .n_best = beam_size, .max_length = 7, .min_length = 1};
      auto const results = sample.generate(model, sources, options);
      for (std::size_t index = 0; index < sources.size(); ++index) {
        SCOPED_TRACE("beam " + std::to_string(beam_size) + ", sentence " + std::to_string(index));
        auto const next = [&](Tokens const& tokens) {
          auto all = sample.next_token(sources[index], tokens);
          for (std::int32_t const end : tokens.empty() ? ends : Tokens()) {
            all[static_cast<std::size_t>(end)] = -std::numeric_limits<double>::infinity();
          }
          return all;
        };
        auto const expected =
            beam_size == 1 ? naive_greedy_search(next, options, ends) : naive_beam_search(next, options, ends);
        expect_same(results[index], expected, 1e-9);
      }
    }
  }
}

TEST(GenerationLimits, SentencesThatStartInTheirOwnWayAreGeneratedTogether) {
  GenerationSample sample({.max_length = 24});
  auto const sources = sample_sources();
  std::vector<Tokens> const starts{{1}, {1, 4, 4}, {6}, {3, 7}, {1}, {1, 8}};
  GenerationOptions const options{.beam_size = 3, .n_best = 3, .max_length = 7};
  auto const together = sample.generate(sample.generation_model(), sources, options, starts);
  for (std::size_t index = 0; index < sources.size(); ++index) {
    SCOPED_TRACE("sentence " + std::to_string(index));
    auto const alone = sample.generate(sample.generation_model(), {sources[index]}, options, {starts[index]});
    expect_same(together[index], alone[0], 1e-9);
  }
}

TEST(GenerationLimits, NoSuppressedTokenIsDrawn) {
  GenerationSample sample({.prompts = true});
  GenerationModel model = sample.generation_model();
  model.limits = {{{4}, {6, 6}}, {5, end_id}};
  std::vector<Tokens> const prompts(300, Tokens{4, 5});
  auto const next = sample.next_token({4, 5}, {});
  double allowed = 0;
  for (std::int32_t const token : {0, 1, 3, 6, 7, 8}) {
    allowed += std::exp(next[static_cast<std::size_t>(token)] / 3);
  }
  double sixes = 0;
  for (auto const& hypotheses : sample.generate(model, prompts, {.max_length = 6, .sampling = {.temperature = 3}})) {
    Tokens const& tokens = hypotheses.front().tokens;
    ASSERT_FALSE(tokens.empty());
    EXPECT_NE(tokens.front(), 5);
    EXPECT_EQ(std::ranges::count(tokens, 4), 0);
    EXPECT_EQ(std::ranges::adjacent_find(tokens, [](auto a, auto b) { return a == 6 && b == 6; }), tokens.end());
    sixes += tokens.front() == 6 ? 1.0 / 300 : 0;
  }
  EXPECT_NEAR(sixes, std::exp(next[6] / 3) / allowed, 0.1) << "the others' probabilities are relative to each other";
}

TEST(GenerationLimits, ImpossibleOnesAreRefused) {
  GenerationSample sample({.vocabulary = 5, .max_length = 6});
  auto const refused = [&](GenerationLimits const& limits) {
    GenerationModel model = sample.generation_model();
    model.limits = limits;
    return [&sample, model] { sample.generate(model, {{4}}, {}); };
  };
  expect_usage_error(refused({{{5}}, {}}), "expected ids from 0 to 4");
  expect_usage_error(refused({{{0}, {1}, {2}}, {3, 4}}), "no token is left");
  expect_usage_error(refused({{{}}, {}}), "sequence of tokens is empty");
  auto const start = [&] { sample.generate(sample.generation_model(), {{4}}, {}, {Tokens(7, 3)}); };
  EXPECT_THROW(start(), DataError);
}

TEST(Ensemble, ItsLogProbabilitiesAreTheModelsWeightedSums) {
  GenerationSample one({});
  GenerationSample two({.norm = NormPlacement::pre, .positions = Positions::learned, .seed = 6});
  GenerationSample three({.seed = 7});
  auto const sources = sample_sources();
  GenerationModel model = one.generation_model();
  model.weight = 0.5;
  model.others = {{&two.model(), 0.3}, {&three.model(), 0.2}};
  model.limits.suppressed = {{4}};
  for (std::int64_t const beam_size : {1, 4}) {
    GenerationOptions const options{.beam_size = beam_size, .n_best = beam_size, .max_length = 8};
    auto const results = one.generate(model, sources, options);
    for (std::size_t index = 0; index < sources.size(); ++index) {
      SCOPED_TRACE("beam " + std::to_string(beam_size) + ", sentence " + std::to_string(index));
      auto const mean = [&](Tokens const& tokens) {
        auto next = one.next_token(sources[index], tokens);
        auto const of_two = two.next_token(sources[index], tokens);
        auto const of_three = three.next_token(sources[index], tokens);
        for (std::size_t token = 0; token < next.size(); ++token) {
          next[token] = 0.5 * next[token] + 0.3 * of_two[token] + 0.2 * of_three[token];
        }
        return next;
      };
      auto const next = [&](Tokens const& tokens) {
        auto all = mean(tokens);
        leave_out(model.limits, tokens, all);
        return all;
      };
      expect_same(results[index],
                  beam_size == 1 ? naive_greedy_search(next, options) : naive_beam_search(next, options), 1e-9);
      for (Hypothesis const& hypothesis : results[index]) {
        double sum = 0;
        Tokens tokens;
        for (std::int32_t const token : hypothesis.tokens) {
          sum += mean(tokens)[static_cast<std::size_t>(token)];
          tokens.push_back(token);
        }
        EXPECT_NEAR(hypothesis.log_probability, sum + mean(tokens)[end_id], 1e-9);
      }
    }
  }
}

TEST(Ensemble, OfEqualModelsIsTheModel) {
  GenerationSample one({.dtype = DType::float32, .kernels = "auto"});
  GenerationSample two({.dtype = DType::float32, .kernels = "auto"});
  GenerationModel model = one.generation_model();
  GenerationOptions const options{.beam_size = 3, .n_best = 3, .max_length = 8};
  auto const expected = one.generate(model, sample_sources(), options);
  model.weight = 0.5;
  model.others = {{&two.model(), 0.5}};
  auto const found = one.generate(model, sample_sources(), options);
  for (std::size_t index = 0; index < expected.size(); ++index) {
    expect_same(found[index], expected[index], 1e-4);
  }
}

TEST(Ensemble, NeedsOneVocabularyAndOneKindOfModel) {
  GenerationSample one({});
  GenerationSample larger({.vocabulary = 10});
  GenerationSample decoder({.prompts = true});
  for (GenerationSample* const other : {&larger, &decoder}) {
    GenerationModel model = one.generation_model();
    model.others = {{&other->model(), 0.5}};
    EXPECT_THROW(one.generate(model, {{4}}, {}), ConfigError);
  }
}

}  // namespace
}  // namespace heddle
