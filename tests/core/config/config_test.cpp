#include <heddle/core/config/config.hpp>

#include "test.hpp"

namespace heddle {
namespace {

/// The error message for `text` with `overrides`.
std::string refusal(std::string const& text, std::vector<std::string> const& overrides = {}) {
  try {
    static_cast<void>(parse_config(text, "run.toml", overrides));
  } catch (ConfigError const& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_config);
    return error.what();
  }
  return "accepted";
}

TEST(Config, ReadsEveryKindOfKey) {
  Config const config = parse_config(R"(
    [run]
    directory = "runs/m30k"
    [model]
    norm = "pre"
    activation = "gelu"
    tie_embeddings = false
    dropout = 0.3
    max_length = 64
    encoder_sublayers = ["self_attention", "gated_feed_forward"]
    [train]
    batch_tokens = 2048
    seed = 0
    [optimizer]
    schedule = "cosine"
    epsilon = 1e-8
    clip_norm = 1
    [parallel]
    tensor = 2
    data = 4
    pipeline_schedule = "interleaved"
    stage_layers = [1, 2]
    [kernels]
    gemm = "reference"
    [plugins]
    paths = ["a.so", "b.so"])",
                                     "run.toml");
  EXPECT_EQ(config.run.directory, "runs/m30k");
  EXPECT_EQ(config.model.norm, NormPlacement::pre);
  EXPECT_EQ(config.model.activation, "gelu");
  EXPECT_FALSE(config.model.tie_embeddings);
  EXPECT_EQ(config.model.dropout, 0.3);
  EXPECT_EQ(config.model.encoder.sublayers, (std::vector<std::string>{"self_attention", "gated_feed_forward"}));
  EXPECT_EQ(config.model.d_model, ModelConfig{}.d_model);
  EXPECT_EQ(config.train.batch_tokens, 2048);
  EXPECT_EQ(config.train.micro_batch_tokens, 2048) << "not given: no more than a batch";
  EXPECT_EQ(config.train.seed, 0U);
  EXPECT_EQ(config.optimizer.schedule, "cosine");
  EXPECT_EQ(config.optimizer.options.at("epsilon").value, OptionValue(1e-8));
  EXPECT_EQ(config.optimizer.clip_norm, 1.0) << "an integer will do for a number";
  EXPECT_EQ(config.parallel.tensor, 2);
  EXPECT_EQ(config.parallel.data, 4);
  EXPECT_EQ(config.parallel.pipeline_schedule, PipelineSchedule::interleaved);
  EXPECT_EQ(config.parallel.stage_layers, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(config.kernels.of("gemm"), "reference");
  EXPECT_EQ(config.kernels.of("attention"), "auto");
  EXPECT_EQ(config.plugins.paths, (std::vector<std::string>{"a.so", "b.so"}));
}

TEST(Config, AnEmptyTextIsTheDefaults) {
  EXPECT_EQ(parse_config("", "run.toml"), Config{});
}

TEST(Config, PrintsWhatItReadsBackUnchanged) {
  EXPECT_EQ(parse_config(to_toml(Config{}), "defaults"), Config{});
  Config config;
  config.run.directory = "a \"quoted\" \\ path\nwith\ttwo lines, ümlaut";
  config.model.norm = NormPlacement::pre;
  config.model.dropout = 0.1 + 0.2;
  config.train.precision = Precision::bfloat16;
  config.train.seed = 9007199254740992ULL;
  config.optimizer.name = "adamw";
  config.optimizer.learning_rate = 3;
  config.optimizer.options["epsilon"] = {1e-300, "", ""};
  config.parallel.data = 3;
  config.parallel.context_mode = ContextMode::ulysses;
  config.parallel.stage_layers = {3, 1, 2};
  config.plugins.paths = {"one.so", "two \"2\".so"};
  config.plugins.sha256 = {"", std::string(64, 'e')};
  EXPECT_EQ(parse_config(to_toml(config), "printed"), config);
  Config other = config;
  other.kernels.choose("tensor_ops", "reference");
  EXPECT_FALSE(other == config);
}

TEST(Config, UnknownKeysAndSectionsNameTheirPlaceAndTheNearestSpelling) {
  EXPECT_EQ(refusal("[model]\nd_modle = 8\n"),
            "run.toml:2:1: there is no key model.d_modle; did you mean model.d_model?");
  EXPECT_EQ(refusal("\n[modle]\nd_model = 8\n"), "run.toml:2:2: there is no section [modle]; did you mean model?");
  EXPECT_EQ(refusal("[model]\nsteps = 8\n"), "run.toml:2:1: there is no key model.steps; did you mean train.steps?");
  EXPECT_EQ(refusal("steps = 8\n"), "run.toml:1:1: there is no section [steps]; did you mean the key train.steps?");
  expect_contains(refusal("[checkpoint]\ncompression_level = 1\n"), "expected one of: every_steps, keep");
  expect_contains(refusal("model = 3\n"), "run.toml:1:1: model is the integer 3; expected a section: [model]");
}

TEST(Config, WrongTypesSayWhichWouldBeRight) {
  EXPECT_EQ(refusal("[train]\n  steps = \"many\""),
            "run.toml:2:3: train.steps is the string \"many\"; expected an integer, 1 to 2147483647");
  EXPECT_EQ(refusal("[train]\nsteps = 1.5"),
            "run.toml:2:1: train.steps is the number 1.5; expected an integer, 1 to 2147483647");
  expect_contains(refusal("[train]\ndeterministic = 1"), "the integer 1; expected true or false");
  expect_contains(refusal("[optimizer]\nlearning_rate = true"), "the boolean true; expected a number");
  expect_contains(refusal("[run]\ndirectory = 2024-01-01"), "a date or time; expected a string");
  expect_contains(refusal("[plugins]\npaths = \"a.so\""), "the string \"a.so\"; expected a list of strings");
  expect_contains(refusal("[plugins]\npaths = [1]"),
                  "a list whose element 1 is the integer 1; expected a list of strings");
  expect_contains(refusal("[model.d_model]\nx = 1"), "model.d_model is a table; expected an integer");
}

TEST(Config, ValuesOutOfRangeSayTheRange) {
  expect_contains(refusal("[model]\ndropout = 1.0"), "the number 1.0; expected a number, at least 0 and below 1");
  expect_contains(refusal("[model]\ndropout = -0.1"), "at least 0 and below 1");
  expect_contains(refusal("[model]\nheads = 0"), "the integer 0; expected an integer, 1 to 4096");
  expect_contains(refusal("[model]\nnorm_epsilon = 0.0"), "expected a number, above 0");
  expect_contains(refusal("[optimizer]\nlearning_rate = nan"), "expected a number, at least 0");
  expect_contains(refusal("[optimizer]\nlearning_rate = inf"), "expected a number, at least 0");
  expect_contains(refusal("[parallel]\ntensor = 4294967297"), "expected an integer, 1 to 1048576");
  expect_contains(refusal("[parallel]\ndata = \"all\""), "expected an integer, 1 to 1048576, or \"auto\"");
  expect_contains(refusal("[parallel]\ndata = 0"), "or \"auto\"");
  expect_contains(refusal("[train]\nseed = -1"), "expected an integer, 0 to 9007199254740992");
  expect_contains(refusal("[model]\npositions = \"absolute\""),
                  "expected \"sinusoidal\" or \"learned\" or \"none\" or \"rotary\" or \"relative\"");
  expect_contains(refusal("[model]\nmax_distance = 0"), "expected an integer, 1 to 1048576");
  expect_contains(refusal("[model]\noutput_bias = 1"), "the integer 1; expected true or false");
  expect_contains(refusal("[model.decoder]\nbiases = \"no\""), "the string \"no\"; expected true or false");
  expect_contains(refusal("[model]\nactivation = \"\""), "expected a non-empty string");
  expect_contains(refusal("[train]\nsteps = 2147483648"), "expected an integer, 1 to 2147483647");
  expect_contains(refusal("[parallel]\nstage_layers = [2, 0]"),
                  "parallel.stage_layers is a list whose element 2 is the integer 0; expected a list of "
                  "integers, each 1 to 8192");
  expect_contains(refusal("[parallel]\nstage_layers = [2, \"3\"]"),
                  "element 2 is the string \"3\"; expected a list of integers");
  expect_contains(refusal("[model.encoder]\nsublayers = [\"a\", 2]"),
                  "model.encoder.sublayers is a list whose element 2 is the integer 2; expected a non-empty list");
  EXPECT_EQ(refusal("[model]\nencoder_sublayers = []"),
            "run.toml:2:1: model.encoder_sublayers is an empty list; expected a non-empty list of non-empty "
            "strings");
}

TEST(Config, SublayersOccurOnce) {
  EXPECT_EQ(refusal("[model]\ndecoder_sublayers = [\"a\", \"b\", \"a\"]"),
            "run.toml:2:1: model.decoder_sublayers names \"a\" twice; each sublayer may occur once in a layer");
  expect_contains(refusal("[model]\nencoder_sublayers = [\"b\", \"b\"]"), "model.encoder_sublayers names \"b\"");
}

TEST(Config, LayersOfAStackMayDiffer) {
  Config const config =
      parse_config(R"(
    [model.encoder]
    layers = 3
    activation = "gelu"
    [model.decoder.layer."4-6"]
    self_attention = { head_dim = 32 }
    d_ff = 64
    [model.decoder.layer.2]
    sublayers = ["self_attention"])",
                   "run.toml", {"model.decoder.layer.\"4-6\".activation=swiglu", "model.decoder.self_attention.x=1"});
  ModelConfig const& model = config.model;
  EXPECT_EQ(model.encoder.layers, 3);
  EXPECT_EQ(layer_config(model, &ModelConfig::encoder, 2).activation, "gelu");
  ASSERT_EQ(model.decoder.overrides.size(), 2U);
  EXPECT_EQ(model.decoder.overrides[1].layers, (IndexRange{3, 6})) << "ranges are in order";
  EXPECT_EQ(layer_config(model, &ModelConfig::decoder, 3).activation, "swiglu");
  EXPECT_EQ(layer_config(model, &ModelConfig::decoder, 3).d_ff, 64);
  EXPECT_EQ(layer_config(model, &ModelConfig::decoder, 2).activation, "relu");
  EXPECT_EQ(layer_config(model, &ModelConfig::decoder, 1).decoder.sublayers,
            std::vector<std::string>{"self_attention"});
  LayerOptions const options = layer_options(model.decoder, "decoder", 5, "self_attention");
  EXPECT_EQ(options.integer("head_dim", 0), 32);
  EXPECT_EQ(options.integer("x", 0), 1) << "of the whole stack";
  EXPECT_EQ(options.place("x"), "--set model.decoder.self_attention.x=1: model.decoder.self_attention.x");
  EXPECT_EQ(options.place("y"), "model.decoder.self_attention.y");
  EXPECT_EQ(options.place("head_dim"), "run.toml:6:24: model.decoder.layer.4-6.self_attention.head_dim");
  EXPECT_EQ(layer_options(model.decoder, "decoder", 0, "self_attention").integer("head_dim", 7), 7);
  EXPECT_EQ(parse_config(to_toml(config), "printed"), config);
}

