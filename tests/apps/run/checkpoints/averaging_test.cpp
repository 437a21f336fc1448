#include "run/checkpoints/averaging.hpp"

#include <heddle/io/checkpoint/store.hpp>

#include "run/checkpoints/checkpoint.hpp"
#include "run/checkpoints/constant_tensors.hpp"

namespace heddle {
namespace {

class AveragingTest : public testing::Test {
 protected:
  Checkpoint checkpoint(float value, std::vector<std::string> const& keys = {}, std::string const& vocabulary = "same",
                        std::vector<std::int64_t> const& shape = {2, 3}) {
    CheckpointContents contents;
    contents.config = to_toml(parse_config("", "test", keys));
    contents.state.seed = parse_config(contents.config, "test").train.seed;
    contents.source_model = contents.target_model = vocabulary;
    ConstantTensors tensors({{"weight", shape}}, value);
    CheckpointStore store(directory_ / std::to_string(++count_), 2);
    return Checkpoint::open(store.commit(Communicator::self(), contents, tensors, 1).directory);
  }
  std::vector<Checkpoint> several(std::initializer_list<float> values) {
    std::vector<Checkpoint> all;
    for (float const value : values) {
      all.push_back(checkpoint(value));
    }
    return all;
  }

  TemporaryDirectory directory_;
  int count_ = 0;
};

TEST_F(AveragingTest, TheMeanIsThatOfTheWeights) {
  EXPECT_EQ(AveragedModel(several({1, 2, 6})).read({"weight"}), std::vector<float>(6, 3));
  EXPECT_EQ(AveragedModel(several({1, 4}), {1, 2}).read({"weight"}), std::vector<float>(6, 3));
  EXPECT_EQ(AveragedModel(several({0.1F})).read({"weight"}), std::vector<float>(6, 0.1F));
  AveragedModel const model(several({1, 4}), {3, 1});
  std::vector<float> all(6);
  model.read(std::vector<SliceInto>{{{"weight"}, all}});
  EXPECT_EQ(all, std::vector<float>(6, 1.75F));
  MadeTensors tensors = averaged_tensors(model, DType::bfloat16);
  EXPECT_EQ(tensors.tensors().front().dtype, DType::bfloat16);
  std::vector<float> part(2);
  tensors.receive({0, 0, {3, 5}}, part);
  EXPECT_EQ(part, std::vector<float>(2, 1.75F));
}

TEST_F(AveragingTest, ModelsThatDifferAreRefused) {
  auto const refusal = [&]<class Kind>(Kind, Checkpoint other) {
    std::vector<Checkpoint> both = several({1});
    both.push_back(std::move(other));
    return message_of<Kind>([&] { AveragedModel{std::move(both)}; });
  };
  expect_contains(refusal(ConfigError(""), checkpoint(1, {"model.heads=16"})), "model.heads = 16");
  expect_contains(refusal(DataError(""), checkpoint(1, {}, "other")), "different vocabularies");
  expect_contains(refusal(DataError(""), checkpoint(1, {}, "same", {3, 2})), "weight has the shape [2, 3]");
  EXPECT_EQ(refusal(DataError(""), checkpoint(1, {"model.dropout=0.2", "train.steps=3"})), "");
}

}  // namespace
}  // namespace heddle
