#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <heddle/core/base/error.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <limits>

#include "temporary_directory.hpp"

namespace heddle {

using test::read_whole;

/// A small model's state whose every number depends on the step, in memory that outlives the contents' spans.
class SampleState {
 public:
  explicit SampleState(std::int64_t step) {
    contents_.state = {.step = step,
                       .epoch = 3,
                       .position = 77 + step,
                       .tokens = 1234567890123,
                       .seed = ~std::uint64_t{5},
                       .seconds = 12.25,
                       .best_valid_loss = std::nan(""),
                       .best_step = step / 2,
                       .validations_without_improvement = 1};
    contents_.config = "[train]\nseed = 1\n# step " + std::to_string(step) + "\n";
    contents_.source_model = std::string("spm\0source", 10);
    contents_.target_model = std::string(3000, '\xff');
    add("encoder.0.weight", {6, 4}, step, true);
    add("decoder.1.bias", {5}, step, true);
    add("big", {3, 70000}, step, true);
    add("none", {0, 4}, step, true);
  }
  SampleState(SampleState const&) = delete;
  SampleState& operator=(SampleState const&) = delete;

  CheckpointContents const& contents() const { return contents_; }
  CheckpointContents& contents() { return contents_; }

  void add(std::string const& name, std::vector<std::int64_t> const& shape, std::int64_t step, bool moments) {
    std::size_t count = 1;
    for (std::int64_t extent : shape) {
      count *= static_cast<std::size_t>(extent);
    }
    values_.push_back({});
    for (std::size_t part = 0; part < 3; ++part) {
      auto& values = values_.back()[part];
      values.resize(part == 0 || moments ? count : 0);
      for (std::size_t index = 0; index < values.size(); ++index) {
        values[index] =
            static_cast<float>(std::sin(static_cast<double>(index * (part + 1)) + static_cast<double>(step)));
      }
    }
    if (count > 4) {
      values_.back()[0][1] = -0.0F;
      values_.back()[0][2] = std::numeric_limits<float>::quiet_NaN();
      values_.back()[0][3] = std::numeric_limits<float>::denorm_min();
    }
    contents_.tensors.push_back({name, shape, values_.back()[0], values_.back()[1], values_.back()[2]});
  }

 private:
  std::vector<std::array<std::vector<float>, 3>> values_;
  CheckpointContents contents_;
};

/// A store in this test's own directory.
class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointStore store(std::int64_t keep = 3) const { return {run_ / "checkpoints", keep}; }
  CommitResult commit(std::int64_t step, std::int64_t keep = 3) const {
    return store(keep).commit(SampleState(step).contents());
  }

  /// The names in the checkpoints directory, except the writers' lock, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (auto const& entry : std::filesystem::directory_iterator(run_ / "checkpoints")) {
      if (entry.path().filename() != ".lock") {
        names.push_back(entry.path().filename().string());
      }
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  static void write_file(std::filesystem::path const& path, std::string const& content) {
    std::filesystem::remove(path);  // some file systems sync a file that is truncated and written again: slow
    std::ofstream(path, std::ios::binary) << content;
  }

  /// Every number and byte of the checkpoint is that of SampleState(step), bit by bit.
  static void expect_whole(Checkpoint const& checkpoint, std::int64_t step) {
    SampleState const expected(step);
    CheckpointContents const& contents = expected.contents();
    EXPECT_EQ(std::memcmp(&checkpoint.state(), &contents.state, sizeof(TrainingState)), 0);
    EXPECT_EQ(checkpoint.config(), contents.config);
    EXPECT_EQ(checkpoint.source_model(), contents.source_model);
    EXPECT_EQ(checkpoint.target_model(), contents.target_model);
    EXPECT_EQ(checkpoint.tensors().size(), contents.tensors.size());
    for (CheckpointTensor const& tensor : contents.tensors) {
      EXPECT_EQ(checkpoint.tensor(tensor.name).shape, tensor.shape);
      expect_same_bits(checkpoint.read(tensor.name, Checkpoint::Part::value), tensor.value);
      expect_same_bits(checkpoint.read(tensor.name, Checkpoint::Part::first_moment), tensor.first_moment);
      expect_same_bits(checkpoint.read(tensor.name, Checkpoint::Part::second_moment), tensor.second_moment);
    }
  }
  static void expect_same_bits(std::vector<float> const& found, std::span<float const> expected) {
    ASSERT_EQ(found.size(), expected.size());
    EXPECT_TRUE(found.empty() || std::memcmp(found.data(), expected.data(), expected.size_bytes()) == 0);
  }

  test::TemporaryDirectory temporary_;
  std::filesystem::path run_ = temporary_.path();
};

}  // namespace heddle