TEST(Config, WrongLayersOfAStackNameTheirPlace) {
  EXPECT_EQ(refusal("[model.decoder.layer.\"1-3\"]\nd_ff = 8\n[model.decoder.layer.\"3-4\"]\nd_ff = 8"),
            "run.toml:3:22: model.decoder.layer.3-4 overlaps model.decoder.layer.1-3 (run.toml:1:22); a layer may "
            "be in one range");
  EXPECT_EQ(refusal("[model.decoder.layer.\"4-6\"]\nd_ff = 8", {"model.decoder.layer.1-4.d_ff=8"}),
            "--set model.decoder.layer.1-4.d_ff=8: model.decoder.layer.1-4 overlaps model.decoder.layer.4-6 "
            "(run.toml:1:22); a layer may be in one range");
  expect_contains(refusal("[model.decoder.layer.\"5-7\"]\nd_ff = 8"),
                  "run.toml:1:22: model.decoder.layer.5-7 names layers that the decoder does not have: it has 6");
  for (std::string const range : {"0", "x", "3-2"}) {
    std::string const key = "model.decoder.layer." + range;
    EXPECT_THAT(refusal("[model]\nd_ff = 8", {key + ".dropout=0.5"}),
                StartsWith("--set " + key + ".dropout=0.5: " + key + " does not name layers; expected one number"));
  }
  EXPECT_EQ(refusal("[model]\ndecoder_layers = 0\n[model.decoder.layer.1]\nd_ff = 8"),
            "run.toml:3:22: model.decoder.layer.1 names layers that the decoder does not have: it has 0");
  expect_contains(refusal("[model.decoder.layer.\"0\"]\nd_ff = 8"), "does not name layers");
  expect_contains(refusal("[model.decoder.layer.\"3-2\"]\nd_ff = 8"), "does not name layers");
  EXPECT_EQ(refusal("[model.decoder]\nactivaton = \"gelu\""),
            "run.toml:2:1: there is no key model.decoder.activaton; did you mean model.decoder.activation?");
  EXPECT_EQ(
      refusal("[model.decoder]\nrotary = 3"),
      "run.toml:2:1: there is no key model.decoder.rotary; expected one of: d_model, d_ff, heads, biases, activation, "
      "dropout, attention_dropout, activation_dropout, norm_kind, norm_epsilon, recompute, tied_layers, input, "
      "layers, sublayers, layer, or an option of a sublayer in its table, such as self_attention = { rotary = 3 }");
  EXPECT_EQ(refusal("[model.decoder.layer.4]\nd_model = 8"),
            "run.toml:2:1: there is no key model.decoder.layer.4.d_model; did you mean model.d_model?");
  expect_contains(refusal("[model.decoder]\nself_attention = 3"), "self_attention = { window = 64 }");
  expect_contains(refusal("[model.decoder.layr.4]\nd_ff = 3"),
                  "model.decoder.layr.4 is a table; expected a boolean, a number, a string or a list");
  expect_contains(refusal("", {"model.self_attention.kv_heads=2"}),
                  "an option of a sublayer, as in [model.decoder] self_attention = { window = 64 }");
  expect_contains(refusal("", {"model.kv_heads=2"}),
                  "an option of a sublayer, as in [model.decoder] self_attention = { kv_heads = 2 }");
  EXPECT_EQ(refusal("", {"model.decoder.layer.1.rotary=\"a: b\""}).substr(0, 88),
            "--set model.decoder.layer.1.rotary=\"a: b\": there is no key model.decoder.layer.1.rotary;");
  EXPECT_EQ(refusal("[model.decoder.layer.\"4\"]\nd_ff = \"wide\""),
            "run.toml:2:1: model.decoder.layer.4.d_ff is the string \"wide\"; expected an integer, 1 to 1048576");
  EXPECT_EQ(refusal("", {"model.encoder.layer.2.dropout=2"}),
            "--set model.encoder.layer.2.dropout=2: model.encoder.layer.2.dropout is the integer 2; expected a number, "
            "at least 0 and below 1");
  expect_contains(refusal("[model]\nencoder_layers = 2\n[model.encoder]\nlayers = 2"),
                  "run.toml:2:1: model.encoder_layers is also given as model.encoder.layers (run.toml:4:1)");
  expect_contains(refusal("[model.encoder]\nsublayers = [\"a\", \"a\"]"), "names \"a\" twice");
  expect_contains(refusal("[model]\nencoder = 3"), "model.encoder is the integer 3; expected a section");
}

