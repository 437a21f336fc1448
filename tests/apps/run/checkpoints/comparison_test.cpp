#include "run/checkpoints/comparison.hpp"

#include <heddle/io/checkpoint/store.hpp>

#include "run/checkpoints/constant_tensors.hpp"

namespace heddle {
namespace {

class ComparisonTest : public testing::Test {
 protected:
  Checkpoint checkpoint(float value, std::vector<StreamedTensor> tensors, std::vector<std::string> const& keys = {},
                        std::string const& vocabulary = "same") {
    CheckpointContents contents;
    contents.config = to_toml(parse_config("", "test", keys));
    contents.state.seed = parse_config(contents.config, "test").train.seed;
    contents.source_model = contents.target_model = vocabulary;
    ConstantTensors stream(std::move(tensors), value);
    CheckpointStore store(directory_ / std::to_string(++count_), 2);
    return Checkpoint::open(store.commit(Communicator::self(), contents, stream, 1).directory);
  }

  TemporaryDirectory directory_;
  int count_ = 0;
};

TEST_F(ComparisonTest, OneCheckpointDoesNotDifferFromItself) {
  Checkpoint const one = checkpoint(3, {{"weight", {2, 3}}});
  CheckpointDifference const found = compare(one, one);
  EXPECT_TRUE(found.none());
  EXPECT_EQ(found.compared, 1);
  EXPECT_EQ(describe(found), "no difference in 1 tensors\n");
}

TEST_F(ComparisonTest, NamesEachKindOfDifference) {
  Checkpoint const a = checkpoint(4, {{"both", {4}}, {"mine", {1}}, {"shape", {2, 3}}});
  Checkpoint const b = checkpoint(3, {{"both", {4}}, {"shape", {3, 2}}, {"yours", {1}}}, {"train.steps=7"}, "other");
  CheckpointDifference const found = compare(a, b);
  EXPECT_FALSE(found.none());
  ASSERT_EQ(found.config.size(), 1U);
  EXPECT_EQ(found.config.front().key, "train.steps");
  EXPECT_TRUE(found.vocabulary);
  EXPECT_THAT(found.only_in_a, ElementsAre("mine"));
  EXPECT_THAT(found.only_in_b, ElementsAre("yours"));
  EXPECT_THAT(found.shapes, ElementsAre("shape: [2, 3] and [3, 2]"));
  ASSERT_EQ(found.values.size(), 1U);
  EXPECT_EQ(found.values.front().name, "both");
  EXPECT_EQ(found.values.front().max, 1);
  EXPECT_EQ(found.values.front().relative, 0.25) << "sqrt(4 * 1) / sqrt(4 * 16)";
  expect_contains(
      describe(found),
      {"train.steps = ", "1 of 1 tensors of equal shape differ, at most by 1 in both; relative norm over all: 0.25"});
}

TEST_F(ComparisonTest, ADifferenceFromZerosHasNoRelativeNorm) {
  CheckpointDifference const found = compare(checkpoint(0, {{"w", {2}}}), checkpoint(1, {{"w", {2}}}));
  EXPECT_TRUE(std::isinf(found.values.front().relative));
}

}  // namespace
}  // namespace heddle
