
#include <heddle/io/files/sha256.hpp>
#include <heddle/io/tensors/manifest.hpp>

#include "checkpoint_fixture.hpp"

namespace heddle {
namespace {

/// A checkpoint of which only the values are wanted.
class WantedKeysTest : public CheckpointTest {
 protected:
  WantedKeysTest() {
    SampleState sample(1);
    sample.add("huge", {9, 1 << 18}, 1, true);  // 9 MiB a key: its values and its moments have blocks of their own
    directory_ = sample.commit_to(store()).directory;
  }

  static Checkpoint open_values(fs::path const& directory) {
    return Checkpoint::open(directory, Communicator::self(), {value_key});
  }
  /// Changes a byte of an array.
  void damage_array(std::string const& key) const {
    TensorInfo const tensor = Checkpoint::open(directory_).tensor("huge");
    std::string bytes = read_whole(directory_ / "tensors-00000.h5");
    std::size_t const middle = (std::size_t{9} << 20) / 2;
    auto const place = static_cast<std::size_t>(tensor.offsets[tensor.find(key).value()]) + middle;
    bytes[place] = static_cast<char>(bytes[place] ^ 1);
    write_file(directory_ / "tensors-00000.h5", bytes);
  }

  fs::path directory_;
};

// Smaller arrays lie together somewhere.
TEST_F(WantedKeysTest, ValuesOfFourKibibytesAndMoreComeBeforeEverythingElseOfThatSize) {
  Checkpoint const checkpoint = Checkpoint::open(directory_);
  std::int64_t last_value = 0;
  std::int64_t first_moment = std::int64_t{1} << 40;
  for (TensorInfo const& tensor : checkpoint.tensors()) {
    for (std::size_t key = 0; key < tensor.keys.size() && tensor.elements() >= 1024; ++key) {
      last_value = key == 0 ? std::max(last_value, tensor.offsets[key]) : last_value;
      first_moment = key == 0 ? first_moment : std::min(first_moment, tensor.offsets[key]);
    }
  }
  EXPECT_LT(last_value, first_moment);
}

TEST_F(WantedKeysTest, OthersAreNeitherVerifiedNorRead) {
  damage_array("adam.second_moment");
  expect_data_error([&] { Checkpoint::open(directory_); }, "SHA-256");
  Checkpoint const checkpoint = open_values(directory_);
  SampleState expected(1);
  expected.add("huge", {9, 1 << 18}, 1, true);
  expect_same_bits(checkpoint.read("huge"), expected.tensors().parts(4)[0]);
  for (std::string const key : {"adam.first_moment", "adam.second_moment"}) {
    expect_error([&] { checkpoint.read("huge", key); },
                 "its " + key + " was not verified, because it was opened without that key");
  }
}

TEST_F(WantedKeysTest, WhatIsWantedIsVerifiedAsStrictlyAsAll) {
  damage_array(value_key);
  expect_data_error([&] { open_values(directory_); }, "SHA-256");
}

TEST_F(WantedKeysTest, AFileThatIsMissingOrOfAnotherLengthIsNoticed) {
  fs::resize_file(directory_ / "tensors-00000.h5", fs::file_size(directory_ / "tensors-00000.h5") - 1);
  expect_data_error([&] { open_values(directory_); }, "has");
  fs::remove(directory_ / "tensors-00000.h5");
  EXPECT_NE(message_of<DataError>([&] { open_values(directory_); }), "");
}

TEST_F(CheckpointTest, AnyKeysAreStored) {
  SampleState sample(1);
  sample.tensors().add({"w", {2}, {value_key, "lion.momentum", "another rule's"}}, {{{1, 2}, {-3, 4}, {5, -6}}});
  Checkpoint const checkpoint = Checkpoint::open(sample.commit_to(store()).directory);
  EXPECT_THAT(checkpoint.tensor("w").keys, ElementsAre(value_key, "lion.momentum", "another rule's"));
  EXPECT_THAT(checkpoint.read("w", "lion.momentum"), ElementsAre(-3, 4));
  EXPECT_THAT(checkpoint.read("w", "another rule's"), ElementsAre(5, -6));
  for (std::vector<std::string> const& wrong : std::vector<std::vector<std::string>>{{},
                                                                                     {"momentum"},
                                                                                     {"momentum", value_key},
                                                                                     {value_key, "a", "a"},
                                                                                     {value_key, ""},
                                                                                     {value_key, "a/b"},
                                                                                     {value_key, ".a"}}) {
    SampleState other(2);
    other.tensors().add({"w", {2}, wrong}, {});
    expect_error([&] { other.commit_to(store()); }, "parameter 'w' does not have");
  }
}

TEST_F(CheckpointTest, ReadersOfValuesGetTheAveragesUnlessTheValuesWereBetter) {
  for (bool const values_better : {false, true}) {
    SampleState sample(values_better ? 2 : 1);
    sample.contents().state.values_better = values_better;
    sample.tensors().add({"w", {2}, {value_key, "lion.momentum", average_key}}, {{{1, 2}, {-3, 4}, {5, -6}}});
    fs::path const directory = sample.commit_to(store()).directory;
    Checkpoint const values = Checkpoint::open(directory, Communicator::self(), {value_key});
    EXPECT_THAT(values.read("w"), values_better ? ElementsAre(1, 2) : ElementsAre(5, -6));
    Checkpoint const whole = Checkpoint::open(directory);  // as training that resumes opens it
    EXPECT_THAT(whole.read("w"), ElementsAre(1, 2));
    EXPECT_THAT(whole.read("w", average_key), ElementsAre(5, -6));
    EXPECT_EQ(whole.state().values_better, values_better);
  }
  SampleState young(3);  // an average that begins with the next update
  young.contents().state_begins["w"] = 3;
  young.tensors().add({"w", {2}, {value_key, average_key}}, {{{1, 2}, {0, 0}}});
  fs::path const directory = young.commit_to(store()).directory;
  EXPECT_THAT(Checkpoint::open(directory, Communicator::self(), {value_key}).read("w"), ElementsAre(1, 2));
}

TEST_F(CheckpointTest, ArraysMayHaveAnotherShapeThanTheValue) {
  SampleState sample(1);
  EXPECT_THAT(read_whole(sample.commit_to(store()).directory / "state.h5"),
              HasSubstr("\"index\":{\"version\":2,\"optional\":false}"))
      << "usual checkpoints stay as they were";
  SampleState other(2);
  StreamedTensor const w{"w", {3, 2}, {value_key, "f.rows", "f.second_moment"}, {{"f.rows", {3}}}};
  other.tensors().add(w, {{{1, 2, 3, 4, 5, 6}, {-7, 8, 9}, {6, 5, 4, 3, 2, 1}}});
  fs::path const directory = other.commit_to(store()).directory;
  expect_contains(read_whole(directory / "state.h5"), "\"index\":{\"version\":3,\"optional\":false}");
  Checkpoint const checkpoint = Checkpoint::open(directory);
  TensorInfo const& tensor = checkpoint.tensor("w");
  EXPECT_EQ(tensor.other_shapes, w.other_shapes);
  EXPECT_EQ(tensor.elements("f.rows"), 3);
  EXPECT_EQ(tensor.bytes(), 15 * 4);
  EXPECT_THAT(checkpoint.read("w"), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(checkpoint.read("w", "f.rows"), ElementsAre(-7, 8, 9));
  EXPECT_THAT(checkpoint.read(TensorSlice{"w", "f.rows", {{1, 3}}}), ElementsAre(8, 9));
  EXPECT_THAT(checkpoint.read({.name = "w", .key = "f.rows", .elements = IndexRange{1, 2}}), ElementsAre(8));
  EXPECT_THAT(checkpoint.read("w", "f.second_moment"), ElementsAre(6, 5, 4, 3, 2, 1));
  EXPECT_EQ(slabs_of(tensor, "f.rows", 2).size(), 2U);
  expect_error([&] { checkpoint.read(TensorSlice{"w", "f.rows", {{0, 3}, {0, 1}}}); }, "has no axis 1");
  expect_data_error([&] { checkpoint.read({.name = "w", .key = "f.rows", .elements = IndexRange{1, 4}}); }, "'w'");
  using Shapes = std::map<std::string, std::vector<std::int64_t>>;
  for (Shapes const& wrong :
       {Shapes{{value_key, {6}}}, {{"f.columns", {2}}}, {{"f.rows", {}}}, {{"f.rows", {1, 1, 1, 1, 1, 1, 1, 1, 3}}}}) {
    SampleState refused(3);
    refused.tensors().add({w.name, w.shape, w.keys, wrong}, {});
    expect_error([&] { refused.commit_to(store()); }, "parameter 'w'");
  }
}

/// The digest of everything that a checkpoint holds: names, shapes, keys, numbers, and the training state.
std::string digest_of_content(Checkpoint const& checkpoint) {
  Sha256 hash;
  auto const add = [&](void const* bytes, std::size_t count) {
    hash.update({static_cast<std::uint8_t const*>(bytes), count});
  };
  auto const add_text = [&](std::string const& text) { add(text.data(), text.size() + 1); };
  for (TensorInfo const& tensor : checkpoint.tensors()) {
    add_text(tensor.name);
    add(tensor.shape.data(), tensor.shape.size() * sizeof tensor.shape.front());
    for (std::string const& key : tensor.keys) {
      add_text(key);
      std::vector<float> const numbers = checkpoint.read(tensor.name, key);
      add(numbers.data(), numbers.size() * sizeof(float));
    }
  }
  CheckpointContents const& contents = checkpoint.contents();
  TrainingState const& state = contents.state;
  add_text(fmt::format("{} {} {} {} {}", state.step, state.epoch, state.position, state.tokens, state.seed));
  for (std::string const* text : {&contents.source_model, &contents.target_model, &contents.dataset,
                                  &contents.valid_dataset, &contents.instruction_set}) {
    add_text(*text);
  }
  add(contents.losses.recent.data(), contents.losses.recent.size() * sizeof(double));
  return hash.finish();
}

/// The same state of one small run, written in each format that is read. Nothing here may change: these files stand for
/// those that users have.
TEST(CheckpointFormatsTest, EveryFormatIsReadBitByBit) {
  std::vector<std::string> digests;
  for (std::int64_t version = oldest_checkpoint_format_version; version <= checkpoint_format_version; ++version) {
    fs::path const directory =
        fs::path(HEDDLE_TEST_DATA) / "checkpoints" / ("format-" + std::to_string(version)) / "step-00000004";
    ASSERT_EQ(read_manifest(directory).version, version);
    Checkpoint const checkpoint = Checkpoint::open(directory);
    EXPECT_EQ(checkpoint.state().step, 4);
    EXPECT_EQ(checkpoint.tensor("embedding.weight").keys, adam_keys);
    EXPECT_EQ(digest_of_content(checkpoint), "d62a9997e884c207120fc9e0249e875c8eaaba66ca93336cfcb93e8de1e85f97")
        << "format " << version;
  }
}

}  // namespace
}  // namespace heddle