TEST(Config, AnOverrideReplacesEitherSpellingOfAStacksKey) {
  auto const layers = [](std::string const& text, std::vector<std::string> const& overrides) {
    return parse_config("[model]\n" + text, "run.toml", overrides).model.decoder.layers;
  };
  EXPECT_EQ(layers("decoder_layers = 3", {"model.decoder.layers=0"}), 0);
  EXPECT_EQ(layers("[model.decoder]\nlayers = 3", {"model.decoder_layers=4"}), 4);
  EXPECT_EQ(layers("decoder_layers = 3", {"model.decoder={layers = 5}"}), 5);
  EXPECT_EQ(layers("", {"model.decoder.layers=2", "model.decoder_layers=1"}), 1) << "the last one wins";
  EXPECT_EQ(layers("", {"model.decoder_layers=1", "model.decoder.layers=2"}), 2);
  std::vector<std::string> const sublayers{"self_attention"};
  EXPECT_EQ(
      parse_config("[model]\nencoder_sublayers = [\"a\"]", "run.toml", {"model.encoder.sublayers=[\"self_attention\"]"})
          .model.encoder.sublayers,
      sublayers);
}

TEST(Config, KeysRememberWhereTheyWereGiven) {
  ModelConfig const model =
      parse_config("[model]\nd_ff = 64\nencoder_layers = 2\n[model.decoder]\nlayers = 3\nheads = 4\n", "run.toml",
                   {"model.decoder.layer.2-3.heads=1", "model.encoder.layer.1.sublayers=[\"feed_forward\"]"})
          .model;
  EXPECT_EQ(model.place("heads"), "model.heads") << "not given";
  EXPECT_EQ(model.place("d_ff"), "run.toml:2:1: model.d_ff");
  EXPECT_EQ(model.place("decoder_layers"), "run.toml:5:1: model.decoder.layers");
  EXPECT_EQ(model.place("encoder_layers"), "run.toml:3:1: model.encoder_layers");
  ModelConfig const first = layer_config(model, &ModelConfig::decoder, 0);
  EXPECT_EQ(first.place("heads"), "run.toml:6:1: model.decoder.heads");
  EXPECT_EQ(first.place("d_ff"), "run.toml:2:1: model.d_ff");
  EXPECT_EQ(first.place("sublayers"), "model.decoder_sublayers");
  EXPECT_EQ(layer_config(model, &ModelConfig::decoder, 1).place("heads"),
            "--set model.decoder.layer.2-3.heads=1: model.decoder.layer.2-3.heads");
  EXPECT_EQ(layer_config(model, &ModelConfig::encoder, 0).place("sublayers"),
            "--set model.encoder.layer.1.sublayers=[\"feed_forward\"]: model.encoder.layer.1.sublayers");
  ModelConfig elsewhere = model;
  elsewhere.places = {};
  EXPECT_EQ(elsewhere, model) << "places are not part of the value";
}

