#include "generation_sample.hpp"

namespace heddle {
namespace {

using namespace generation_sample;

/// Source token t may become t, t + 2 and t + 4, besides 5, which always is possible.
std::shared_ptr<Shortlist const> sample_shortlist(std::int32_t vocabulary) {
  Shortlist shortlist{.always = {5}};
  for (std::int32_t token = 0; token < vocabulary; ++token) {
    shortlist.translations.push_back({token, (token + 2) % vocabulary, (token + 4) % vocabulary});
  }
  return std::make_shared<Shortlist const>(shortlist);
}

TEST(Shortlist, HasTheEndFirstAndEveryOtherTokenOnceInOrder) {
  Shortlist const shortlist{{7, 2}, {{}, {9, 3}, {3, 1}}};
  EXPECT_THAT(shortlist.tokens(Tokens{2, 1, 1, 5}, Tokens{3}), ElementsAre(3, 1, 2, 7, 9));
  EXPECT_THAT(shortlist.tokens(Tokens{}, Tokens{7, 2}), ElementsAre(7, 2));
  EXPECT_THAT(Shortlist{}.tokens(Tokens{4}, Tokens{2}), ElementsAre(2));
}

/// The log-probabilities of the tokens of a shortlist relative to each other; -infinity for others.
std::vector<double> among(std::vector<double> next, Tokens const& shortlist) {
  double sum = 0;
  for (std::int32_t const token : shortlist) {
    sum += std::exp(next[static_cast<std::size_t>(token)]);
  }
  for (std::int32_t token = 0; token < std::ssize(next); ++token) {
    double& log_probability = next[static_cast<std::size_t>(token)];
    log_probability = std::ranges::count(shortlist, token) > 0 ? log_probability - std::log(sum)
                                                               : -std::numeric_limits<double>::infinity();
  }
  return next;
}

TEST(Shortlist, ASentenceIsSearchedInItsOwnTokensWhateverItsCompany) {
  GenerationSample sample({.vocabulary = 23, .max_length = 24});
  auto const sources = sample_sources();
  std::vector<std::size_t> order(sources.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::int64_t const beam_size : {1, 2, 4}) {
    for (std::int64_t const batch_tokens : {1, 20, 100000}) {
      GenerationOptions const options{.beam_size = beam_size,
                                      .n_best = beam_size,
                                      .max_length = 7,
                                      .length_penalty = 0.6,
                                      .batch_tokens = batch_tokens,
                                      .shortlist = sample_shortlist(sample.vocabulary())};
      auto const results = sample.stream(sources, options, order);
      for (std::size_t index = 0; index < sources.size(); ++index) {
        SCOPED_TRACE("beam " + std::to_string(beam_size) + ", sentence " + std::to_string(index));
        Tokens const shortlist = options.shortlist->tokens(sources[index], Tokens{end_id});
        auto const next = [&](Tokens const& tokens) {
          return among(sample.next_token(sources[index], tokens), shortlist);
        };
        expect_same(results[index],
                    beam_size == 1 ? naive_greedy_search(next, options) : naive_beam_search(next, options), 1e-9);
      }
    }
  }
}

TEST(Shortlist, OfManyBlocksOfTokensResultsDoNotDependOnTheCompany) {
  for (DType const dtype : {DType::float32, DType::float64}) {
    GenerationSample sample(
        {.vocabulary = 1100, .dtype = dtype, .kernels = dtype == DType::float32 ? "auto" : "reference"});
    auto const sources = sample_sources();
    GenerationOptions const options{
        .beam_size = 3, .n_best = 3, .max_length = 8, .shortlist = sample_shortlist(sample.vocabulary())};
    auto const together = sample.generate(sources, options);
    for (std::size_t index = 0; index < sources.size(); ++index) {
      expect_same(sample.generate({sources[index]}, options)[0], together[index], dtype == DType::float32 ? 1e-4 : 0);
    }
  }
}

TEST(Shortlist, OfAllTokensChangesNothing) {
  GenerationSample sample({.vocabulary = 600, .dtype = DType::float32, .kernels = "auto"});
  Shortlist all;
  all.always.resize(600);
  std::iota(all.always.begin(), all.always.end(), 0);
  GenerationOptions options{
      .beam_size = 4, .n_best = 4, .max_length = 8, .no_repeat_ngram = 2, .forbidden = {{7}, {9}}};
  auto const expected = sample.generate(sample_sources(), options);
  options.shortlist = std::make_shared<Shortlist const>(all);
  auto const found = sample.generate(sample_sources(), options);
  for (std::size_t index = 0; index < expected.size(); ++index) {
    expect_same(found[index], expected[index], 1e-4);
  }
}

TEST(Shortlist, AnEnsembleIsRankedOverItsTokens) {
  GenerationSample one({});
  GenerationSample two({.seed = 6});
  GenerationModel model = one.generation_model();
  model.weight = 0.25;
  model.others = {{&two.model(), 0.75}};
  GenerationOptions const options{
      .beam_size = 2, .n_best = 2, .max_length = 6, .shortlist = sample_shortlist(one.vocabulary())};
  auto const sources = sample_sources();
  auto const results = one.generate(model, sources, options);
  for (std::size_t index = 0; index < sources.size(); ++index) {
    Tokens const shortlist = options.shortlist->tokens(sources[index], Tokens{end_id});
    auto const next = [&](Tokens const& tokens) {
      auto mean = among(one.next_token(sources[index], tokens), shortlist);
      auto const of_two = among(two.next_token(sources[index], tokens), shortlist);
      std::ranges::transform(mean, of_two, mean.begin(), [](double a, double b) { return 0.25 * a + 0.75 * b; });
      return mean;
    };
    expect_same(results[index], naive_beam_search(next, options), 1e-9);
  }
}

TEST(Shortlist, NothingElseIsDrawnAndTheEndIsPossible) {
  GenerationSample sample({.vocabulary = 23});
  auto const shortlist = std::make_shared<Shortlist const>(Shortlist{.always = {4, 6}});
  GenerationOptions const options{.max_length = 6, .sampling = {.temperature = 3}, .shortlist = shortlist};
  std::size_t drawn = 0;
  for (auto const& hypotheses : sample.generate(std::vector<Tokens>(50, Tokens{4, 5}), options)) {
    for (std::int32_t const token : hypotheses.front().tokens) {
      EXPECT_TRUE(token == 4 || token == 6);
      ++drawn;
    }
  }
  EXPECT_GT(drawn, 20U);
  GenerationOptions const nothing{.beam_size = 2, .n_best = 2, .shortlist = std::make_shared<Shortlist const>()};
  EXPECT_THAT(sample.generate({{4, 5}}, nothing)[0].front().tokens, ElementsAre());
}

TEST(Shortlist, ATokenThatThereIsNotAndADecoderAloneAreRefused) {
  GenerationSample sample({});
  auto const with = [](Shortlist const& shortlist) {
    return GenerationOptions{.shortlist = std::make_shared<Shortlist const>(shortlist)};
  };
  expect_usage_error([&] { sample.generate({{4}}, with({{9}, {}})); }, "expected ids from 0 to 8");
  expect_usage_error([&] { sample.generate({{4}}, with({{}, {{-1}}})); }, "token -1 of a shortlist");
  GenerationSample decoder({.prompts = true});
  expect_config_error([&] { decoder.generate({{4}}, with({{4}, {}})); }, "a model that translates");
}

}  // namespace
}  // namespace heddle
