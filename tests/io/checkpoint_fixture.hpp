#pragma once

#include <cstddef>
#include <cstring>
#include <heddle/io/checkpoint/store.hpp>

#include "test.hpp"

namespace heddle {

/// The keys of a parameter that Adam updates.
inline std::vector<std::string> const adam_keys{value_key, "adam.first_moment", "adam.second_moment"};

/// Whole tensors in the memory of one rank.
class LocalTensors final : public TensorStream {
 public:
  using Parts = std::array<std::vector<float>, 3>;

  std::vector<StreamedTensor> const& tensors() const override { return tensors_; }
  void send(TensorChunk const&, int) override { ADD_FAILURE() << "there is no other rank"; }
  void receive(TensorChunk const& chunk, std::span<float> elements) override {
    largest_chunk_ = std::max(largest_chunk_, elements.size());
    auto const& from = parts_[chunk.tensor][chunk.key];
    std::copy_n(from.begin() + chunk.elements.begin, elements.size(), elements.begin());
  }
  void wait() override {}

  void add(StreamedTensor tensor, Parts parts) {
    tensors_.push_back(std::move(tensor));
    parts_.push_back(std::move(parts));
  }
  Parts& parts(std::size_t tensor) { return parts_[tensor]; }
  Parts const& parts(std::size_t tensor) const { return parts_[tensor]; }
  std::size_t largest_chunk() const { return largest_chunk_; }

 private:
  std::vector<StreamedTensor> tensors_;
  std::vector<Parts> parts_;
  std::size_t largest_chunk_ = 0;
};

/// A small model's state whose every number depends on the step.
class SampleState {
 public:
  explicit SampleState(std::int64_t step) {
    contents_.state = {.step = step,
                       .epoch = 3,
                       .position = 77 + step,
                       .tokens = 1234567890 + (step << 32),
                       .seed = ~std::uint64_t{5},
                       .seconds = 12.25,
                       .best_value = -0.0,
                       .best_step = 0,
                       .validations_without_improvement = 1};
    contents_.config = "[train]\nseed = 1\n# step " + std::to_string(step) + "\n";
    contents_.source_model = std::string("spm\0source", 10);
    contents_.target_model = std::string(3000, '\xff');
    contents_.instruction_set = "all of them";
    contents_.dataset = std::string(64, 'd');
    contents_.valid_dataset = std::string(64, 'v');
    contents_.cursor = std::string(100'000, 'c');  // of many corpora
    contents_.losses = {{3.5, -0.0, 1e300}, 2.25, step / 2, step / 3};
    add("encoder.0.weight", {6, 4}, step, true);
    add("decoder.1.bias", {5}, step, true);
    add("big", {3, 70000}, step, true);
    add("none", {0, 4}, step, true);
  }
  SampleState(SampleState const&) = delete;
  SampleState& operator=(SampleState const&) = delete;

  CheckpointContents const& contents() const { return contents_; }
  CheckpointContents& contents() { return contents_; }
  LocalTensors const& tensors() const { return tensors_; }
  LocalTensors& tensors() { return tensors_; }
  CommitResult commit_to(CheckpointStore store, CheckpointStore::Observer const& observe = {}) {
    return store.commit(Communicator::self(), contents_, tensors_, 1, observe);
  }

  void add(std::string const& name, std::vector<std::int64_t> const& shape, std::int64_t step, bool moments) {
    std::size_t count = 1;
    for (std::int64_t extent : shape) {
      count *= static_cast<std::size_t>(extent);
    }
    LocalTensors::Parts parts;
    for (std::size_t part = 0; part < 3; ++part) {
      auto& values = parts[part];
      values.resize(part == 0 || moments ? count : 0);
      for (std::size_t index = 0; index < values.size(); ++index) {
        auto const value =
            static_cast<float>(std::sin(static_cast<double>(index * (part + 1)) + static_cast<double>(step)));
        values[index] = part == 2 ? std::abs(value) : value;
      }
    }
    if (count > 4) {
      parts[0][1] = -0.0F;
      parts[0][2] = std::numeric_limits<float>::lowest();
      parts[0][3] = std::numeric_limits<float>::denorm_min();
    }
    tensors_.add({name, shape, moments ? adam_keys : std::vector<std::string>{value_key}}, std::move(parts));
  }

 private:
  LocalTensors tensors_;
  CheckpointContents contents_;
};

/// A store in this test's own directory.
class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointStore store(std::int64_t keep = 3) const { return {run_ / "checkpoints", keep}; }
  CommitResult commit(std::int64_t step, std::int64_t keep = 3) const {
    return SampleState(step).commit_to(store(keep));
  }
  /// Commits a checkpoint in whose record another step is the best one.
  CommitResult commit_with_best(std::int64_t step, std::int64_t best, std::int64_t keep = 3) const {
    SampleState sample(step);
    sample.contents().state.best_step = best;
    return sample.commit_to(store(keep));
  }
  /// The step of the best checkpoint, 0 if there is none.
  std::int64_t best() const { return best_of(store().list(CheckpointStore::Check::sizes)).step.value_or(0); }
  /// The target of the link `best`, "" if there is none.
  std::string link() const {
    std::error_code none;
    return std::filesystem::read_symlink(run_ / "checkpoints/best", none).string();
  }