TEST(Config, KeysOfAStackThatTheModelDoesNotHaveAreFound) {
  std::string const text = "[model]\nencoder_layers = 2\n[model.encoder.layer.1]\nd_ff = 8\n";
  EXPECT_TRUE(places_of_absent_stacks(parse_config(text, "run.toml").model).empty());
  Config const decoder =
      parse_config(text, "run.toml", {"model.stacks=[\"decoder\"]", "model.encoder.self_attention.window=3"});
  EXPECT_THAT(places_of_absent_stacks(decoder.model),
              ElementsAre("run.toml:2:1: model.encoder_layers",
                          "--set model.encoder.self_attention.window=3: model.encoder.self_attention.window",
                          "run.toml:4:1: model.encoder.layer.1.d_ff"));
}

TEST(Config, AModelMayHaveOneStackAndAStackNoLayers) {
  Config const decoder = parse_config("[model]\nstacks = [\"decoder\"]", "run.toml");
  EXPECT_EQ(decoder.model.decoder.sublayers, (std::vector<std::string>{"self_attention", "feed_forward"}))
      << "nothing to attend to but itself";
  EXPECT_EQ(parse_config(to_toml(decoder), "printed"), decoder);
  EXPECT_EQ(refusal("[model]\nencoder_layers = 0"), "accepted");
  expect_contains(refusal("[model]\nstacks = [\"decoder\", \"encoder\"]"), "model.stacks is");
  EXPECT_EQ(refusal("[model]\nstacks = [\"encoder\"]\n[model.encoder]\nlayers = 0"),
            "run.toml:4:1: model.encoder.layers = 0: the model has no layer");
}

