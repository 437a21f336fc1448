#include "run/checkpoints/checkpoint.hpp"

#include <heddle/core/config/config.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/samples/mixture.hpp>

#include "golden_model.hpp"
#include "test.hpp"

namespace heddle {
namespace {

/// Tensors of zeros, without moments.
class Zeros final : public TensorStream {
 public:
  explicit Zeros(ParameterSet const& parameters) {
    for (Parameter const& parameter : parameters.all()) {
      tensors_.push_back({parameter.spec.name, parameter.global_shape().to_vector()});
    }
  }
  std::vector<StreamedTensor> const& tensors() const override { return tensors_; }
  void send(TensorChunk const&, int) override { ADD_FAILURE() << "there is no other rank"; }
  void receive(TensorChunk const&, std::span<float> elements) override { std::ranges::fill(elements, 0.0F); }
  void wait() override {}

 private:
  std::vector<StreamedTensor> tensors_;
};

Config config_of(std::string const& keys) {
  return parse_config("[model]\nencoder_layers = 1\ndecoder_layers = 1\nd_model = 8\nd_ff = 8\nheads = 2\n" + keys,
                      "test");
}

/// A checkpoint of a small model whose configuration, as anybody can write it, need not be the model's.
class StoredConfigTest : public testing::Test {
 protected:
  Checkpoint checkpoint(Config const& stored, std::uint64_t seed = 1,
                        MixtureCursor const& cursor = {.corpora = {SampleCursor()}}) {
    Zeros tensors(model_.parameters);
    CheckpointContents contents;
    contents.state.step = ++step_;
    contents.state.seed = seed;
    contents.config = to_toml(stored);
    set_data_cursor(contents, cursor);
    CheckpointStore store(directory_.path(), 3);
    return Checkpoint::open(store.commit(Communicator::self(), contents, tensors, 1).directory);
  }
  /// The error before a model of the stored configuration is built; "" where it may be built.
  std::string description_error(Config const& stored) {
    Checkpoint const found = checkpoint(stored);
    return message_of<DataError>([&] { check_description(found, description_of(stored_config(found).model)); });
  }
  /// The error before the memory of its parameters is allocated.
  std::string parameter_error(Config const& stored) {
    Checkpoint const found = checkpoint(stored);
    TestModelWithoutMemory const other(stored.model);
    return message_of<DataError>([&] { check_parameters(found, other.parameters); });
  }

  /// A model's parameters as it declares them, without values.
  struct TestModelWithoutMemory {
    explicit TestModelWithoutMemory(ModelConfig const& config)
        : bench(config, DType::float32),
          model(bench.spec("", Side::source), bench.registries().layers, {20, 20, true}),
          parameters(bench.parameters()) {}

    TestBench bench;
    Model model;
    ParameterSet& parameters;
  };

  TemporaryDirectory directory_;
  std::int64_t step_ = 0;
  TestModelWithoutMemory model_{config_of("").model};
};

TEST_F(StoredConfigTest, IsThatOfTheModel) {
  EXPECT_EQ(description_error(config_of("")), "");
  EXPECT_EQ(parameter_error(config_of("")), "");
}

TEST_F(StoredConfigTest, OfMoreLayersOrAnotherWidthIsRefusedBeforeAModelIsBuilt) {
  Config deep = config_of("");
  deep.model.decoder.layers = 4096;
  expect_contains(description_error(deep), "holds no parameter of decoder.layers.1.self_attention");
  Config wide = config_of("");
  wide.model.d_model = 1 << 17;
  expect_contains(description_error(wide),
                  "has rows of 8 numbers; in its configuration, d_model of the encoder is 131072");
}

TEST_F(StoredConfigTest, OfOtherShapesIsRefusedBeforeMemoryIsAllocated) {
  Config wide = config_of("");
  wide.model.d_ff = 1 << 20;
  EXPECT_EQ(description_error(wide), "");
  expect_contains(parameter_error(wide), "the model's configuration gives it [1048576, 8]");
}

TEST_F(StoredConfigTest, OfAnotherSeedThanTheStateIsRefused) {
  Checkpoint const other = checkpoint(config_of("[train]\nseed = 5\n"), 7);
  expect_data_error([&] { stored_config(other); },
                    "was trained with the seed 7, but its configuration has train.seed = 5");
}

TEST_F(StoredConfigTest, OfAModelThatWasMadeIsNotTrainedInItsPlace) {
  Zeros tensors(model_.parameters);
  CheckpointContents contents;
  contents.config = to_toml(config_of(""));
  auto const refusal = [&](std::string const& run) {
    CheckpointStore store(directory_ / run / "checkpoints", 3);
    Checkpoint const found = Checkpoint::open(store.commit(Communicator::self(), contents, tensors, 1).directory);
    return message_of<ConfigError>([&] { require_trained_here(found); });
  };
  expect_contains(refusal("imported"), "--set train.initialize_from=" + (directory_ / "imported").string());
  contents.dataset = "digest";
  EXPECT_EQ(refusal("stopped"), "");
  contents.dataset.clear();
  contents.state.step = 3;
  EXPECT_EQ(refusal("older"), "");
}

TEST_F(StoredConfigTest, StateThatIsNotStoredStartsAtZeroAndIsNamed) {
  Checkpoint const stored = checkpoint(config_of(""));  // of values only
  std::string const name = stored.tensors().front().name;
  EXPECT_THAT(new_state(stored, {{name, {8}}}), IsEmpty());
  EXPECT_THAT(new_state(stored, {{name, {8}, {value_key, "lion.momentum"}}}),
              ElementsAre("note: lion.momentum is not in the checkpoint and starts at zero: " + name));
  std::string const other = stored.tensors().back().name;
  EXPECT_THAT(new_state(stored, {{name, {8}, {value_key, "m"}}, {other, {8}, {value_key, "m"}}}),
              ElementsAre("note: m is not in the checkpoint and starts at zero: all 2 parameters that keep it"));
}

TEST_F(StoredConfigTest, CorporaUnderOtherNamesAreNamed) {
  auto const mixed = [](std::string const& first, std::string const& second) {
    Config config = config_of("");
    config.data.corpora = {{.name = first, .train = {"a.h5"}}, {.name = second, .train = {"b.h5"}}};
    return config;
  };
  auto const notes = [](Checkpoint const& stored, Config const& config) {
    std::vector<std::string> messages = changes_since(stored, config);
    std::erase_if(messages, [](std::string const& message) { return message.starts_with("changed since"); });
    return messages;
  };
  std::string const other = "note: from step 2 on this is another run than the one that was started";
  std::string const gone = ", which is not in the configuration; a corpus continues under its name";
  Checkpoint const stored =
      checkpoint(mixed("news", "web"), 1, {.corpora = {{.corpus = "news"}, {.corpus = "web", .epoch = 3}}});
  EXPECT_THAT(notes(stored, mixed("news", "web")), IsEmpty());
  EXPECT_THAT(notes(stored, mixed("news", "wide")),
              ElementsAre("note: data.corpus.wide is not in the checkpoint and starts from its first sample",
                          "note: the checkpoint has a place in data.corpus.web" + gone, other));
  EXPECT_THAT(notes(stored, config_of("")),
              ElementsAre("note: data.train is not in the checkpoint and starts from its first sample",
                          "note: the checkpoint has a place in data.corpus.news" + gone,
                          "note: the checkpoint has a place in data.corpus.web" + gone, other));
  EXPECT_THAT(notes(checkpoint(config_of("")), config_of("")), IsEmpty());
}

}  // namespace
}  // namespace heddle
