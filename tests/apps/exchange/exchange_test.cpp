#include <boost/json.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/io/formats/safetensors.hpp>

#include "exchange/adapters.hpp"
#include "exchange/exporting.hpp"
#include "exchange/importing.hpp"
#include "kernel_test_support.hpp"

namespace heddle {
namespace {

namespace json = boost::json;

/// A model of tests/golden/exchange and what transformers computes with it: see make_models.py there.
struct Golden {
  std::vector<std::int32_t> source, target;
  std::vector<float> logits;

  explicit Golden(fs::path const& directory) {
    std::ifstream file(directory / "logits.txt");
    auto const numbers = [&](auto& into) {
      std::string line;
      std::getline(file, line);
      std::istringstream words(line);
      for (typename std::remove_reference_t<decltype(into)>::value_type number{}; words >> number;) {
        into.push_back(number);
      }
    };
    numbers(source);
    numbers(target);
    while (file.peek() != EOF) {
      numbers(logits);
    }
  }
};

class ExchangeTest : public KernelTest, public testing::WithParamInterface<char const*> {
 protected:
  fs::path golden(std::string const& family) const { return fs::path(HEDDLE_TEST_DATA) / "exchange" / family; }

  std::vector<float> logits(fs::path const& run, Golden const& golden) {
    TrainedModelOptions options;
    options.checkpoint = run.string();
    options.execution = &execution_;
    return logits_of(*TrainedModel::open(options), golden);
  }

  static std::vector<float> logits_of(TrainedModel& model, Golden const& golden) {
    Sample const pair{0, golden.source, golden.target};
    TokenSequence const sequence{0, golden.target, golden.target};
    ModelConfig const& config = model.config().model;
    Side const side = config.is_decoder_only() ? Side::target : Side::source;
    return model.logits(config.is_encoder_decoder() ? make_pack(std::span(&pair, 1), model.vocabulary().special_ids())
                                                    : make_sequence_pack(std::span(&sequence, 1), side));
  }

  /// A copy of a golden model in which a key of config.json has another value.
  fs::path changed(std::string const& family, std::string const& key, json::value const& value) const {
    fs::path const copy = directory_ / "changed";
    fs::remove_all(copy);
    fs::copy(golden(family), copy);
    json::value config = json::parse(read_whole(copy / "config.json"));
    config.as_object()[key] = value;
    std::ofstream(copy / "config.json") << json::serialize(config);
    return copy;
  }