TEST(Config, DifferencesAreKeysWithTheirValues) {
  Config const before;
  Config after = before;
  after.train.steps = 7;
  after.parallel.data = 2;
  after.model.decoder.overrides = {{{3, 6}, {{"activation", {std::string("gelu"), "run.toml:3:1"}}}}};
  std::vector<ConfigDifference> const found = differences(before, after);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].key, "model.decoder.layer.4-6.activation");
  EXPECT_EQ(found[0].before, "\"relu\"") << "inherited from [model]";
  EXPECT_EQ(found[0].after, "\"gelu\"");
  EXPECT_EQ(found[1].key + found[1].before + found[1].after, "train.steps1000007");
  EXPECT_EQ(found[2].key + found[2].before + found[2].after, "parallel.data\"auto\"2");
  EXPECT_TRUE(differences(after, after).empty());
  Config elsewhere = after;
  elsewhere.model.decoder.overrides[0].settings["activation"].origin = "--set …";
  EXPECT_EQ(elsewhere, after) << "where a value was set is not part of it";
}

constexpr char const* two_groups = R"([optimizer]
weight_decay = 0.5
[optimizer.group."slow"]
parameters = ["encoder.*", "*.norm.*"]
learning_rate_factor = 0.1
[optimizer.group.fixed]
parameters = ["embedding.weight"]
weight_decay = 0
frozen = true
)";