  /// The names in the checkpoints directory, except the writers' lock, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> names = names_in(run_ / "checkpoints");
    std::erase(names, ".lock");
    return names;
  }

  static void write_file(std::filesystem::path const& path, std::string const& content) {
    std::filesystem::remove(path);  // some file systems sync a file that is truncated and written again: slow
    std::ofstream(path, std::ios::binary) << content;
  }

  /// Flips a bit in the middle of a checkpoint's state file.
  void damage(std::int64_t step) const {
    std::filesystem::path const state = run_ / "checkpoints" / checkpoint_directory_name(step) / "state.h5";
    std::string bytes = read_whole(state);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    write_file(state, bytes);
  }

  /// Every number and byte of the checkpoint is that of SampleState(step), bit by bit.
  static void expect_whole(Checkpoint const& checkpoint, std::int64_t step) {
    SampleState const expected(step);
    CheckpointContents const& contents = expected.contents();
    expect_same_state(checkpoint.state(), contents.state);
    EXPECT_EQ(checkpoint.contents().config, contents.config);
    EXPECT_EQ(checkpoint.contents().source_model, contents.source_model);
    EXPECT_EQ(checkpoint.contents().target_model, contents.target_model);
    EXPECT_EQ(checkpoint.contents().instruction_set, contents.instruction_set);
    EXPECT_EQ(checkpoint.contents().dataset, contents.dataset);
    EXPECT_EQ(checkpoint.contents().valid_dataset, contents.valid_dataset);
    EXPECT_EQ(checkpoint.contents().cursor, contents.cursor);
    EXPECT_EQ(checkpoint.contents().losses, contents.losses);
    auto const& tensors = expected.tensors().tensors();
    EXPECT_EQ(checkpoint.tensors().size(), tensors.size());
    for (std::size_t index = 0; index < tensors.size(); ++index) {
      EXPECT_EQ(checkpoint.tensor(tensors[index].name).shape, tensors[index].shape);
      EXPECT_EQ(checkpoint.tensor(tensors[index].name).keys, adam_keys);
      for (std::size_t key = 0; key < adam_keys.size(); ++key) {
        expect_same_bits(checkpoint.read(tensors[index].name, adam_keys[key]), expected.tensors().parts(index)[key]);
      }
    }
  }
  static void expect_same_state(TrainingState const& found, TrainingState const& expected) {
    EXPECT_EQ(std::memcmp(&found, &expected, offsetof(TrainingState, validation_pending)), 0);
    EXPECT_EQ(found.validation_pending, expected.validation_pending);
    EXPECT_EQ(found.values_better, expected.values_better);
  }
  static void expect_same_bits(std::vector<float> const& found, std::span<float const> expected) {
    ASSERT_EQ(found.size(), expected.size());
    EXPECT_TRUE(found.empty() || std::memcmp(found.data(), expected.data(), expected.size_bytes()) == 0);
  }

  TemporaryDirectory temporary_;
  std::filesystem::path run_ = temporary_.path();
};

}  // namespace heddle
