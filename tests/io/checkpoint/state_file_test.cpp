#include "checkpoint/state_file.hpp"

#include "test.hpp"

namespace heddle {
namespace {

constexpr std::int64_t huge = std::int64_t{1} << 62;

/// Reads a file of these bytes, beside a file of tensors of that length.
CheckpointIndex read(std::string const& bytes, std::int64_t tensor_file_bytes) {
  return read_state_file({reinterpret_cast<std::uint8_t const*>(bytes.data()), bytes.size()}, "state.h5",
                         {tensor_file_bytes});
}

/// The error on reading the file of this content; "" where there is none.
std::string read_error(CheckpointIndex const& index, std::int64_t tensor_file_bytes) {
  return message_of<DataError>([&] { read(state_file_bytes(index), tensor_file_bytes); });
}

/// The error on reading a state of step 1 with this change.
template <class Change>
std::string state_error(Change change) {
  CheckpointIndex index;
  index.contents.state.step = 1;
  change(index.contents.state);
  return read_error(index, 0);
}

TEST(StateFileTest, RejectsNumbersThatNoTrainingLeaves) {
  EXPECT_EQ(state_error([](TrainingState&) {}), "");
  expect_contains(state_error([](auto& state) { state.epoch = (1 << 20) + 2; }), "epochs up to the step + 1048576");
  EXPECT_EQ(state_error([](auto& state) { state.epoch = (1 << 20) + 1; }), "");
  expect_contains(state_error([](auto& state) { state.step = huge; }), "steps go up to 2147483647");
  expect_contains(state_error([](auto& state) { state.tokens = huge; }), "tokens in 1 steps are impossible");
  expect_contains(state_error([](auto& state) { state.validations_without_improvement = 2; }), "is impossible");
  for (double const seconds : {std::nan(""), -1.0, std::numeric_limits<double>::infinity()}) {
    expect_contains(state_error([&](auto& state) { state.seconds = seconds; }), "expected a finite number from 0");
  }
  expect_contains(state_error([](auto& state) { state.best_value = std::nan(""); }),
                  "best_valid_loss = nan is impossible");
}

TEST(StateFileTest, TensorsFillTheirFile) {
  CheckpointIndex const one{{}, {{{"a", {100, 100}}, 0, {4096}}}};
  EXPECT_EQ(read_error(one, 44096), "");
  expect_contains(read_error(one, std::int64_t{1} << 40), "tensors-00000.h5 has 1099511627776 bytes, its tensors");
  CheckpointIndex two = one;
  two.tensors.push_back({{"b", {100, 100}}, 0, {4096}});
  expect_contains(read_error(two, 44096), "the tensors of tensors-00000.h5 have more bytes than the file");
  two.tensors.back().offsets = {44096};
  EXPECT_EQ(read_error(two, 84096), "");
}

TEST(StateFileTest, EachArrayHasAPossibleShape) {
  CheckpointIndex index{{}, {{{"a", {100, 100}, {value_key, "f.rows"}, {{"f.rows", {100}}}}, 0, {4096, 44096}}}};
  EXPECT_EQ(read_error(index, 44496), "");
  expect_contains(read_error(index, 44495), "a's f.rows would extend past the end of its file");
  index.tensors.front().other_shapes["f.rows"] = {-1};
  expect_contains(read_error(index, 44496), "a has the impossible shape [-1]");
  index.tensors.front().other_shapes["f.rows"] = {huge, huge};
  expect_contains(read_error(index, 44496), "a has the impossible shape");
  index.tensors.front().other_shapes = {{"f.columns", {1}}};
  expect_contains(read_error(index, 84096), "names another shape for 'f.columns', which is not its state");
}

/// A state file with a text in its list of fields in place of another one of the same length.
std::string with_fields(std::string const& from, std::string const& to) {
  CheckpointIndex index;
  index.contents.losses.recent = {1.5};
  index.contents.dataset = "d";
  std::string bytes = state_file_bytes(index);
  std::size_t const place = bytes.find(from);
  EXPECT_NE(place, bytes.npos) << from;
  return bytes.replace(place, from.size(), to);
}

TEST(StateFileTest, FieldsThatItDoesNotKnowAreSkippedOnlyIfTheyAreOptional) {
  auto const error = [](std::string const& from, std::string const& to) {
    return message_of<DataError>([&] { read(with_fields(from, to), 0); });
  };
  CheckpointIndex const whole = read(with_fields("\"training\"", "\"training\""), 0);
  EXPECT_EQ(whole.contents.losses.recent.size(), 1U);
  EXPECT_EQ(whole.contents.dataset, "d");
  // An unknown name, a version that is newer than the known one, and one that never was.
  for (std::string const listed :
       {"\"lasses\":{\"version\":1", "\"losses\":{\"version\":2", "\"losses\":{\"version\":0"}) {
    CheckpointIndex const left = read(with_fields("\"losses\":{\"version\":1", listed), 0);
    EXPECT_TRUE(left.contents.losses.recent.empty()) << listed;
    EXPECT_EQ(left.contents.dataset, "d") << listed;
  }
  expect_contains(error("\"config\":{\"version\":1", "\"config\":{\"version\":2"),
                  "it has the field \"config\" of version 2, which this Heddle does not know and must not leave "
                  "out; use the Heddle that wrote the checkpoint, or a newer one");
  expect_contains(error("\"vocabulary\"", "\"vocabulari\""), "the field \"vocabulari\" of version 1");
  expect_contains(error("\"index\":{\"version\":2,\"optional\":false", "\"index\":{\"version\":5,\"optional\":true "),
                  "state.h5: the field \"index\" is missing");
  expect_contains(error("\"version\":1", "\"version\":x"), "state.h5: its fields cannot be used: ");
}

TEST(StateFileTest, KeepsTheTextOfTheProgram) {
  CheckpointIndex index;
  index.contents.begun_line = std::string(100000, ' ') + "{}";
  index.contents.further_best = "{\"bleu\":{}}";
  CheckpointIndex const whole = read(state_file_bytes(index), 0);
  EXPECT_EQ(whole.contents.begun_line, index.contents.begun_line);
  EXPECT_EQ(whole.contents.further_best, index.contents.further_best);
  EXPECT_EQ(read(state_file_bytes({}), 0).contents.begun_line, "");
}

TEST(StateFileTest, StateThatBeganLaterThanTheRunIsAFieldThatNobodyMayLeaveOut) {
  CheckpointIndex index{{}, {{{"a", {100, 100}}, 0, {4096}}, {{"b", {100, 100}}, 0, {44096}}}};
  index.contents.state.step = 1000;
  EXPECT_EQ(state_file_bytes(index).find("state_begins"), std::string::npos) << "usual checkpoints stay as they were";
  index.contents.state_begins = {{"b", 1000}};
  std::string bytes = state_file_bytes(index);
  EXPECT_EQ(read(bytes, 84096).contents.state_begins, index.contents.state_begins);
  std::string const listed = "\"state_begins\":{\"version\":1,\"optional\":false";
  ASSERT_NE(bytes.find(listed), bytes.npos);
  bytes.replace(bytes.find(listed), listed.size(), "\"state_begun!\":{\"version\":1,\"optional\":false");
  expect_data_error([&] { read(bytes, 84096); },
                    "the field \"state_begun!\" of version 1, which this Heddle does not know");
  for (std::int64_t const wrong : {std::int64_t{1001}, std::int64_t{-1}, huge}) {
    index.contents.state_begins = {{"b", wrong}};
    expect_contains(read_error(index, 84096), fmt::format("the state of b began after step {}", wrong));
  }
}

TEST(StateFileTest, AVocabularyIsAtMostAsLargeAsThatOfADataset) {
  CheckpointIndex index;
  index.contents.target_model.assign((std::size_t{64} << 20) + 1, 'x');
  expect_contains(read_error(index, 0), "vocabulary/target: has 67108865 bytes, expected at most 67108864");
}

}  // namespace
}  // namespace heddle