TEST(Config, GroupsOfParametersHaveRulesOfTheirOwn) {
  Config const config = parse_config(two_groups, "run.toml");
  ASSERT_EQ(config.optimizer.groups.size(), 2U);
  ParameterGroup const& fixed = config.optimizer.groups[0];
  ParameterGroup const& slow = config.optimizer.groups[1];
  EXPECT_EQ(fixed.name, "fixed");
  EXPECT_EQ(fixed.rule, (UpdateRule{.learning_rate_factor = 1, .weight_decay = 0, .frozen = true}));
  EXPECT_EQ(slow.parameters, (std::vector<std::string>{"encoder.*", "*.norm.*"}));
  EXPECT_EQ(slow.rule, (UpdateRule{.learning_rate_factor = 0.1, .weight_decay = 0.5, .frozen = false}));
  EXPECT_EQ(slow.places.of("parameters"), "run.toml:4:1: optimizer.group.slow.parameters");
  EXPECT_EQ(slow.places.of("frozen"), "optimizer.group.slow.frozen") << "not given";
  EXPECT_EQ(parse_config(to_toml(config), "printed"), config);
  Config const overridden = parse_config(
      two_groups, "run.toml", {"optimizer.group.slow.frozen=true", "optimizer.group.new.parameters=[\"a\"]"});
  ASSERT_EQ(overridden.optimizer.groups.size(), 3U);
  EXPECT_EQ(overridden.optimizer.groups[1].name, "new");
  EXPECT_TRUE(overridden.optimizer.groups[2].rule.frozen);
  std::vector<ConfigDifference> const found = differences(config, overridden);
  ASSERT_EQ(found.size(), 8U);
  EXPECT_EQ(found[0].key, "optimizer.group.new.parameters");
  EXPECT_EQ(found[0].before + " " + found[0].after, "(not set) [\"a\"]");
  EXPECT_EQ(found[7].key + found[7].before + found[7].after, "optimizer.group.slow.frozenfalsetrue");
}

TEST(Config, WrongGroupsNameTheirPlace) {
  EXPECT_EQ(refusal("[optimizer.group.a]\nparameters = [\"x\"]\nlearning_rate_factors = 1"),
            "run.toml:3:1: there is no key optimizer.group.a.learning_rate_factors; did you mean "
            "optimizer.group.a.learning_rate_factor?");
  EXPECT_EQ(refusal("[optimizer.group.a]\nfrozen = true"),
            "run.toml:1:18: optimizer.group.a names no parameters; for example parameters = [\"encoder.*\"]");
  EXPECT_EQ(refusal("[optimizer.group.a]\nparameters = \"x\""),
            "run.toml:2:1: optimizer.group.a.parameters is the string \"x\"; expected a non-empty list of non-empty "
            "strings");
  EXPECT_EQ(
      refusal("", {"optimizer.group.a.weight_decay=-1"}),
      "--set optimizer.group.a.weight_decay=-1: optimizer.group.a.weight_decay is the integer -1; expected a number, "
      "at least 0");
  expect_contains(refusal("[optimizer]\ngroup = 3"), "expected a section: [optimizer.group.\"NAME\"]");
  expect_contains(refusal("[optimizer.group]\na = 3"), "optimizer.group.a is the integer 3; expected a section");
  expect_contains(refusal("[optimizer.group.\"a.b\"]\nparameters = [\"x\"]"), "a name has letters and no dot");
}

constexpr char const* two_stages =
    "[data.corpus.a]\ntrain = 'a.h5'\n[data.corpus.b]\ntrain = 'b.h5'\n"
    "[[data.stage]]\ntitle = 'clean'\nweights = { a = 3, b = 1 }\ncorpus = 'a'\nepochs = 2\n"
    "[[data.stage]]\nstalled = 3\n[data.stage.weights]\nb = 1\n";

TEST(Config, StagesOfDataAreInTheirOrder) {
  std::string text = two_stages;
  for (int stage = 3; stage < 12; ++stage) {  // the tenth is after the ninth
    text += fmt::format("[[data.stage]]\nsteps = {}\nweights.a = 1\n", stage);
  }
  Config const config = parse_config(text, "run.toml", {"data.stage.2.stalled=4"});
  ASSERT_EQ(config.data.stages.size(), 11U);
  EXPECT_EQ(config.data.stages[0].weights, (std::map<std::string, double>{{"a", 3}, {"b", 1}}));
  EXPECT_EQ(config.data.stages[1].stalled, 4);
  EXPECT_EQ(config.data.stages[10].steps, 11);
  EXPECT_EQ(parse_config(to_toml(config), "again.toml", {}), config);
}

