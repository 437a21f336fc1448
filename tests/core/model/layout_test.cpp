#include <heddle/core/model/built_in_layers.hpp>
#include <heddle/core/model/layout.hpp>

#include "golden_model.hpp"
#include "test.hpp"

namespace heddle {
namespace {

Config config_with(int pipeline, int data, int context, int tensor) {
  Config config;
  config.model.encoder.layers = 2;
  config.model.decoder.layers = 3;
  config.model.d_ff = 24;
  config.model.heads = 4;
  config.model.max_length = 64;
  config.parallel.pipeline = pipeline;
  config.parallel.data = data;
  config.parallel.context = context;
  config.parallel.tensor = tensor;
  return config;
}

Mesh mesh_of(Config const& config, int rank, int ranks) {
  return make_mesh(config, description_of(config.model), rank, ranks);
}

/// make_mesh's error message.
std::string refused(Config const& config, int ranks) {
  try {
    make_mesh(config, description_of(config.model), 0, ranks);
  } catch (ConfigError const& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_config);
    return error.what();
  }
  return "accepted";
}

TEST(Layout, AutoTakesWhatTheOtherAxesLeave) {
  Mesh const mesh = mesh_of(config_with(2, 0, 1, 2), 5, 8);
  EXPECT_EQ(mesh.size(MeshAxis::data), 2);
  EXPECT_EQ(mesh.coordinate(MeshAxis::tensor), 1);
  EXPECT_EQ(mesh.coordinate(MeshAxis::pipeline), 1);
}

TEST(Layout, AProductThatIsNotTheRanksIsRefusedWithLayoutsThatWork) {
  expect_contains(refused(config_with(2, 2, 1, 2), 4),
                  {"needs 8 ranks, but 4 run", "parallel.pipeline = 2, data = 1", "tensor = 2"});
  expect_contains(refused(config_with(1, 0, 1, 4), 6), "but 6 run");
}

TEST(Layout, MoreRanksThanCanBeCountedAreRefused) {
  expect_contains(refused(config_with(65536, 0, 65536, 1), 2), "with 2 ranks, these layouts work");
  expect_contains(refused(config_with(5, 1 << 20, 64, 4), 2), "needs 1342177280 ranks, but 2 run");
  Config many_heads = config_with(1, 1 << 20, 64, 64);
  many_heads.model.heads = 64;
  many_heads.model.d_ff = 64;
  expect_contains(refused(many_heads, 2), "needs at least 2147483647 ranks");
}

TEST(Layout, HeadsAndColumnsThatDoNotDivideAreRefusedWithNumbersThatWouldDo) {
  expect_contains(refused(config_with(1, 1, 1, 3), 3),
                  {"model.heads = 4 cannot be divided among parallel.tensor = 3, which may be 1, 2 and 4",
                   "with 3 ranks, these layouts work: parallel."});
  Config odd = config_with(1, 1, 1, 2);
  odd.model.d_ff = 21;
  expect_contains(refused(odd, 2), {"model.d_ff", "which may be 1, 3, 7 and 21"});
}

TEST(Layout, AProblemOfALayerNamesItsKeyAndPlace) {
  auto const refused_with = [](std::vector<std::string> const& overrides) {
    Config const config =
        parse_config("[model]\nd_model = 32\nheads = 4\nd_ff = 24\nencoder_layers = 2\n", "run.toml", overrides);
    return refused(config, config.parallel.tensor * config.parallel.context);
  };
  EXPECT_THAT(refused_with({"parallel.tensor=8"}), StartsWith("run.toml:3:1: model.heads = 4 cannot be divided"));
  EXPECT_THAT(refused_with({"parallel.tensor=2", "model.decoder.layer.1.heads=1"}),
              StartsWith("--set model.decoder.layer.1.heads=1: model.decoder.layer.1.heads = 1 cannot be divided among "
                         "parallel.tensor = 2, which may be 1"));
  EXPECT_THAT(refused_with({"parallel.tensor=2", "model.encoder.layer.1-2.d_ff=7"}),
              StartsWith("--set model.encoder.layer.1-2.d_ff=7: model.encoder.layer.1-2.d_ff = 7 cannot be divided"));
  EXPECT_THAT(refused_with({"parallel.context=4", "parallel.context_mode=ulysses", "model.decoder.heads=2"}),
              StartsWith("--set model.decoder.heads=2: model.decoder.heads = 2: in ulysses"));
  EXPECT_THAT(refused_with({"parallel.pipeline=9"}),
              StartsWith("--set parallel.pipeline=9: parallel.pipeline = 9 is more"));
  EXPECT_THAT(refused_with({"parallel.data=8"}),
              StartsWith("--set parallel.data=8: parallel.data: the layout pipeline 1 "));
}

TEST(Layout, KeysWithoutEffectAreNoted) {
  TaskRegistry tasks;
  register_tasks(tasks);
  Config const config =
      parse_config("[model]\nstacks = [\"decoder\"]\nmax_distance = 9\n[model.encoder]\ndropout = 0.2\n", "run.toml",
                   {"parallel.sequence_parallel=true", "train.mask_rate=0.2", "train.initialize_missing=[\"*\"]"});
  EXPECT_THAT(keys_without_effect(config, mesh_of(config, 0, 1), tasks.of(config)),
              ElementsAre("run.toml:5:1: model.encoder.dropout has no effect: model.stacks does not name its stack",
                          "run.toml:3:1: model.max_distance has no effect where model.positions is not \"relative\" or "
                          "\"relative_buckets\"",
                          "--set train.mask_rate=0.2: train.mask_rate has no effect where the task masks no tokens",
                          "--set train.initialize_missing=[\"*\"]: train.initialize_missing has no effect where "
                          "train.initialize_from is empty",
                          "--set parallel.sequence_parallel=true: parallel.sequence_parallel has no effect where "
                          "parallel.tensor is 1"));
  EXPECT_TRUE(keys_without_effect(Config(), mesh_of(Config(), 0, 1), tasks.of(Config())).empty());
}

TEST(Layout, KeysOfFrozenGroupsThatHaveNoEffectAreNoted) {
  TaskRegistry tasks;
  register_tasks(tasks);
  auto const notes = [&](std::string const& frozen) {
    Config const config = parse_config(
        "[optimizer]\nweight_decay = 0.1\n[optimizer.group.still]\n"
        "parameters = [\"encoder.*\"]\nlearning_rate_factor = 0.5\nname = \"sgd\"\n"
        "weight_decay = 0\n[optimizer.group.usual]\nparameters = [\"decoder.*\"]\n"
        "frozen = true\n",
        "run.toml", {"optimizer.group.still.frozen=" + frozen});
    return keys_without_effect(config, mesh_of(config, 0, 1), tasks.of(config));
  };
  EXPECT_TRUE(notes("false").empty());
  std::string const end = " has no effect where the group is frozen";
  EXPECT_THAT(notes("true"), ElementsAre("run.toml:5:1: optimizer.group.still.learning_rate_factor" + end,
                                         "run.toml:7:1: optimizer.group.still.weight_decay" + end,
                                         "run.toml:6:1: optimizer.group.still.name" + end));
}

TEST(Layout, MoreStagesThanLayersAreRefused) {
  expect_contains(refused(config_with(6, 1, 1, 1), 6), "with 6 ranks, these layouts work");
  Config interleaved = config_with(3, 1, 1, 1);
  interleaved.parallel.pipeline_schedule = PipelineSchedule::interleaved;
  EXPECT_NE(refused(interleaved, 3), "accepted") << "three stages, two encoder layers";
  EXPECT_EQ(refused(config_with(5, 1, 1, 1), 5), "accepted");
}

TEST(Layout, TheEncodersGridDividesTheRanksOfContextAndTensor) {
  Config config = config_with(1, 1, 2, 2);
  config.parallel.encoder_tensor = 4;
  EXPECT_EQ(refused(config, 4), "accepted");
  EXPECT_TRUE(shape_of(config.parallel).has_grids());
  Config again;
  set_shape(again.parallel, shape_of(config.parallel));
  EXPECT_EQ(again.parallel.encoder_tensor, 4);
  EXPECT_EQ(again.parallel.context, 2);
  config.parallel.encoder_tensor = 3;
  expect_contains(refused(config, 4), "does not divide the 4 ranks of context × tensor");
  config.parallel.encoder_tensor = 4;
  config.model.heads = 2;
  expect_contains(refused(config, 4), {"parallel.tensor = 4, which may be 1 and 2", "without parallel.encoder_tensor"});
  config.model.stacks = {"decoder"};
  expect_contains(refused(config, 4), "the model has no encoder beside its only stack");
}

TEST(Layout, UlyssesNeedsHeadsForEveryContextRank) {
  Config config = config_with(1, 1, 4, 2);
  EXPECT_EQ(refused(config, 8), "accepted");
  config.parallel.context_mode = ContextMode::ulysses;
  expect_contains(refused(config, 8), {"heads, 2 here", "parallel.context = 4"});
}

TEST(Layout, ALayerThatDoesNotDeclareAnAxisIsNamedWithIt) {
  LayerRegistry layers;
  register_built_in_layers(layers);
  auto const add = [&](char const* name, LayerCapabilities const& capabilities) {
    layers.add(name, [](LayerSpec const&) -> std::unique_ptr<Layer> { return nullptr; },
               {.capabilities = capabilities});
  };
  add("whole", {.tensor = false});
  add("rows", {.sequence = false});
  add("long", {.context = false});
  auto const problem = [&](char const* layer, MeshShape const& shape, bool sequence_parallel = false) {
    Config config = config_with(1, 1, 1, 1);
    config.parallel.sequence_parallel = sequence_parallel;
    config.model.decoder.overrides = {
        {{1, 2}, {{"sublayers", {std::vector<std::string>{"self_attention", layer}, ""}}}}};
    return layout_problem(config, describe_model(config.model, layers), shape, 64);
  };
  EXPECT_EQ(problem("whole", {1, 2, 2, 1}), "");
  expect_contains(problem("whole", {1, 1, 1, 2}),
                  "model.decoder.layer.2.sublayers: the layer whole (decoder.layers.1.whole) does not declare "
                  "support for parallel.tensor = 2");
  EXPECT_EQ(problem("rows", {1, 1, 1, 2}), "");
  expect_contains(problem("rows", {1, 1, 1, 2}, true), "support for parallel.sequence_parallel");
  expect_contains(problem("long", {1, 1, 2, 1}), "the layer long (decoder.layers.1.long)");
}

TEST(Layout, OptionsThatCannotBeSplitAreNamedWithLayoutsThatWork) {
  auto const with_option = [](char const* option, std::int64_t value, int context, int tensor) {
    Config config = config_with(1, 1, context, tensor);
    config.model.decoder.overrides = {{{2, 3}, {{option, {value, "run.toml:8:1"}}}}};
    return config;
  };
  expect_contains(refused(with_option("self_attention.kv_heads", 2, 1, 4), 4),
                  {"run.toml:8:1: model.decoder.layer.3.self_attention.kv_heads = 2 cannot be divided among "
                   "parallel.tensor = 4, which may be 1 and 2 (decoder.layers.2.self_attention)",
                   "with 4 ranks, these layouts work: parallel."});
  EXPECT_EQ(refused(with_option("self_attention.kv_heads", 2, 1, 2), 2), "accepted");
  Config one_key_head = with_option("cross_attention.kv_heads", 1, 2, 1);
  EXPECT_EQ(refused(one_key_head, 2), "accepted");
  one_key_head.parallel.context_mode = ContextMode::ulysses;
  expect_contains(refused(one_key_head, 2),
                  {"run.toml:8:1: model.decoder.layer.3.cross_attention.kv_heads = 1: in ulysses each context "
                   "rank computes some of a tensor rank's heads",
                   "parallel.context_mode = \"ring\"", "with 2 ranks, these layouts work: parallel."});
  EXPECT_EQ(refused(with_option("self_attention.window", 8, 2, 1), 2), "accepted");
  EXPECT_EQ(refused(with_option("self_attention.window", 8, 1, 2), 2), "accepted");
}

TEST(Layout, ExpertsThatReplicasCannotDivideAreNamed) {
  auto const with_experts = [](std::int64_t experts, int expert) {
    Config config = config_with(1, 2, 2, 1);
    config.parallel.expert = expert;
    if (experts > 0) {
      config.model.decoder.overrides = {
          {{1, 2},
           {{"sublayers", {std::vector<std::string>{"self_attention", "mixture_of_experts"}, ""}},
            {"mixture_of_experts.experts", {experts, "run.toml:9:1"}}}}};
    }
    return config;
  };
  EXPECT_EQ(refused(with_experts(8, 4), 4), "accepted");
  expect_contains(refused(with_experts(6, 4), 4),
                  {"run.toml:9:1: model.decoder.layer.2.mixture_of_experts.experts = 6 is not a multiple of "
                   "parallel.expert = 4"});
  expect_contains(refused(with_experts(6, 3), 4),
                  {"parallel.expert = 3 does not divide the 4 ranks of data × context"});
  Config shards = config_with(1, 4, 1, 1);
  shards.parallel.shard_parameters = true;
  shards.parallel.shard_ranks = 2;
  EXPECT_EQ(refused(shards, 4), "accepted");
  shards.parallel.shard_ranks = 3;
  expect_contains(refused(shards, 4), {"parallel.shard_ranks = 3 does not divide the 4 ranks of data × context"});
  shards.parallel.shard_ranks = 1;
  expect_contains(refused(shards, 4), {"parallel.shard_ranks = 1: a rank alone divides nothing"});
  expect_contains(refused(with_experts(0, 2), 4), {"parallel.expert = 2: no layer of the model has experts"});
}

TEST(Layout, AModelSaysWhetherItCanGenerate) {
  ModelConfig config = config_with(1, 1, 1, 1).model;
  config.d_model = 16;
  config.decoder.settings = {{"self_attention.mask", {std::string("bidirectional"), "test"}}};
  TestModel const test(config, {11, 11, true}, DType::float32);
  EXPECT_THAT(test.model.no_generation_reason(), testing::Optional(HasSubstr("self_attention.mask")));
}

TEST(Layout, AContextGroupLongerThanTheLongestSequenceIsRefused) {
  Config config = config_with(1, 1, 4, 1);
  Mesh const mesh = mesh_of(config, 0, 4);
  EXPECT_NO_THROW(require_long_enough(config, description_of(config.model), mesh, 4, 4));
  EXPECT_THROW(require_long_enough(config, description_of(config.model), mesh, 4, 3), ConfigError);
  config.model.max_length = 3;
  expect_contains(refused(config, 4), "at most 3");
}

TEST(Layout, WithSeparateVocabulariesItIsSaidWhatIsTied) {
  auto const noted = [](ModelConfig const& model, VocabularySizes const& vocabulary) {
    return tied_tables(description_of(model), vocabulary);
  };
  ModelConfig const model = parse_config("[model]\ntie_embeddings = true\n", "run.toml").model;
  EXPECT_EQ(noted(model, {30, 40, false}),
            "run.toml:2:1: model.tie_embeddings = true with separate vocabularies: decoder.embedding.weight is the "
            "decoder's embedding and the output projection; the encoder has an embedding of its own, "
            "encoder.embedding.weight");
  EXPECT_EQ(noted(model, {30, 30, true}), "");
  EXPECT_EQ(noted(parse_config("", "", {"model.tie_embeddings=false"}).model, {30, 40, false}), "");
  EXPECT_EQ(noted(parse_config("", "", {"model.stacks=[\"decoder\"]"}).model, {30, 40, false}), "");
}

}  // namespace
}  // namespace heddle
