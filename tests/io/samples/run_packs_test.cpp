#include <heddle/io/samples/run_packs.hpp>
#include <random>

#include "test.hpp"

namespace heddle {
namespace {

constexpr SideIds ids{.source = {.end = 2}, .target = {.begin = 1, .end = 2}};

/// Pairs of 2 to `longest` tokens a side.
MemorySamples random_samples(int seed, int pairs, int longest) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::uniform_int_distribution<int> length(1, longest - 1);
  std::vector<Sample> made;
  for (int pair = 0; pair < pairs; ++pair) {
    made.push_back({pair, std::vector<std::int32_t>(static_cast<std::size_t>(length(random)), 5),
                    std::vector<std::int32_t>(static_cast<std::size_t>(length(random)), 5)});
  }
  return {std::move(made), ids};
}

Config config_of(std::int64_t batch_tokens, std::int64_t micro_batch_tokens) {
  Config config;
  config.model.max_length = 64;
  config.train.steps = 6;
  config.train.batch_tokens = batch_tokens;
  config.train.micro_batch_tokens = micro_batch_tokens;
  config.train.validate_every = 1;
  return config;
}

std::int64_t longer(PackSize const& size) {
  return std::max(size.source, size.target);
}

std::int64_t max_rows(std::vector<Pack> const& packs) {
  std::int64_t max = 0;
  for (Pack const& pack : packs) {
    max = std::max({max, pack.source_rows.tokens, pack.target_rows.tokens});
  }
  return max;
}

/// The micro-batches of some batches on a rank, as a run cuts them.
template <class Visit>
void for_each_micro_batch(SampleSource const& samples, Config const& config, Mesh const& mesh, Visit const& visit) {
  auto const member = [&](MeshAxis axis) { return GroupMember{mesh.coordinate(axis), mesh.size(axis)}; };
  BatchPlanner planner(samples, {.batch_tokens = config.train.batch_tokens, .max_length = config.model.max_length}, 1);
  for (std::int64_t step = 0; step < config.train.steps; ++step) {
    SampledMicroBatches const cut(samples, planner.next(),
                                  {.max_tokens = config.train.micro_batch_tokens,
                                   .data = member(MeshAxis::data),
                                   .equal = mesh.size(MeshAxis::pipeline) > 1,
                                   .context = member(MeshAxis::context)});
    for (std::int64_t index = 0; index < cut.count(); ++index) {
      visit(cut.size(index));
    }
  }
}

// A data rank's share is whole samples, and so are the equal parts into which a pipeline cuts it: both can have more
// tokens than batch_tokens / data and micro_batch_tokens.
TEST(RunPacksTest, NoMicroBatchIsLargerThanItsBound) {
  int beyond_the_mean = 0;
  for (int seed = 0; seed < 20; ++seed) {
    MemorySamples const samples = random_samples(seed, 300, 40);
    for (std::int64_t const batch_tokens : {30, 250, 1500}) {
      for (std::int64_t const micro_batch_tokens : {16, 100, 4096}) {
        for (MeshShape const& sizes : {MeshShape(1, 1, 1, 1), MeshShape(1, 5, 1, 1), MeshShape(3, 2, 1, 1)}) {
          Config const config = config_of(batch_tokens, micro_batch_tokens);
          for (int rank = 0; rank < sizes.ranks(); ++rank) {
            Mesh const mesh(sizes, rank, sizes.ranks());
            RunPacks const packs({.config = config, .training = samples, .listed = false});
            std::int64_t const bound = max_rows(packs.largest(config, mesh).training);
            for_each_micro_batch(samples, config, mesh, [&](PackSize const& size) {
              ASSERT_LE(longer(size), bound) << "seed " << seed << ", batch " << batch_tokens << ", micro-batch "
                                             << micro_batch_tokens << ", " << mesh.to_string();
              beyond_the_mean +=
                  longer(size) > std::min((batch_tokens + sizes.size(MeshAxis::data) - 1) / sizes.size(MeshAxis::data),
                                          micro_batch_tokens);
            });
          }
        }
      }
    }
  }
  EXPECT_GT(beyond_the_mean, 100);
}

// For a short run the real micro-batches are known on every rank, with the parts of short samples of context ranks.
TEST(RunPacksTest, ListsTheLargestMicroBatchesOfAShortRun) {
  MemorySamples const samples = random_samples(1, 300, 9);
  Config config = config_of(400, 90);
  config.train.steps = RunPacks::max_steps_in_order + 1;
  RunPacks const packs({.config = config, .training = samples});
  for (int rank = 0; rank < 6; ++rank) {
    Mesh const mesh({1, 2, 3, 1}, rank, 6);
    PlannedPacks const planned = packs.largest(config, mesh);
    std::int64_t source = 0;
    std::int64_t target = 0;
    for_each_micro_batch(samples, config, mesh, [&](PackSize const& size) {
      source = std::max(source, size.source);
      target = std::max(target, size.target);
    });
    auto const has = [&](auto const& rows) { return std::ranges::max(planned.training, {}, rows); };
    EXPECT_EQ(has([](Pack const& pack) { return pack.source_rows.tokens; }).source_rows.tokens, source);
    EXPECT_EQ(has([](Pack const& pack) { return pack.target_rows.tokens; }).target_rows.tokens, target);
    EXPECT_THAT(planned.validation, IsEmpty());
  }
}

TEST(RunPacksTest, HasTheMicroBatchesOfAFewStepsInOrder) {
  MemorySamples const samples = random_samples(1, 300, 30);
  MemorySamples const valid = random_samples(2, 100, 30);
  Config const config = config_of(400, 90);
  RunPacks const packs({.config = config, .training = samples, .validation = {&valid}});
  Mesh const mesh({2, 2, 1, 1}, 1, 4);
  PlannedPacks const planned = packs.largest(config, mesh);
  EXPECT_EQ(std::ssize(planned.steps), config.train.steps);
  EXPECT_TRUE(planned.training.empty());
  std::vector<Pack> all;
  for (std::vector<Pack> const& step : planned.steps) {
    all.insert(all.end(), step.begin(), step.end());
  }
  std::size_t place = 0;
  for_each_micro_batch(samples, config, mesh, [&](PackSize const& size) {
    ASSERT_LT(place, all.size());
    EXPECT_EQ(all[place].source_rows.tokens, size.source);
    EXPECT_EQ(all[place++].target_rows.tokens, size.target);
  });
  EXPECT_EQ(place, all.size());
  EXPECT_GT(planned.validation.size(), 5U);
}

TEST(RunPacksTest, ValidationIsNotDividedByBatches) {
  MemorySamples const samples = random_samples(1, 300, 30);
  MemorySamples const valid = random_samples(2, 100, 30);
  Config config = config_of(80, 4096);
  RunPacks const packs({.config = config, .training = samples, .validation = {&valid}});
  auto const validated = [&](int rank) {
    return max_rows(packs.largest(config, Mesh({1, 2, 1, 1}, rank, 2)).validation);
  };
  EXPECT_LE(std::max(validated(0), validated(1)), 512);
  EXPECT_GT(std::min(validated(0), validated(1)), 400) << "parts of 512 tokens, as validation_cut makes them";
  config.train.micro_batch_tokens = 100;
  EXPECT_LE(validated(0), 100);
  EXPECT_GT(validated(0), 60);
  config.train.validate_every = 0;
  EXPECT_EQ(validated(0), 0);
}

TEST(RunPacksTest, EachValidationSetIsCutByItself) {
  MemorySamples const samples = random_samples(1, 300, 30);
  MemorySamples const small = random_samples(2, 20, 9);
  MemorySamples const large = random_samples(3, 100, 30);
  Config const config = config_of(80, 4096);
  auto const validated = [&](std::vector<SampleSource const*> const& sets) {
    RunPacks const packs({.config = config, .training = samples, .validation = sets});
    return packs.largest(config, Mesh({1, 1, 1, 1}, 0, 1)).validation;
  };
  EXPECT_EQ(validated({&small}).size(), 1U);
  EXPECT_EQ(validated({&small, &large}).size(), 1 + validated({&large}).size()) << "their samples are not mixed";
  EXPECT_EQ(max_rows(validated({&small, &large})), max_rows(validated({&large})));
  EXPECT_EQ(max_rows(validated({&large, &small})), max_rows(validated({&large})));
  // The bounds where nothing is listed: the larger set's.
  RunPacks const bounds({.config = config, .training = samples, .validation = {&large, &small}, .listed = false});
  EXPECT_GE(max_rows(bounds.largest(config, Mesh({1, 1, 1, 1}, 0, 1)).validation), max_rows(validated({&large})));
}

TEST(LargestPacksTest, KeepsThoseThatAreLargestOnASide) {
  LargestPacks largest;
  EXPECT_TRUE(largest.places().empty());
  largest.add({.source = 9, .target = 5, .whole = 14}, 4);
  largest.add({.source = 1, .target = 1, .whole = 2}, 5);
  largest.add({.source = 8, .target = 8, .whole = 16}, 6);
  largest.add({.source = 5, .target = 9, .whole = 14}, 7);
  EXPECT_THAT(largest.places(), ElementsAre(4, 6, 7));
}

}  // namespace
}  // namespace heddle