TEST(Config, WrongStagesNameTheirPlace) {
  auto const message = [](std::string const& more) {
    return message_of<ConfigError>([&] { parse_config(two_stages + more, "run.toml", {}); });
  };
  expect_contains(message("[[data.stage]]\nweights.c = 1\n"), "run.toml:14:1: data.stage.3.weights.c: there is no");
  expect_contains(message("[[data.stage]]\nweights.a = 0\n"), "data.stage.3 reads no corpus; for example");
  expect_contains(message("[[data.stage]]\nweights.a = 1\nepochs = 1\n"), "of which corpus?");
  expect_contains(message("[[data.stage]]\nweights.a = 1\n[[data.stage]]\nweights.b = 1\n"),
                  "data.stage.3 has no end, and stages follow it");
  expect_contains(message_of<ConfigError>([] { parse_config("[data.stage]\nx = 1\n", "run.toml", {}); }),
                  "run.toml:1:7: data.stage is a table; expected a list of tables, each begun by [[data.stage]]");
  expect_contains(message("[[data.stage]]\nweight.a = 1\n"), "there is no key data.stage.3.weight");
  auto const unsupported = [](std::vector<std::string> overrides) {
    overrides.insert(overrides.end(), {"run.directory=runs/a", "train.validate_every=0"});
    return message_of<ConfigError>([&] { require_supported(parse_config(two_stages, "run.toml", overrides)); });
  };
  expect_contains(unsupported({}), "run.toml:11:1: data.stage.2.stalled = 3 beside train.validate_every = 0");
  EXPECT_EQ(unsupported({"data.stage.2.steps=5"}), "");
  expect_contains(unsupported({"optimizer.plateau_validations=2"}), "without validations there is no plateau");
}

TEST(Config, AdaptersFreezeTheRest) {
  EXPECT_TRUE(parse_config("", "run.toml").optimizer.trained.empty());
  Config const config = parse_config("[adapter]\nrank = 8\ntargets = [\"*.up\"]", "run.toml");
  EXPECT_EQ(config.optimizer.trained, (std::vector<std::string>{"*.lora_a", "*.lora_b"}));
  EXPECT_EQ(parse_config(to_toml(config), "printed"), config);
  EXPECT_EQ(refusal("[adapter]\nalpha = 8"),
            "run.toml:2:1: adapter.alpha is given and adapter.rank is not, without which there are no adapters; for "
            "example rank = 8");
  EXPECT_THAT(refusal("[adapter]\nrank = 8\nsave_base = false"),
              StartsWith("run.toml:3:1: adapter.save_base = false, but train.initialize_from is not set"));
  EXPECT_EQ(refusal("[adapter]\nrank = 0\nsave_base = false"), "accepted") << "as a resolved configuration has it";
  EXPECT_EQ(refusal("[adapter]\nrank = 8\ntargets = []"),
            "run.toml:3:1: adapter.targets is an empty list; expected a non-empty list of non-empty strings");
}

TEST(Config, NormsAreKeysOfTheModelAndOfLayers) {
  Config const config = parse_config(R"(
    [model]
    norm = "both"
    norm_kind = "rms"
    norm_epsilon = 1e-6
    embedding_norm = true
    [model.decoder]
    norm_epsilon = 1
    self_attention = { query_key_norm = true }
    [model.decoder.layer."2-3"]
    norm_kind = "layer")",
                                     "run.toml");
  EXPECT_EQ(config.model.norm, NormPlacement::both);
  EXPECT_EQ(config.model.norm_kind, NormKind::rms);
  EXPECT_EQ(config.model.norm_epsilon, 1e-6);
  EXPECT_TRUE(config.model.embedding_norm);
  EXPECT_EQ(parse_config(to_toml(config), "printed"), config);
  auto const keys = [&](std::int64_t layer) { return layer_config(config.model, &ModelConfig::decoder, layer); };
  EXPECT_EQ(keys(-1).norm_epsilon, 1) << "of the stack";
  EXPECT_EQ(keys(0).norm_kind, NormKind::rms);
  EXPECT_EQ(keys(2).norm_kind, NormKind::layer);
  EXPECT_EQ(refusal("[model]\nnorm_epsilon = 0"),
            "run.toml:2:1: model.norm_epsilon is the integer 0; expected a number, above 0");
  EXPECT_EQ(refusal("[model.decoder.layer.2]\nnorm_kind = \"\""),
            "run.toml:2:1: model.decoder.layer.2.norm_kind is the string \"\"; expected a non-empty string");
  EXPECT_THAT(refusal("[model.decoder.layer.2]\nnorm = \"pre\""),
              HasSubstr("run.toml:2:1: there is no key model.decoder.layer.2.norm"))
      << "where norms stand is one for the whole model";
}

