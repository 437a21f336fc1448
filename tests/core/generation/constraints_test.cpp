#include "generation_sample.hpp"

namespace heddle {
namespace {

using namespace generation_sample;

constexpr double never = -std::numeric_limits<double>::infinity();

/// Whether the last `size` tokens are in the others, too.
bool repeats(Tokens const& tokens, std::size_t size) {
  if (tokens.size() <= size) {
    return false;
  }
  auto const last = tokens.end() - static_cast<std::ptrdiff_t>(size);
  return std::search(tokens.begin(), tokens.end() - 1, last, tokens.end()) != tokens.end() - 1;
}

/// The log-probabilities of tokens by the definition of the options; a target starts with `start`.
NextToken constrained(GenerationSample& sample, Tokens const& source, Tokens const& start,
                      GenerationOptions const& options) {
  return [&sample, source, start, options](Tokens const& tokens) {
    Tokens all = start;
    all.insert(all.end(), tokens.begin(), tokens.end());
    auto const free = sample.next_token(source, {all.begin() + 1, all.end()}, start.front());
    auto next = free;
    for (std::int32_t token = 0; token < std::ssize(next); ++token) {
      Tokens longer = all;
      longer.push_back(token);
      bool const repeated = options.no_repeat_ngram > 0 && token != end_id &&
                            repeats(longer, static_cast<std::size_t>(options.no_repeat_ngram));
      bool const early = token == end_id && std::ssize(tokens) < options.min_length;
      bool const forbidden = std::ranges::any_of(options.forbidden, [&](Tokens const& sequence) {
        return sequence.size() <= tokens.size() + 1 && std::equal(sequence.rbegin(), sequence.rend(), longer.rbegin());
      });
      if (std::ssize(tokens) < options.max_length && (repeated || early || forbidden)) {
        next[static_cast<std::size_t>(token)] = never;
      }
    }
    if (std::ranges::all_of(next, [](double each) { return each == never; })) {
      next[end_id] = free[end_id];
    }
    return next;
  };
}

struct ConstrainedCase {
  char const* name;
  GenerationOptions options;
  Tokens start = {ids.target.begin};
};

std::vector<ConstrainedCase> constrained_cases() {
  return {{"no token twice", {.max_length = 8, .no_repeat_ngram = 1}},
          {"no pair twice", {.max_length = 9, .no_repeat_ngram = 2}},
          {"no triple twice, of a start, too", {.max_length = 9, .no_repeat_ngram = 3}, {1, 4, 4, 5, 4}},
          {"at least five", {.max_length = 7, .min_length = 5}},
          {"forbidden", {.max_length = 7, .forbidden = {{4}, {7, 7}, {6, 5, 8}}}},
          {"all of them", {.max_length = 8, .min_length = 4, .no_repeat_ngram = 2, .forbidden = {{3}}}, {1, 6}}};
}

TEST(Constraints, BeamsAndGreedySearchAreTheNaiveOnes) {
  GenerationSample sample({.max_length = 24});
  auto const sources = sample_sources();
  std::set<Tokens> found;
  for (auto [name, options, start] : constrained_cases()) {
    for (std::int64_t const beam_size : {1, 2, 4}) {
      options.beam_size = options.n_best = beam_size;
      options.batch_tokens = 40;
      auto const results =
          sample.generate(sample.generation_model(), sources, options, std::vector(sources.size(), start));
      for (std::size_t index = 0; index < sources.size(); ++index) {
        SCOPED_TRACE(std::string(name) + ", beam " + std::to_string(beam_size) + ", sentence " + std::to_string(index));
        auto const next = constrained(sample, sources[index], start, options);
        auto const expected = beam_size == 1 ? naive_greedy_search(next, options) : naive_beam_search(next, options);
        expect_same(results[index], expected, 1e-9);
        found.insert(results[index].front().tokens);
      }
    }
  }
  EXPECT_GT(found.size(), 3 * sources.size()) << "the options change too little to test them";
}

TEST(Constraints, TheUnknownTokenIsGeneratedOnlyIfItIsAllowed) {
  GenerationSample sample({});
  GenerationOptions options{.beam_size = 2, .n_best = 2, .max_length = 8};
  auto const plain = sample.generate(sample_sources(), options);
  GenerationModel model = sample.generation_model();
  model.ids.target.unknown = plain.front().front().tokens.at(0);
  auto const without = sample.generate(model, sample_sources(), options);
  options.forbidden = {{model.ids.target.unknown}};
  auto const forbidden = sample.generate(sample_sources(), options);
  options.forbidden = {};
  options.allow_unknown = true;
  auto const with = sample.generate(model, sample_sources(), options);
  for (std::size_t index = 0; index < plain.size(); ++index) {
    expect_same(without[index], forbidden[index], 0);
    expect_same(with[index], plain[index], 0);
  }
  options.allow_unknown = false;
  model.ids.target.unknown = end_id;  // GPT-2's is its end token, too
  expect_same(sample.generate(model, sample_sources(), options).front(), plain.front(), 0);
}

TEST(Constraints, AHypothesisWithoutATokenThatIsLeftEnds) {
  GenerationSample sample({.vocabulary = 5, .max_length = 16});
  for (std::int64_t const beam_size : {1, 3}) {
    GenerationOptions const options{.beam_size = beam_size, .max_length = 12, .min_length = 12, .no_repeat_ngram = 1};
    auto const results = sample.generate({{3, 4}}, options);
    Tokens tokens = results.front().front().tokens;
    std::ranges::sort(tokens);
    EXPECT_EQ(tokens, (Tokens{0, 3, 4})) << "without the start token 1 and the end token 2";
  }
}

TEST(Constraints, AreKeptWhereTokensAreDrawn) {
  GenerationSample sample({.prompts = true});
  GenerationOptions const options{
      .max_length = 9, .min_length = 6, .no_repeat_ngram = 2, .forbidden = {{5}}, .sampling = {.temperature = 2}};
  for (auto const& hypotheses : sample.generate(std::vector<Tokens>(100, Tokens{4, 6}), options)) {
    Tokens all{4, 6};
    for (std::int32_t const token : hypotheses.front().tokens) {
      all.push_back(token);
      EXPECT_FALSE(repeats(all, 2));
      EXPECT_NE(token, 5);
    }
    EXPECT_GE(hypotheses.front().tokens.size(), 6U);
  }
}

TEST(Constraints, ImpossibleOnesAreRefused) {
  auto const refused = [](GenerationOptions const& options) { return [options] { require_valid(options); }; };
  expect_usage_error(refused({.max_length = 3, .min_length = 4}), "at most the maximum");
  EXPECT_THROW(require_valid({.min_length = -1}), UsageError);
  EXPECT_THROW(require_valid({.no_repeat_ngram = -1}), UsageError);
  expect_usage_error(refused({.beam_size = 4, .beam_groups = 3}), "divide the beam");
  EXPECT_THROW(require_valid({.beam_size = 4, .beam_groups = 0}), UsageError);
  EXPECT_NO_THROW(require_valid({.beam_size = max_beam_size}));
  EXPECT_THROW(require_valid({.beam_size = max_beam_size + 1}), UsageError);
  EXPECT_THROW(require_valid({.beam_size = 4, .beam_groups = 2, .diversity = -1}), UsageError);
  GenerationSample sample({.vocabulary = 5, .max_length = 6});
  EXPECT_THROW(sample.generate({{4}}, {.forbidden = {{5}}}), UsageError);
}

/// Diverse beam search by its definition, for as many results as the beam has hypotheses.
std::vector<Hypothesis> naive_diverse_search(NextToken const& next_token, GenerationOptions const& options) {
  struct Live {
    Hypothesis hypothesis;
    double order = 0;
  };
  struct Group {
    std::vector<Live> live{{}};
    std::vector<Hypothesis> finished{};
  };
  auto const size = static_cast<std::size_t>(options.beam_size / options.beam_groups);
  std::vector<Group> groups(static_cast<std::size_t>(options.beam_groups));
  for (std::int64_t time = 0; time <= options.max_length; ++time) {
    std::map<std::int32_t, int> uses;
    for (auto& [live, finished] : groups) {
      std::vector<Live> extensions;
      for (auto const& [parent, order] : live) {
        auto const next = next_token(parent.tokens);
        for (std::int32_t token = 0; token < std::ssize(next); ++token) {
          if (time < options.max_length || token == end_id) {
            double const log_probability = next[static_cast<std::size_t>(token)];
            Live child{parent, order + log_probability - options.diversity * uses[token]};
            child.hypothesis.tokens.push_back(token);
            child.hypothesis.log_probability += log_probability;
            extensions.push_back(child);
          }
        }
      }
      std::stable_sort(extensions.begin(), extensions.end(), [](auto& a, auto& b) { return a.order > b.order; });
      live.clear();
      for (std::size_t rank = 0; rank < extensions.size(); ++rank) {
        Hypothesis child = extensions[rank].hypothesis;
        if (child.tokens.back() != end_id && live.size() < size) {
          live.push_back(extensions[rank]);
        } else if (child.tokens.back() == end_id && rank < size) {
          child.tokens.pop_back();
          child.score = score(child.log_probability, child.tokens.size(), options.length_penalty);
          finished.push_back(child);
        }
      }
      double best = never;
      for (auto const& [child, order] : live) {
        ++uses[child.tokens.back()];
        best = std::max(best, score(child.log_probability, child.tokens.size(), options.length_penalty));
      }
      sort_by_score(finished);
      if (finished.size() >= size && (size == 1 || best <= finished[size - 1].score)) {
        live.clear();
      }
    }
  }
  std::vector<Hypothesis> results;
  for (auto const& group : groups) {
    for (Hypothesis const& found : group.finished) {
      if (std::ranges::find(results, found.tokens, &Hypothesis::tokens) == results.end()) {
        results.push_back(found);
      }
    }
  }
  sort_by_score(results);
  results.resize(std::min(results.size(), static_cast<std::size_t>(options.n_best)));
  return results;
}

TEST(DiverseBeamSearch, IsTheNaiveOne) {
  GenerationSample sample({.max_length = 24});
  auto const sources = sample_sources();
  for (auto const& [beam_size, groups] : {std::pair{4, 2}, {6, 3}, {4, 4}, {3, 1}}) {
    for (double const diversity : {0.3, 1.5}) {
      GenerationOptions const options{.beam_size = beam_size,
                                      .n_best = beam_size,
                                      .max_length = 8,
                                      .length_penalty = 0.6,
                                      .batch_tokens = 60,
                                      .beam_groups = groups,
                                      .diversity = diversity};
      auto const results = sample.generate(sources, options);
      for (std::size_t index = 0; index < sources.size(); ++index) {
        SCOPED_TRACE(std::to_string(beam_size) + " in " + std::to_string(groups) + " groups, sentence " +
                     std::to_string(index));
        auto const next = [&](Tokens const& tokens) { return sample.next_token(sources[index], tokens); };
        expect_same(results[index], naive_diverse_search(next, options), 1e-9);
      }
    }
  }
}

TEST(DiverseBeamSearch, WithoutDiversityIsABeamSearchOfAGroupsSize) {
  GenerationSample sample({.max_length = 24});
  auto const sources = sample_sources();
  auto const expected = sample.generate(sources, {.beam_size = 2, .n_best = 2, .max_length = 8});
  auto const found =
      sample.generate(sources, {.beam_size = 6, .n_best = 6, .max_length = 8, .beam_groups = 3, .diversity = 0});
  for (std::size_t index = 0; index < sources.size(); ++index) {
    ASSERT_GE(found[index].size(), 2U);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(found[index][rank].tokens, expected[index][rank].tokens);
    }
  }
}

TEST(DiverseBeamSearch, GroupsStartWithDifferentTokensWhereThatIsWorthMore) {
  GenerationSample sample({.max_length = 24});
  auto const results = sample.generate(
      sample_sources(), {.beam_size = 4, .n_best = 4, .max_length = 8, .beam_groups = 4, .diversity = 100});
  for (auto const& hypotheses : results) {
    std::set<std::int32_t> first;
    for (Hypothesis const& hypothesis : hypotheses) {
      first.insert(hypothesis.tokens.empty() ? end_id : hypothesis.tokens.front());
    }
    EXPECT_EQ(first.size(), hypotheses.size());
  }
}

}  // namespace
}  // namespace heddle