  TemporaryDirectory directory_;
};

TEST_P(ExchangeTest, AnImportedModelHasTheLogitsOfTransformers) {
  Golden const golden_logits(golden(GetParam()));
  ASSERT_FALSE(golden_logits.logits.empty());
  import_model(execution_, golden(GetParam()), directory_ / "run");
  std::vector<float> const found = logits(directory_ / "run", golden_logits);
  ASSERT_EQ(found.size(), golden_logits.logits.size());
  for (std::size_t index = 0; index < found.size(); ++index) {
    ASSERT_NEAR(found[index], golden_logits.logits[index], 1e-4) << "logit " << index;
  }
}

TEST_P(ExchangeTest, AnExportHasTheTensorsAndTheVocabularyThatWereImported) {
  import_model(execution_, golden(GetParam()), directory_ / "run");
  ExportOptions options;
  options.model.checkpoint = (directory_ / "run").string();
  options.directory = directory_ / "back";
  ExportedModel const exported = export_model(execution_, options);
  EXPECT_EQ(exported.largest_difference, 0.0);
  SafetensorsFiles const before = SafetensorsFiles::open(golden(GetParam()));
  SafetensorsFiles const after = SafetensorsFiles::open(directory_ / "back");
  EXPECT_EQ(before.tensors().size(), after.tensors().size());
  for (auto const& [name, tensor] : before.tensors()) {
    ASSERT_TRUE(after.tensors().contains(name)) << name;
    std::vector<float> old_values(static_cast<std::size_t>(tensor.elements()));
    std::vector<float> new_values(old_values.size());
    before.read(name, {0, tensor.elements()}, old_values);
    after.read(name, {0, tensor.elements()}, new_values);
    EXPECT_EQ(old_values, new_values) << name;
  }
  for (char const* const name : {"spiece.model", "source.spm", "tokenizer.model", "sentencepiece.bpe.model",
                                 "vocab.txt", "tokenizer.json", "tokenizer_config.json"}) {
    EXPECT_EQ(read_whole(golden(GetParam()) / name), read_whole(directory_ / "back" / name)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ExchangeTest,
                         testing::Values("marian", "t5-v1.1", "nllb", "mistral", "llama-bpe", "gpt2", "gemma2",
                                         "qwen2-windows", "bert", "roberta", "xlm-roberta", "umt5", "marian-separate",
                                         "distilbert", "opt", "phi3", "starcoder2", "mpt", "bloom", "gemma3"));

TEST_F(ExchangeTest, SpecialPiecesOfEncodersBeginEndAndMask) {
  auto const special = [&](std::string const& family) {
    import_model(execution_, golden(family), directory_ / family);
    TrainedModelOptions options;
    options.checkpoint = (directory_ / family).string();
    options.execution = &execution_;
    Tokenizer const vocabulary = TrainedModel::open(options)->vocabulary().source;
    SpecialIds const& ids = vocabulary.special_ids();
    return vocabulary.piece(ids.begin) + vocabulary.piece(ids.end) + vocabulary.piece(ids.mask) +
           vocabulary.piece(ids.padding) + vocabulary.piece(ids.unknown);
  };
  EXPECT_EQ(special("bert"), "[CLS][SEP][MASK][PAD][UNK]");
  EXPECT_EQ(special("roberta"), "<s></s><mask><pad><unk>");
  EXPECT_EQ(special("xlm-roberta"), "<s></s><mask><pad><unk>");
}

TEST_F(ExchangeTest, ADecoderStartsFromTheTokenOfTheGenerationConfiguration) {
  auto const start_of_run = [&](json::value const& start) {
    fs::path const model = changed("marian", "decoder_start_token_id", 5);
    fs::remove_all(directory_ / "run");
    json::object generation = json::parse(read_whole(model / "generation_config.json")).as_object();
    generation["decoder_start_token_id"] = start;
    std::ofstream(model / "generation_config.json") << json::serialize(generation);
    import_model(execution_, model, directory_ / "run");
    return Tokenizer::from_model(read_whole(directory_ / "run" / "target.model")).special_ids().begin;
  };
  EXPECT_EQ(start_of_run(90), 90);
  EXPECT_EQ(start_of_run(nullptr), 5);
}

TEST_F(ExchangeTest, ParametersThatTheOtherSystemLacksAreFrozen) {
  import_model(execution_, golden("mpt"), directory_ / "run");
  Config const config = load_config(directory_ / "run" / "config.toml");
  ASSERT_EQ(config.optimizer.groups.size(), 1U);
  EXPECT_TRUE(config.optimizer.groups.front().rule.frozen);
  EXPECT_THAT(config.optimizer.groups.front().parameters, Contains("decoder.layers.*.self_attention.norm.bias"));
}

TEST_F(ExchangeTest, TheDecayOfAGroupIsLeftOutUnlessItWasGiven) {
  auto const decay = [&](std::vector<std::string> overrides) {
    fs::remove_all(directory_ / "run");
    overrides.emplace_back("optimizer.group.mine.parameters=[\"decoder.norm.weight\"]");
    import_model(execution_, golden("mpt"), directory_ / "run", {.overrides = overrides});
    Config const config = load_config(directory_ / "run" / "config.toml", {"optimizer.weight_decay=0.5"});
    std::map<std::string, double> decays;
    for (ParameterGroup const& group : config.optimizer.groups) {
      decays[group.name] = group.rule.weight_decay;
    }
    return decays;
  };
  using Decays = std::map<std::string, double>;
  EXPECT_EQ(decay({"optimizer.weight_decay=0.1", "optimizer.group.mine.weight_decay=0.0"}),
            (Decays{{"import1", 0.5}, {"mine", 0.0}}));
}

TEST_F(ExchangeTest, NormsMayHaveTheNamesOfTheFirstFiles) {
  fs::path const old = directory_ / "old";
  fs::copy(golden("bert"), old);
  std::string file = read_whole(old / "model.safetensors");
  std::size_t const header = file.find("\"bert.embeddings.LayerNorm.bias\"");
  ASSERT_NE(header, std::string::npos);
  file.replace(header, 32, "\"bert.embeddings.LayerNorm.beta\"");
  std::ofstream(old / "model.safetensors", std::ios::binary) << file;
  import_model(execution_, golden("bert"), directory_ / "run");
  import_model(execution_, old, directory_ / "old_run");
  Golden const expected(golden("bert"));
  EXPECT_EQ(logits(directory_ / "old_run", expected), logits(directory_ / "run", expected));
}

class AdapterExchangeTest : public ExchangeTest {
 protected:
  fs::path adapter() const { return golden(GetParam() + std::string("-lora")); }
  void expect_logits_of_peft(fs::path const& run) {
    Golden const expected(adapter());
    std::vector<float> const found = logits(run, expected);
    ASSERT_EQ(found.size(), expected.logits.size());
    for (std::size_t index = 0; index < found.size(); ++index) {
      ASSERT_NEAR(found[index], expected.logits[index], 1e-4) << "logit " << index;
    }
  }
  void import_adapter(bool with_base) {
    import_model(execution_, golden(GetParam()), directory_ / "base");
    import_peft(execution_, adapter(), (directory_ / "base").string(), directory_ / "run",
                {.overrides = {fmt::format("adapter.save_base={}", with_base)}});
  }
  void export_run(std::string const& format) {
    ExportOptions options;
    options.model.checkpoint = (directory_ / "run").string();
    options.directory = directory_ / "back";
    options.format = format;
    options.merge = format != "peft";
    EXPECT_LT(export_model(execution_, options).largest_difference, 1e-4);
  }
};

TEST_P(AdapterExchangeTest, AnImportedAdapterHasTheLogitsOfPEFT) {
  import_adapter(false);
  expect_logits_of_peft(directory_ / "run");
  Golden const plain(golden(GetParam()));
  Golden const adapted(adapter());
  double moved = 0;
  for (std::size_t index = 0; index < plain.logits.size(); ++index) {
    moved = std::max(moved, std::abs(static_cast<double>(plain.logits[index]) - adapted.logits[index]));
  }
  EXPECT_GT(moved, 0.1);
}

TEST_P(AdapterExchangeTest, SeveralOnOneBaseComputeAsEachAloneAndShareTheBase) {
  import_adapter(false);
  TrainedModelOptions options;
  options.checkpoint = (directory_ / "base").string();
  options.execution = &execution_;
  options.adapters = {{"run", (directory_ / "run").string()}};
  for (auto const& [name, setting] : {std::pair{"stronger", "adapter.alpha=40"},
                                      {"rounded", "train.frozen_precision=bfloat16"},
                                      {"rounded_too", "train.frozen_precision=bfloat16"}}) {
    options.adapters[name] = (directory_ / name).string();
    import_peft(execution_, adapter(), options.checkpoint, directory_ / name,
                {.overrides = {"adapter.save_base=false", setting}});
  }
  auto const model = TrainedModel::open(options);
  EXPECT_THAT(model->adapters(), ElementsAre("rounded", "rounded_too", "run", "stronger"));
  Golden const probe(adapter());
  std::vector<std::vector<float>> found{logits_of(*model, probe)};
  EXPECT_EQ(found.front(), logits(options.checkpoint, probe));
  for (auto const& [name, run] : options.adapters) {
    EXPECT_EQ(logits_of(model->with_adapter(name), probe), logits(run, probe)) << name;
    found.push_back(logits_of(model->with_adapter(name), probe));
    EXPECT_EQ(model->with_adapter(name).value_bytes() < model->value_bytes() / 2, name != "rounded") << name;
  }
  EXPECT_EQ(found[1], found[2]);
  EXPECT_NE(found[1], found[3]);
  EXPECT_NE(found[3], found[4]);
  EXPECT_NE(found[3], found[0]);
  EXPECT_EQ(found.front(), logits_of(model->with_adapter(""), probe)) << "after the others have computed";
  EXPECT_THROW(model->with_adapter("other"), UsageError);
}

TEST_P(AdapterExchangeTest, AnExportHasTheAdapterThatWasImported) {
  import_adapter(true);
  export_run("peft");
  SafetensorsFiles const before = SafetensorsFiles::open(adapter() / "adapter_model.safetensors");
  SafetensorsFiles const after = SafetensorsFiles::open(directory_ / "back" / "adapter_model.safetensors");
  ASSERT_EQ(before.tensors().size(), after.tensors().size());
  for (auto const& [name, tensor] : before.tensors()) {
    ASSERT_TRUE(after.tensors().contains(name)) << name;
    std::vector<float> old_values(static_cast<std::size_t>(tensor.elements()));
    std::vector<float> new_values(old_values.size());
    before.read(name, {0, tensor.elements()}, old_values);
    after.read(name, {0, tensor.elements()}, new_values);
    EXPECT_EQ(old_values, new_values) << name;
  }
}

TEST_P(AdapterExchangeTest, AnExportNamesItsBaseAsItWasPublished) {
  auto const base_of = [&](fs::path const& directory) {
    return json::parse(read_whole(directory / "adapter_config.json")).at("base_model_name_or_path");
  };
  ExportOptions options;
  options.format = "peft";
  options.model.checkpoint = (directory_ / "run").string();
  for (auto const& [name, expected] : {std::pair("group/model", "group/model"), {"/local/model", "changed"}}) {
    for (char const* const place : {"base", "run", "named"}) {
      fs::remove_all(directory_ / place);
    }
    import_model(execution_, changed(GetParam(), "_name_or_path", name), directory_ / "base");
    import_peft(execution_, adapter(), (directory_ / "base").string(), directory_ / "run");
    options.directory = directory_ / "named";
    export_model(execution_, options);
    EXPECT_EQ(base_of(options.directory), expected);
  }
  options.base = "other/model";
  options.directory = directory_ / "option";
  export_model(execution_, options);
  EXPECT_EQ(base_of(options.directory), "other/model");
}

TEST_P(AdapterExchangeTest, MergedWeightsHaveTheLogitsOfPEFT) {
  import_adapter(true);
  export_run("huggingface");
  import_model(execution_, directory_ / "back", directory_ / "merged");
  expect_logits_of_peft(directory_ / "merged");
}

INSTANTIATE_TEST_SUITE_P(Families, AdapterExchangeTest, testing::Values("marian", "llama-bpe"));

TEST_F(ExchangeTest, AnAdapterThatIsNotComputedOrOfAnotherModelIsRefused) {
  import_model(execution_, golden("marian"), directory_ / "base");
  fs::path const adapter = directory_ / "adapter";
  auto const refusal = [&](std::string const& key, json::value const& value) {
    fs::remove_all(adapter);
    fs::copy(golden("marian-lora"), adapter);
    json::value config = json::parse(read_whole(adapter / "adapter_config.json"));
    config.as_object()[key] = value;
    std::ofstream(adapter / "adapter_config.json") << json::serialize(config);
    return message_of<Error>(
        [&] { import_peft(execution_, adapter, (directory_ / "base").string(), directory_ / "refused"); });
  };
  expect_contains(refusal("use_dora", true),
                  "adapter_config.json: use_dora = true cannot be imported; possible is null or false");
  expect_contains(refusal("bias", "all"), "bias = \"all\" cannot be imported; possible is [\"none\"]");
  expect_contains(refusal("init_lora_weights", "pissa"), "init_lora_weights = \"pissa\" cannot be imported");
  expect_contains(refusal("rank_pattern", {{"fc1", 2}}), "rank_pattern = ");
  expect_contains(refusal("r", 2), "has the shape [3, 16]; adapter_config.json gives it the rank r = 2");
  EXPECT_THAT(refusal("r", 1 << 20), HasSubstr("gives it the rank r = 1048576")) << "at once";
  expect_contains(refusal("r", "x"), "expected the numbers r (at least 1), lora_alpha and lora_dropout");
  expect_contains(refusal("r", 0), "expected the numbers r (at least 1)");
  fs::remove_all(directory_ / "base");
  import_model(execution_, golden("llama-bpe"), directory_ / "base");
  expect_contains(refusal("r", 3), "is not an adapter of a projection of");
  expect_contains(refusal("use_dora", true), "use_dora = true cannot be imported");  // before the tensors
  fs::rename(adapter / "adapter_model.safetensors", adapter / "adapter_model.bin");
  expect_data_error([&] { import_peft(execution_, adapter, (directory_ / "base").string(), directory_ / "refused"); },
                    "adapter_model.bin: is a pickle");
  EXPECT_FALSE(fs::exists(directory_ / "refused"));
}

TEST_F(ExchangeTest, AnAdapterWithNumbersThatAreNotFiniteIsBadData) {
  import_model(execution_, golden("marian"), directory_ / "base");
  fs::path const adapter = directory_ / "adapter";
  fs::copy(golden("marian-lora"), adapter);
  std::string bytes = read_whole(adapter / "adapter_model.safetensors");
  bytes.replace(bytes.size() - 4, 4, "\xff\xff\xff\x7f");
  std::ofstream(adapter / "adapter_model.safetensors", std::ios::binary) << bytes;
  expect_data_error(
      [&] { import_peft(execution_, adapter, (directory_ / "base").string(), directory_ / "new" / "refused"); },
      "nan at element");
  EXPECT_FALSE(fs::exists(directory_ / "new"));
}

TEST_F(ExchangeTest, AnAdapterWhoseProbeFailsLeavesNoRun) {
  import_model(execution_, golden("marian"), directory_ / "base");
  expect_config_error(
      [&] {
        import_peft(execution_, golden("marian-lora"), (directory_ / "base").string(), directory_ / "refused",
                    {.overrides = {"kernels.gemm=unknown"}, .probe = true});
      },
      "unknown");
  EXPECT_FALSE(fs::exists(directory_ / "refused"));
}

TEST_F(ExchangeTest, AKeyThatTheLayersCannotComputeIsNamed) {
  auto const refusal = [&](std::string const& family, std::string const& key, json::value const& value) {
    return message_of<ConfigError>(
        [&] { import_model(execution_, changed(family, key, value), directory_ / "refused"); });
  };
  expect_contains(refusal("mistral", "rope_scaling", {{"rope_type", "longrope"}}), "rope_scaling.rope_type");
  expect_contains(refusal("mistral", "mlp_bias", true), "mlp_bias = true");
  expect_contains(refusal("roberta", "pad_token_id", 0), "pad_token_id = 0");
  expect_contains(refusal("roberta", "hidden_act", "relu"), "hidden_act = \"relu\"");
  expect_contains(refusal("bert", "is_decoder", true), "is_decoder = true");
  expect_contains(refusal("marian", "activation_function", "tanh"), "activation_function = \"tanh\"");
  expect_contains(refusal("marian", "d_model", 0), "config.json gives model.d_model=0: model.d_model is");
  expect_contains(refusal("marian", "d_model", 15), "d_model = 15 cannot be imported");
  expect_contains(refusal("marian", "encoder_attention_heads", 5),
                  "config.json gives model.encoder.heads=5: model.encoder.heads = 5 does not divide");
  expect_contains(refusal("marian", "quantization_config", {{"quant_method", "gptq"}}),
                  "quantization_config = {\"quant_method\":\"gptq\"}: quantized weights cannot be imported");
  for (auto const& [type, reason] : {std::pair("albert", ": its layers share their weights"),
                                     {"deberta-v2", ": its attention keeps positions apart"},
                                     {"falcon_mamba", "; possible are: t5, mt5"},
                                     {"unheard_of", "; possible are: t5, mt5"}}) {
    expect_data_error(
        [&] { import_model(execution_, changed("bert", "model_type", json::string(type)), directory_ / "refused"); },
        fmt::format("\"{}\" cannot be imported{}", type, reason));
  }
  EXPECT_FALSE(fs::exists(directory_ / "refused" / "checkpoints"));
}

TEST_F(ExchangeTest, TensorsOfAnotherModelAreRefused) {
  auto const refusal = [&](std::string const& key, json::value const& value) {
    return message_of<DataError>(
        [&] { import_model(execution_, changed("marian", key, value), directory_ / "refused"); });
  };
  expect_contains(refusal("encoder_layers", 2),
                  {(directory_ / "changed").string() + ": there is no tensor model.encoder.layers.1.",
                   "must have been saved with its head, as MarianMTModel"});
  expect_data_error([&] { import_model(execution_, golden("marian") / "model.safetensors", directory_ / "refused"); },
                    "model.safetensors: is a file; give its directory");
  expect_contains(refusal("encoder_layers", 0), "model.encoder.layers.0.");
  expect_contains(refusal("encoder_ffn_dim", 8), "has the shape");
}

TEST_F(ExchangeTest, PlainTensorsHaveOurNamesAndShapesInAsManyFilesAsAreAskedFor) {
  import_model(execution_, golden("marian"), directory_ / "run");
  ExportOptions options;
  options.model.checkpoint = (directory_ / "run").string();
  options.directory = directory_ / "plain";
  options.format = "safetensors";
  options.max_shard_bytes = 4000;
  EXPECT_EQ(export_model(execution_, options).largest_difference, 0.0);
  EXPECT_FALSE(fs::exists(directory_ / "plain" / "probe"));
  EXPECT_TRUE(fs::exists(directory_ / "plain" / "model.safetensors.index.json"));
  SafetensorsFiles const files = SafetensorsFiles::open(directory_ / "plain");
  Checkpoint const checkpoint = std::move(open_checkpoints(options.model).checkpoints.front());
  ASSERT_EQ(files.tensors().size(), checkpoint.tensors().size());
  for (TensorInfo const& tensor : checkpoint.tensors()) {
    ASSERT_TRUE(files.tensors().contains(tensor.name)) << tensor.name;
    EXPECT_EQ(files.tensors().at(tensor.name).shape, tensor.shape);
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    files.read(tensor.name, {0, tensor.elements()}, values);
    EXPECT_EQ(values, checkpoint.read(tensor.name)) << tensor.name;
  }
  json::value const config = json::parse(read_whole(directory_ / "plain" / "config.json"));
  EXPECT_EQ(config.at("model.d_model"), 16);
  EXPECT_EQ(config.at("model.position_layout"), "halves");
  EXPECT_EQ(read_whole(directory_ / "plain" / "source.model"), checkpoint.contents().source_model);
}

TEST_F(ExchangeTest, KeysOfGenerationGoOutAsTheyCameIn) {
  fs::path const theirs = changed("marian", "num_beams", 6);
  fs::remove(theirs / "generation_config.json");
  import_model(execution_, theirs, directory_ / "run");
  ExportOptions options;
  options.model.checkpoint = (directory_ / "run").string();
  options.directory = directory_ / "back";
  export_model(execution_, options);
  EXPECT_EQ(json::parse(read_whole(directory_ / "back" / "config.json")).at("num_beams"), 6);
  EXPECT_FALSE(fs::exists(directory_ / "back" / "generation_config.json"));
}

TEST_F(ExchangeTest, OptionsThatAFormatHasNotAreRefused) {
  ExportOptions options;
  options.directory = directory_ / "out";
  auto const refusal = [&](std::string const& format) {
    options.format = format;
    return message_of<UsageError>([&] { export_model(execution_, options); });
  };
  expect_contains(refusal("onnx"), "--format onnx: possible are huggingface, safetensors, heddle, marian");
  options.family = "t5";
  expect_contains(refusal("ctranslate2"), "--family is for the formats huggingface and peft");
  options.family = "";
  options.base = "name";
  expect_contains(refusal("huggingface"), "--base is for --format peft");
  options.base = "";
  options.max_shard_bytes = 1000;
  expect_contains(refusal("heddle"), "--max-shard-size is for the formats huggingface and safetensors");
}

TEST_F(ExchangeTest, AllKeysThatKeepAModelFromTheNearestFamilyAreNamed) {
  import_model(execution_, golden("marian"), directory_ / "run");
  Tokenizer const tokenizer = Tokenizer::from_model(read_whole(directory_ / "run" / "source.model"));
  auto const nearest = [&](std::vector<std::string> const& settings) {
    return nearest_family(parse_config("", "test", settings), {tokenizer, tokenizer});
  };
  auto const [family, obstacles] = nearest({"model.activation=swiglu", "model.norm_epsilon=1e-6"});
  EXPECT_EQ(family->model_type, "marian");
  EXPECT_THAT(
      obstacles,
      ElementsAre("model.activation = swiglu: a model of the family marian has relu or gelu or gelu_tanh or silu",
                  "model.norm_epsilon = 1e-06: a model of the family marian has 1e-05"));
  EXPECT_THAT(nearest({}).second, ElementsAre());
  EXPECT_THAT(nearest({"model.position_layout=halves", "model.position_frequencies=paper"}).second, ElementsAre());
  EXPECT_EQ(nearest({"model.norm=pre"}).first->model_type, "pegasus") << "it has all keys";
}

TEST_F(ExchangeTest, AFamilyThatCannotHaveTheModelNamesTheKey) {
  import_model(execution_, golden("marian"), directory_ / "run");
  ExportOptions options;
  options.model.checkpoint = (directory_ / "run").string();
  options.directory = directory_ / "back";
  options.family = "t5";
  expect_config_error([&] { export_model(execution_, options); },
                      {"model.biases", "model.norm_kind", "model.positions"});
  EXPECT_FALSE(fs::exists(directory_ / "back"));
}

}  // namespace
}  // namespace heddle