TEST(Config, UnknownNamesListTheKnown) {
  EXPECT_EQ(refusal("[model]\nnorm = \"sandwich\""),
            "run.toml:2:1: model.norm is the string \"sandwich\"; expected \"post\" or \"pre\" or \"both\" "
            "or \"output\"");
  EXPECT_EQ(refusal("[model]\nnorm_kind = 3"),
            "run.toml:2:1: model.norm_kind is the integer 3; expected a non-empty string");
}

TEST(Config, KeysThatDoNotGoTogether) {
  EXPECT_THAT(refusal("[train]\nmicro_batch_tokens = 5000"),
              StartsWith("run.toml:2:1: train.micro_batch_tokens = 5000 is more than train.batch_tokens = 4096"));
  EXPECT_THAT(refusal("[train]\nmicro_batch_tokens = 4096", {"train.batch_tokens=2048"}),
              StartsWith("--set train.batch_tokens=2048: train.micro_batch_tokens = 4096 is more"));
  expect_contains(refusal("[train]\nbatch_tokens = 512"), "set max_length to 512 or less");
  EXPECT_EQ(refusal("[train]\nbatch_tokens = 512\n[model]\nmax_length = 512"), "accepted");
}

TEST(Config, SyntaxErrorsNameTheLine) {
  EXPECT_THAT(refusal("[train]\nsteps = \n"), StartsWith("run.toml:2:"));
  EXPECT_THAT(refusal("[train]\nsteps = 1\nsteps = 2\n"), StartsWith("run.toml:3:"));
  expect_contains(refusal("[train\n"), "not valid TOML");
  EXPECT_THAT(refusal("[run]\ndirectory = \"\xff\"\n"), StartsWith("run.toml:2:"));
}

TEST(Config, OverridesWinAndMayLeaveQuotesOut) {
  Config const config = parse_config("[train]\nsteps = 5\n[model]\nd_model = 64", "run.toml",
                                     {"train.steps=7", "run.directory=runs/x", "model.encoder_sublayers=[\"a\", \"b\"]",
                                      "optimizer.schedule=linear", "parallel.data=auto", "train.deterministic = true",
                                      "train.steps=9", "data.train=\"a=b.h5\"", "optimizer.beta1=0"});
  EXPECT_EQ(config.train.steps, 9);
  EXPECT_EQ(config.model.d_model, 64);
  EXPECT_EQ(config.run.directory, "runs/x");
  EXPECT_EQ(config.model.encoder.sublayers, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(config.optimizer.schedule, "linear");
  EXPECT_EQ(config.parallel.data, 0);
  EXPECT_TRUE(config.train.deterministic);
  EXPECT_EQ(config.data.train, std::vector<std::string>{"a=b.h5"});
  EXPECT_EQ(config.optimizer.options.at("beta1").value, OptionValue(std::int64_t{0}));
}

TEST(Config, WrongOverridesNameThemselves) {
  EXPECT_EQ(refusal("[train]\nsteps = 5", {"train.steps=1O"}),
            "--set train.steps=1O: train.steps is the string \"1O\"; expected an integer, 1 to 2147483647");
  EXPECT_EQ(refusal("", {"train.step=1"}), "--set train.step=1: there is no key train.step; did you mean train.steps?");
  EXPECT_EQ(refusal("", {"trian.steps=1"}), "--set trian.steps=1: there is no section [trian]; did you mean train?");
  for (std::string const wrong : {"train.steps", "steps=1", "=", "a=b.c", ""}) {
    EXPECT_EQ(refusal("", {wrong}), "--set " + wrong + ": expected section.key=value, for example train.steps=1000");
  }
  expect_contains(refusal("", {"plugins.paths=[\"a.so\""}), "the value is not a TOML value");
  expect_contains(refusal("", {"train.steps="}), "the value is not a TOML value");
  expect_contains(refusal("", {"train.steps=1\nx=2"}), "expected one value");
  EXPECT_THAT(refusal("", {"run.directory=\xff/x"}), StartsWith("--set run.directory="));
}

TEST(Config, TheDescriptionIsAConfigWithTheDefaults) {
  EXPECT_EQ(parse_config(describe_config(), "description"), Config{});
}

TEST(Config, TheDocumentationHasTheDescriptionWordForWord) {
  std::ifstream file(std::string(HEDDLE_TEST_DATA) + "/../../docs/reference/config.md");
  ASSERT_TRUE(file) << "docs/reference/config.md cannot be read";
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find("```toml\n" + describe_config() + "```"), std::string::npos)
      << "docs/reference/config.md must hold this in its ```toml block:\n"
      << describe_config();
}

}  // namespace
}  // namespace heddle
