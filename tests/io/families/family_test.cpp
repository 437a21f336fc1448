#include <boost/json.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/exchange/exchanged_tensors.hpp>

#include "test.hpp"

namespace heddle {
namespace {

namespace json = boost::json;

Config config_of(Family const& family, json::object const& config) {
  return parse_config("", "config.json", settings_of(family, config));
}

/// Tensors of which each element has a number of its own; tensors of one shape are equal, except those in `others`.
class NumberedTensors final : public ForeignTensors {
 public:
  explicit NumberedTensors(std::map<std::string, ForeignTensor> tensors, std::set<std::string> others = {})
      : tensors_(std::move(tensors)), others_(std::move(others)) {}
  std::map<std::string, ForeignTensor> const& tensors() const override { return tensors_; }
  void read(std::string const& name, IndexRange const& elements, std::span<float> into) const override {
    EXPECT_GE(elements.begin, 0);
    EXPECT_LE(elements.end, tensors_.at(name).elements());
    std::iota(into.begin(), into.end(), static_cast<float>(elements.begin));
    auto const other = others_.find(name);
    if (other != others_.end()) {
      into.front() = -1 - static_cast<float>(std::distance(others_.begin(), other));
    }
  }

 private:
  std::map<std::string, ForeignTensor> tensors_;
  std::set<std::string> others_;
};

std::vector<float> read(ImportedTensors& tensors, std::size_t index, IndexRange const& elements) {
  std::vector<float> values(static_cast<std::size_t>(elements.count()));
  tensors.receive({index, 0, elements}, values);
  return values;
}

TEST(Family, EachTableGivesItsOwnKeysBack) {
  for (Family const& family : families()) {
    json::object theirs = json::parse(R"({"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "d_model": 64, "num_heads": 4,
        "num_layers": 3, "num_decoder_layers": 2, "d_kv": 8, "encoder_attention_heads": 4,
        "decoder_attention_heads": 8, "encoder_ffn_dim": 96, "decoder_ffn_dim": 80})")
                              .as_object();
    theirs["model_type"] = json::string(family.model_type);
    Config const config = config_of(family, theirs);
    json::object const made = config_json(family, config);
    EXPECT_EQ(config_of(family, made).model, config.model) << family.model_type;
    for (auto const& [key, value] : theirs) {
      if (made.contains(key)) {
        EXPECT_EQ(made.at(key), value) << family.model_type << ": " << std::string(key);
      }
    }
  }
}

TEST(Family, KeysThatEachStackHasCountForTheStacksAlone) {
  Family const& marian = family_named("marian");
  std::vector<std::string> settings = settings_of(marian, {});
  settings.insert(settings.end(), {"model.d_ff=7", "model.encoder.d_ff=64", "model.decoder.d_ff=48"});
  settings.emplace_back("model.decoder.layer.2.cross_attention.guided_alignment_weight=0.1");  // only for training
  json::object const made = config_json(marian, parse_config("", "test", settings));
  EXPECT_EQ(made.at("encoder_ffn_dim"), 64);
  EXPECT_EQ(made.at("decoder_ffn_dim"), 48);
}

TEST(Family, AModelThatTheFamilyCannotHaveIsRefusedByKey) {
  Family const& llama = family_named("llama");
  json::object const theirs{
      {"hidden_size", 64}, {"intermediate_size", 96}, {"num_hidden_layers", 3}, {"num_attention_heads", 4}};
  auto const refusal = [&](std::string const& setting) {
    std::vector<std::string> settings = settings_of(llama, theirs);
    settings.push_back(setting);
    return message_of<ConfigError>([&] { config_json(llama, parse_config("", "test", settings)); });
  };
  EXPECT_EQ(refusal("model.dropout=0.3"), "");
  expect_contains(refusal("model.decoder.self_attention.soft_cap=30.0"), "self_attention.soft_cap");
  expect_contains(refusal("model.norm=post"), "model.norm = post");
  expect_contains(refusal("model.output_bias=true"), "model.output_bias");
  expect_contains(refusal("model.decoder.layer.2.self_attention.window=8"), "model.decoder.layer.2");
}

TEST(Family, OfAStackThatTheFamilyLacksNoKeyIsAnObstacle) {
  Config const config = parse_config("", "test", {"model.encoder_layers=1", "model.encoder.d_ff=32"});
  std::vector<std::string> const of_llama = obstacles_of(family_named("llama"), config);
  EXPECT_THAT(of_llama, Each(Not(HasSubstr("encoder_layers"))));
  EXPECT_THAT(of_llama, Each(Not(StartsWith("model.encoder."))));
  EXPECT_THAT(of_llama, Contains(StartsWith("model.stacks = ")));
  Config const bert = parse_config("", "test", settings_of(family_named("bert"), {}));
  EXPECT_THAT(obstacles_of(family_named("llama"), bert), Contains(StartsWith("model.stacks = ")));
}

TEST(Family, AKeyOfTheWholeModelIsExpressedByKeysOfItsStacks) {
  Config const config = parse_config(
      "", "test",
      {"model.d_ff=96", "model.position_layout=halves", "model.output_bias=true", "model.position_frequencies=paper"});
  json::object const made = config_json(family_named("marian"), config);
  EXPECT_EQ(made.at("encoder_ffn_dim"), 96);
  EXPECT_EQ(made.at("decoder_ffn_dim"), 96);
}

/// The value of a key of an object's text.
std::string text_of(json::object const& config, std::string_view path) {
  json::value const* const found = find_key(config, path);
  return found == nullptr ? "" : json::serialize(*found);
}

TEST(Family, RotaryScalingIsReadInBothFormsAndWritten) {
  Family const& llama = family_named("llama");
  json::object const scaling{{"rope_type", "llama3"},
                             {"factor", 8.0},
                             {"low_freq_factor", 1.0},
                             {"high_freq_factor", 4.0},
                             {"original_max_position_embeddings", 512}};
  json::object parameters = scaling;
  parameters["rope_theta"] = 500.0;
  Config const old_form = config_of(llama, {{"rope_theta", 500.0}, {"rope_scaling", scaling}});
  EXPECT_EQ(config_of(llama, {{"rope_parameters", parameters}}).model, old_form.model);
  EXPECT_EQ(old_form.model.rotary_scaling, RotaryScaling::llama3);
  EXPECT_EQ(old_form.model.rotary_factor, 8);
  EXPECT_EQ(old_form.model.rotary_high_turns, 4);
  EXPECT_EQ(old_form.model.rotary_original_length, 512);
  json::object const made = config_json(llama, old_form);
  EXPECT_EQ(config_of(llama, made).model.rotary_scaling, RotaryScaling::llama3);
  EXPECT_EQ(text_of(made, "rope_theta"), "5E2");
  EXPECT_EQ(text_of(made, "rope_scaling.original_max_position_embeddings"), "512");
  EXPECT_EQ(text_of(made, "rope_scaling.high_freq_factor"), "4E0");
  EXPECT_EQ(text_of(made, "rope_scaling.beta_fast"), "");
  EXPECT_FALSE(config_json(llama, config_of(llama, {})).contains("rope_scaling"));
  json::object const yarn{{"rope_type", "yarn"}, {"factor", 4.0}};
  EXPECT_EQ(config_of(llama, {{"rope_scaling", yarn}}).model.rotary_high_turns, 32);
  auto const refusal = [&](char const* key, json::value const& value) {
    json::object changed = yarn;
    changed[key] = value;
    return message_of<ConfigError>([&] { settings_of(llama, {{"rope_scaling", changed}}); });
  };
  expect_contains(refusal("mscale", 2.0), "rope_scaling.mscale");
  expect_contains(refusal("truncate", false), "rope_scaling.truncate");
  expect_contains(refusal("rope_type", "longrope"), "rope_scaling.rope_type");
}

/// The tables of tokens that a model has whose files have these tensors, of which `others` differ from the rest.
std::string tables_of(std::string const& type, std::vector<std::string> const& names,
                      std::set<std::string> const& others, bool one_name = true) {
  std::map<std::string, ForeignTensor> tensors;
  for (std::string const& name : names) {
    tensors[name] = {{3, 2}, "float32"};
  }
  Family const& family = family_named(type);
  json::object config{{"model_type", type}, {"tie_word_embeddings", one_name}};
  complete_config(family, config, NumberedTensors(tensors, others));
  ModelConfig const model = config_of(family, config).model;
  return std::string(model.tie_embeddings ? "tied" : "") + (model.share_embeddings ? " shared" : "") +
         (model.separate_embeddings ? " separate" : "");
}

TEST(Family, TablesThatDifferAreTablesOfTheirOwn) {
  std::string const output = "lm_head.weight";
  for (auto const& [type, table] : {std::pair("llama", "model.embed_tokens.weight"),
                                    {"gemma2", "model.embed_tokens.weight"},
                                    {"gpt2", "wte.weight"}}) {
    EXPECT_EQ(tables_of(type, {table}, {}), "tied") << type;
    EXPECT_EQ(tables_of(type, {table, output}, {}), "tied") << type;
    EXPECT_EQ(tables_of(type, {table, output}, {output}), "") << type;
  }
  std::string const bert = "cls.predictions.decoder.weight";
  EXPECT_EQ(tables_of("bert", {"bert.embeddings.word_embeddings.weight", bert}, {bert}), "");
  std::string const encoder = "encoder.embed_tokens.weight";
  std::string const decoder = "decoder.embed_tokens.weight";
  std::vector<std::string> const t5{"shared.weight", encoder, decoder, output};
  EXPECT_EQ(tables_of("t5", t5, {}), "tied");
  EXPECT_EQ(tables_of("t5", t5, {output}), " shared");
  EXPECT_EQ(tables_of("t5", t5, {encoder}), "tied separate");
  EXPECT_EQ(tables_of("t5", t5, {encoder, output}), " separate");
  EXPECT_EQ(tables_of("t5", {"shared.weight", decoder}, {decoder}), " separate") << "the output is the shared one";
  EXPECT_EQ(tables_of("t5", {"shared.weight", decoder, output}, {"shared.weight"}), " separate");
  EXPECT_EQ(tables_of("bart", {"model.shared.weight", output}, {output}), " separate") << "as transformers 5 has it";
  EXPECT_EQ(tables_of("marian", {"model.shared.weight", "model.encoder.embed_tokens.weight"},
                      {"model.encoder.embed_tokens.weight"}),
            "tied separate");
}

TEST(Family, ATableOfItsOwnForTheOutputIsNotMadeOfAnother) {
  for (auto const& [type, table, output] :
       {std::tuple("llama", "model.embed_tokens.weight", "lm_head.weight"),
        {"mt5", "shared.weight", "lm_head.weight"},
        {"bert", "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"}}) {
    expect_data_error([&] { tables_of(type, {table}, {}, false); },
                      {fmt::format("there is no tensor {}", output), "with its head"});
    EXPECT_EQ(tables_of(type, {table, output}, {}, false).find("tied"), std::string::npos);
  }
}

TEST(Family, PositionsThatAreNotSinusoidsAreATable) {
  Family const& pegasus = family_named("pegasus");
  std::string const name = "model.encoder.embed_positions.weight";
  json::object config{{"d_model", 3}};
  complete_config(
      pegasus, config,
      NumberedTensors({{name, {{4, 3}, "float32"}}, {"model.decoder.embed_positions.weight", {{4, 3}, "float32"}}}));
  EXPECT_EQ(config_of(pegasus, config).model.positions, Positions::learned);
  expect_config_error([&] { complete_config(pegasus, config, NumberedTensors({})); }, "d_model = 3 cannot be imported");
  config["d_model"] = 4;
  complete_config(pegasus, config, NumberedTensors({}));
  EXPECT_EQ(config_of(pegasus, config).model.positions, Positions::sinusoidal);
}

TEST(Family, KeysAreReadAsTransformersReadsThem) {
  EXPECT_EQ(config_of(family_named("m2m_100"), {{"pad_token_id", 0}}).model.first_position, 1);
  EXPECT_EQ(config_of(family_named("m2m_100"), {}).model.first_position, 2);
  EXPECT_EQ(config_of(family_named("gemma2"), {{"hidden_activation", "gelu"}}).model.activation, "geglu");
  EXPECT_EQ(config_of(family_named("gemma"), {{"hidden_act", "gelu"}}).model.activation, "geglu_tanh");
  EXPECT_EQ(config_of(family_named("t5gemma"),
                      {{"encoder", {{"hidden_activation", "gelu"}}}, {"decoder", {{"hidden_activation", "gelu"}}}})
                .model.activation,
            "geglu");
  json::object const rotary{{"rope_theta", 7.0}, {"rope_parameters", {{"rope_theta", 5.0}}}};
  EXPECT_EQ(config_of(family_named("llama"), rotary).model.rotary_base, 5);
  EXPECT_EQ(config_of(family_named("mt5"), {}).model.activation, "geglu_tanh");
  json::object aliases{{"num_attention_heads", 4}};
  complete_config(family_named("gpt2"), aliases, NumberedTensors({}));
  EXPECT_EQ(config_of(family_named("gpt2"), aliases).model.heads, 4);
  EXPECT_THAT(message_of<ConfigError>([] {
                settings_of(family_named("llama"), {{"partial_rotary_factor", 0.5}, {"mlp_bias", true}});
              }),
              AllOf(HasSubstr("mlp_bias = true"), HasSubstr("partial_rotary_factor = 5E-1")))
      << "all that stands in the way";
}

TEST(Family, LayersWithAWindowMayHaveRotationsOfTheirOwn) {
  Family const& gemma = family_named("gemma3_text");
  json::object theirs{{"num_hidden_layers", 6}, {"sliding_window", 9}, {"rope_local_base_freq", 500.0}};
  complete_config(gemma, theirs, NumberedTensors({}));
  Config const config = config_of(gemma, theirs);
  auto const base = [&](std::int64_t layer) {
    return layer_options(config.model.decoder, "decoder", layer, "self_attention").number("rotary_base", -1);
  };
  EXPECT_EQ(base(0), 500);
  EXPECT_EQ(base(5), -1);
  EXPECT_EQ(config.model.rotary_base, 1e6);
  json::object const made = config_json(gemma, config);
  EXPECT_EQ(text_of(made, "rope_local_base_freq"), "5E2");
  EXPECT_EQ(text_of(made, "rope_theta"), "1E6");
  EXPECT_EQ(config_of(gemma, made).model, config.model);
}

TEST(Family, LayersWithAWindowAreListed) {
  Family const& gemma = family_named("gemma2");
  json::object theirs{{"num_hidden_layers", 3}, {"sliding_window", 9}};
  complete_config(gemma, theirs, NumberedTensors({}));
  Config const config = config_of(gemma, theirs);
  auto const window = [](Config const& of, std::int64_t layer) {
    return layer_options(of.model.decoder, "decoder", layer, "self_attention").integer("window", -1);
  };
  EXPECT_EQ(window(config, 0), 8);
  EXPECT_EQ(window(config, 1), -1);
  EXPECT_EQ(window(config, 2), 8);
  json::object const made = config_json(gemma, config);
  EXPECT_EQ(text_of(made, "layer_types"), R"(["sliding_attention","full_attention","sliding_attention"])");
  EXPECT_EQ(text_of(made, "sliding_window"), "9");
  // A window of a range, or of the stack, is that of each layer.
  std::vector<std::string> settings = settings_of(gemma, {{"num_hidden_layers", 3}});
  settings.emplace_back("model.decoder.layer.2-3.self_attention.window=4");
  EXPECT_EQ(text_of(config_json(gemma, parse_config("", "test", settings)), "layer_types"),
            R"(["full_attention","sliding_attention","sliding_attention"])");
  settings.emplace_back("model.decoder.layer.1.self_attention.window=5");
  expect_config_error([&] { config_json(gemma, parse_config("", "test", settings)); },
                      "model.decoder.layer.2.self_attention.window = 4: an earlier layer has 5");
  expect_config_error(
      [&] {
        settings_of(gemma, {{"layer_types", {"chunked_attention"}}});
      },
      "layer_types has \"chunked_attention\"");
}

TEST(Family, AMicroBatchHasRoomForTheLongestSequence) {
  Family const& llama = family_named("llama");
  json::object theirs{{"max_position_embeddings", 131072}};
  Config const config = config_of(llama, theirs);
  EXPECT_EQ(config.model.max_length, 8192);
  EXPECT_EQ(config.train.micro_batch_tokens, 8192);
  json::object made = config_json(llama, config);
  restore_keys(llama, theirs, made);
  EXPECT_EQ(text_of(made, "max_position_embeddings"), "131072");
  EXPECT_EQ(config_of(llama, {{"max_position_embeddings", 64}}).train, TrainConfig());
  EXPECT_EQ(config_of(llama, {{"max_position_embeddings", 6000}}).train.batch_tokens, 6000);
  // Angles that follow from the length keep it, and so does a table of positions.
  theirs["rope_scaling"] = json::object{{"rope_type", "yarn"}, {"factor", 4.0}};
  EXPECT_EQ(config_of(llama, theirs).model.max_length, 131072);
  theirs["rope_scaling"].as_object()["original_max_position_embeddings"] = 32768;
  EXPECT_EQ(config_of(llama, theirs).model.max_length, 8192);
  EXPECT_EQ(config_of(family_named("gpt2"), {{"n_positions", 9000}}).train.micro_batch_tokens, 9000);
}

TEST(Family, ANullIsNoCapAndAMissingKeyTheDefault) {
  Family const& gemma = family_named("gemma2");
  EXPECT_EQ(config_of(gemma, {}).model.logit_cap, 30);
  Config const config = config_of(gemma, {{"final_logit_softcapping", nullptr}, {"attn_logit_softcapping", nullptr}});
  EXPECT_EQ(config.model.logit_cap, 0);
  json::object const made = config_json(gemma, config);
  EXPECT_TRUE(made.at("final_logit_softcapping").is_null());
  EXPECT_TRUE(made.at("attn_logit_softcapping").is_null());
  EXPECT_EQ(config_of(gemma, made).model, config.model);
}

TEST(Family, QueriesOfGemma2HaveTheUsualScale) {
  Family const& gemma = family_named("gemma2");
  TensorOrigin const q = origin_of(gemma, ModelConfig(), "decoder.layers.3.self_attention.q.weight");
  EXPECT_EQ(q.name, "model.layers.3.self_attn.q_proj.weight");
  EXPECT_EQ(q.change.scale({{"head_dim", 64}, {"query_pre_attn_scalar", 16}}), 2);
  EXPECT_EQ(q.change.scale({}), 1);
  json::object const made = config_json(gemma, config_of(gemma, {{"head_dim", 64}, {"query_pre_attn_scalar", 16}}));
  EXPECT_EQ(made.at("query_pre_attn_scalar"), 64);
  Family const& t5gemma = family_named("t5gemma");
  TensorOrigin const crossed = origin_of(t5gemma, ModelConfig(), "decoder.layers.3.cross_attention.q.weight");
  json::object const stacks{{"encoder", {{"query_pre_attn_scalar", 1}}},
                            {"decoder", {{"query_pre_attn_scalar", 1024}}}};
  EXPECT_EQ(crossed.change.scale(stacks), 0.5);
}

TEST(Family, AnExportHasTheScaleOfQueriesThatCameIn) {
  Family const& gemma = family_named("gemma2");
  json::object const theirs{{"model_type", "gemma2"}, {"head_dim", 64}, {"query_pre_attn_scalar", 50}};
  json::object made = config_json(gemma, config_of(gemma, theirs));
  restore_keys(gemma, theirs, made);
  EXPECT_EQ(made.at("query_pre_attn_scalar"), 50);
}

TEST(Family, TheBiasOfAnUntiedHeadHasTwoNames) {
  ModelConfig model;
  model.tie_embeddings = false;
  TensorOrigin const bias = origin_of(family_named("xlm-roberta"), model, "output.bias");
  EXPECT_EQ(bias.name, "lm_head.decoder.bias");
  EXPECT_TRUE(bias.twice);
  EXPECT_THAT(bias.older, ElementsAre("lm_head.bias"));
  EXPECT_FALSE(origin_of(family_named("xlm-roberta"), ModelConfig(), "output.bias").twice);
}

TEST(Family, StacksHaveWidthsOfTheirOwn) {
  Family const& t5gemma = family_named("t5gemma");
  json::object theirs{{"encoder", {{"hidden_size", 64}, {"head_dim", 16}}},
                      {"decoder", {{"hidden_size", 32}, {"head_dim", 16}}}};
  complete_config(t5gemma, theirs, NumberedTensors({}));
  json::object const made = config_json(t5gemma, config_of(t5gemma, theirs));
  EXPECT_EQ(text_of(made, "encoder.hidden_size"), "64");
  EXPECT_EQ(text_of(made, "decoder.hidden_size"), "32");
  // Imports of earlier versions have one width, and options that are not set follow from that of their stack.
  std::vector<std::string> settings = settings_of(t5gemma, theirs);
  std::erase_if(settings, [](std::string const& each) {
    return each.starts_with("model.decoder.d_model") || each.starts_with("model.encoder.self_attention.head_dim");
  });
  settings.emplace_back("model.d_model=48");
  json::object const old = config_json(t5gemma, parse_config("", "test", settings));
  EXPECT_EQ(text_of(old, "decoder.hidden_size"), "48");
  EXPECT_EQ(text_of(old, "encoder.head_dim"), "8");
}

TEST(Family, ParametersHaveTheirTensors) {
  ModelConfig model;
  Family const& t5 = family_named("t5");
  EXPECT_EQ(origin_of(t5, model, "encoder.layers.11.feed_forward.up.weight").name,
            "encoder.block.11.layer.1.DenseReluDense.wi.weight");
  model.activation = "geglu_tanh";
  EXPECT_EQ(origin_of(t5, model, "encoder.layers.11.feed_forward.up.weight").name,
            "encoder.block.11.layer.1.DenseReluDense.wi_1.weight");
  expect_data_error([&] { origin_of(t5, model, "encoder.layers.x.feed_forward.up.weight"); },
                    "no tensor for the parameter encoder.layers.x");
  expect_data_error([&] { origin_of(t5, model, "encoder.positions.weight"); }, "t5");
}

TEST(ExchangedTensors, AreTransposedMovedAndScaledBothWays) {
  Family const family{
      .model_type = "made up",
      .architecture = "",
      .settings = {},
      .keys = {},
      .tensors = {{"turned", "a", {.transposed = true}},
                  {"fused", "b", {.part = 0, .parts = 2}},
                  {"fused", "c", {.part = 1, .parts = 2}},
                  {"offset", "d", {.skipped_rows = 2}},
                  {"scaled", "e", {.one_row = true, .added = 2, .scale = [](json::object const&) { return 0.5; }}},
                  {"", "f"},
                  {"short", "g", {.added_rows = 1}},
                  {"row", "h", {.one_row = true, .added_rows = 2, .added_value = -9}},
                  {"turned and fused", "i", {.transposed = true, .part = 0, .parts = 2}},
                  {"turned and fused", "j", {.transposed = true, .part = 1, .parts = 2}},
                  {"block.{}.expert_[].w", "layers.{}.k"}}};
  ModelConfig const model;
  json::object const theirs;
  NumberedTensors const source({{"turned", {{2, 3}, "float32"}},
                                {"fused", {{4, 2}, "float32"}},
                                {"offset", {{5, 2}, "float32"}},
                                {"scaled", {{1, 4}, "float32"}},
                                {"short", {{2, 2}, "float32"}},
                                {"row", {{1, 3}, "float32"}},
                                {"turned and fused", {{3, 4}, "float32"}},
                                {"block.4.expert_0.w", {{2, 2}, "float32"}},
                                {"block.4.expert_1.w", {{2, 2}, "float32"}}});
  ImportedTensors tensors(source, {family, model, theirs},
                          {{"a", {3, 2}},
                           {"b", {2, 2}},
                           {"c", {2, 2}},
                           {"d", {3, 2}},
                           {"e", {4}},
                           {"f", {2}},
                           {"g", {3, 2}},
                           {"h", {5}},
                           {"i", {2, 3}},
                           {"j", {2, 3}},
                           {"layers.4.k", {2, 2, 2}}});
  EXPECT_EQ(read(tensors, 0, {0, 6}), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(read(tensors, 0, {1, 4}), (std::vector<float>{3, 1, 4}));
  EXPECT_EQ(read(tensors, 1, {0, 4}), (std::vector<float>{0, 1, 2, 3}));
  EXPECT_EQ(read(tensors, 2, {1, 4}), (std::vector<float>{5, 6, 7}));
  EXPECT_EQ(read(tensors, 3, {0, 3}), (std::vector<float>{4, 5, 6}));
  EXPECT_EQ(read(tensors, 4, {0, 4}), (std::vector<float>{1, 1.5, 2, 2.5}));
  EXPECT_EQ(read(tensors, 5, {0, 2}), (std::vector<float>{0, 0}));
  EXPECT_EQ(read(tensors, 6, {2, 6}), (std::vector<float>{2, 3, 0, 0}));
  EXPECT_EQ(read(tensors, 6, {5, 6}), (std::vector<float>{0}));
  EXPECT_EQ(read(tensors, 7, {0, 5}), (std::vector<float>{0, 1, 2, -9, -9}));
  EXPECT_EQ(read(tensors, 8, {0, 6}), (std::vector<float>{0, 4, 8, 1, 5, 9}));
  EXPECT_EQ(read(tensors, 9, {1, 4}), (std::vector<float>{6, 10, 3}));
  EXPECT_EQ(read(tensors, 10, {0, 8}), (std::vector<float>{0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(read(tensors, 10, {2, 7}), (std::vector<float>{2, 3, 0, 1, 2})) << "of two experts";
  EXPECT_EQ(read(tensors, 10, {5, 6}), (std::vector<float>{1}));

  TemporaryDirectory const directory;
  CheckpointContents contents;
  contents.origin = {{"config.json", "{}"}, {"source.spm", std::string("\0\1", 2)}};
  CheckpointStore store(directory.path(), 2);
  Checkpoint const checkpoint = Checkpoint::open(store.commit(Communicator::self(), contents, tensors, 1).directory);
  EXPECT_EQ(checkpoint.contents().origin, contents.origin);
  std::vector<ExportedTensor> const exported = exported_tensors(checkpoint, {family, model, theirs});
  ASSERT_EQ(exported.size(), 9U);
  std::map<std::string, std::vector<float>> values;
  for (ExportedTensor const& tensor : exported) {
    read_exported(checkpoint, tensor, {family, model, theirs}, [&](std::span<float const> elements) {
      values[tensor.name].insert(values[tensor.name].end(), elements.begin(), elements.end());
    });
  }
  EXPECT_EQ(values["turned"], (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(values["fused"], (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(values["offset"], (std::vector<float>{0, 0, 0, 0, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(values["scaled"], (std::vector<float>{0, 1, 2, 3}));
  EXPECT_EQ(values["short"], (std::vector<float>{0, 1, 2, 3}));
  EXPECT_EQ(values["row"], (std::vector<float>{0, 1, 2}));
  EXPECT_EQ(values["turned and fused"], (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(values["block.4.expert_0.w"], (std::vector<float>{0, 1, 2, 3}));
  EXPECT_EQ(values["block.4.expert_1.w"], (std::vector<float>{0, 1, 2, 3}));
}

TEST(ExchangedTensors, AreExpertsOnlyWhereTheirNumbersAndShapesAreComplete) {
  Family const family{
      .model_type = "made up", .architecture = "", .settings = {}, .keys = {}, .tensors = {{"experts.[].w", "ours"}}};
  ModelConfig const model;
  json::object const theirs;
  auto const refusal = [&](std::map<std::string, ForeignTensor> const& tensors) {
    NumberedTensors const source(tensors);
    return message_of<DataError>([&] {
      ImportedTensors const made(source, {family, model, theirs}, {{"ours", {2, 3}}});
    });
  };
  ForeignTensor const row{{3}, "float32"};
  EXPECT_EQ(refusal({{"experts.0.w", row}, {"experts.1.w", row}}), "");
  expect_contains(refusal({{"experts.0.w", row}, {"experts.2.w", row}}), "there is no tensor experts.[].w");
  expect_contains(refusal({{"experts.0.w", row}, {"experts.1.w", {{4}, "float32"}}}), "unexpected tensor experts.1.w");
  expect_contains(refusal({{"experts.0.w", row}, {"experts.1.w", row}, {"experts.2.w", row}}), "[3, 3]");
}

TEST(Family, LayersWithMixturesAreThoseOfTransformers) {
  Family const& family = family_named("switch_transformers");
  auto const with_mixtures = [&](std::int64_t layers, std::int64_t count) {
    Config const config = config_of(family, {{"num_layers", layers}, {"num_sparse_encoder_layers", count}});
    std::vector<std::int64_t> found;
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      ModelConfig const keys = layer_config(config.model, &ModelConfig::encoder, layer);
      if (keys.encoder.sublayers.back() == "mixture_of_experts") {
        found.push_back(layer);
      }
    }
    json::object const made = config_json(family, config);
    EXPECT_EQ(config_of(family, made).model, config.model) << layers << ", " << count;
    return found;
  };
  EXPECT_THAT(with_mixtures(12, 6), ElementsAre(1, 3, 5, 7, 9, 11));
  EXPECT_THAT(with_mixtures(12, 3), ElementsAre(1, 5, 9));
  EXPECT_THAT(with_mixtures(3, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(with_mixtures(3, 1), ElementsAre(1));
  std::vector<std::string> settings = settings_of(family, {{"num_layers", 4}, {"num_sparse_encoder_layers", 2}});
  settings.emplace_back("model.encoder.layer.3.sublayers=[\"self_attention\", \"mixture_of_experts\"]");
  expect_config_error([&] { config_json(family, parse_config("", "test", settings)); },
                      "3 layers have mixtures of experts, which no num_sparse_encoder_layers gives");
}

TEST(Family, AMixtureThatTheFamilyCannotHaveIsRefusedByKey) {
  Family const& mixtral = family_named("mixtral");
  auto const refusal = [&](std::string const& setting) {
    std::vector<std::string> settings = settings_of(mixtral, {{"num_hidden_layers", 2}});
    settings.push_back("model.decoder.mixture_of_experts." + setting);
    return message_of<ConfigError>([&] { config_json(mixtral, parse_config("", "test", settings)); });
  };
  EXPECT_EQ(refusal("load_balance_loss=0.1"), "");
  EXPECT_EQ(refusal("normalize_weights=true"), "");
  EXPECT_EQ(refusal("balance_bias_rate=0.1"), "") << "the bias may be zero";
  EXPECT_EQ(origin_of(mixtral, {}, "decoder.layers.1.mixture_of_experts.router.balance_bias").name, "");
  expect_contains(refusal("normalize_weights=false"), "mixture_of_experts.normalize_weights = false");
  expect_contains(refusal("scoring=sigmoid"), "mixture_of_experts.scoring");
  expect_contains(refusal("shared_d_ff=8"), "mixture_of_experts.shared_d_ff");
}

TEST(ExchangedTensors, MustFitTheModel) {
  Family const family{.model_type = "made up",
                      .architecture = "",
                      .settings = {},
                      .keys = {},
                      .tensors = {{"model.theirs|again", "ours"}},
                      .ignored = {"unused.*"},
                      .optional_prefix = "model."};
  ModelConfig const model;
  json::object const theirs;
  auto const refusal = [&](std::map<std::string, ForeignTensor> const& tensors) {
    NumberedTensors const source(tensors);
    return message_of<DataError>([&] {
      ImportedTensors const made(source, {family, model, theirs}, {{"ours", {2, 3}}});
    });
  };
  EXPECT_EQ(refusal({{"theirs", {{2, 3}, "float32"}}, {"unused.one", {{7}, "float32"}}}), "");
  EXPECT_EQ(refusal({{"model.theirs", {{2, 3}, "float32"}}}), "");
  expect_contains(refusal({{"theirs", {{3, 2}, "float32"}}}), "has the shape [3, 2]");
  expect_contains(refusal({{"other", {{2, 3}, "float32"}}}), "there is no tensor model.theirs");
  expect_contains(refusal({{"theirs", {{3, 2}, "float32"}}, {"extra", {{1}, "float32"}}}),
                  {"has the shape [3, 2]", "unexpected tensor extra"});
  EXPECT_EQ(refusal({{"theirs", {{2, 3}, "float32"}}, {"again", {{2, 3}, "float32"}}}), "");
  expect_contains(refusal({{"theirs", {{2, 3}, "float32"}}, {"again", {{3, 2}, "float32"}}}),
                  "the tensor again is not the copy of theirs");
}

}  // namespace
}  // namespace heddle
