#include "run/checkpoints/base.hpp"

#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/tensors/manifest.hpp>

#include "run/checkpoints/constant_tensors.hpp"

namespace heddle {
namespace {

/// A run with the parameters a, b and c, all 1, and one with x, 2, which left "here.b" and c to it.
class BaseTest : public testing::Test {
 protected:
  fs::path commit(std::string const& run, std::vector<std::string> const& names, float number,
                  CheckpointBase const& base = {}) {
    CheckpointContents contents;
    contents.state.step = 1;
    contents.state.seed = 1;
    contents.config = "[train]\nseed = 1\n";
    contents.base = base;
    std::vector<StreamedTensor> of_three;
    for (std::string const& name : names) {
      of_three.push_back({name, {3}});
    }
    ConstantTensors tensors(of_three, number);
    return CheckpointStore(directory_ / run / "checkpoints", 2)
        .commit(Communicator::self(), contents, tensors, 1)
        .directory;
  }
  Checkpoint adapted() {
    return Checkpoint::open(
        commit("adapted", {"x"}, 2, {base_.string(), manifest_digest(base_), {{"here.b", "b"}, {"c", "c"}}}));
  }

  TemporaryDirectory directory_;
  fs::path base_ = commit("base", {"a", "b", "c"}, 1);
};

TEST_F(BaseTest, GivesWhatACheckpointLeftToIt) {
  Checkpoint checkpoint = adapted();
  EXPECT_TRUE(checkpoint.lacks_base());
  EXPECT_FALSE(checkpoint.contains("c"));
  attach_base(checkpoint, "", Communicator::self());
  EXPECT_FALSE(checkpoint.lacks_base());
  std::vector<std::string> names;
  for (TensorInfo const& tensor : checkpoint.tensors()) {
    names.push_back(tensor.name);
  }
  EXPECT_THAT(names, ElementsAre("c", "here.b", "x"));
  EXPECT_EQ(checkpoint.read("here.b"), std::vector<float>(3, 1));
  EXPECT_EQ(checkpoint.read("x"), std::vector<float>(3, 2));
  EXPECT_TRUE(checkpoint.in_base("c"));
  EXPECT_FALSE(checkpoint.in_base("x"));
}

TEST_F(BaseTest, ItsNumbersAreRoundedWhereTheyWereInTraining) {
  float const number = 1.2345678F;
  fs::path const base = commit("exact", {"b", "c"}, number);
  Checkpoint checkpoint = Checkpoint::open(
      commit("adapted", {"x"}, number, {base.string(), manifest_digest(base), {{"b", "b"}, {"c", "c"}}, {"c", "x"}}));
  attach_base(checkpoint, "", Communicator::self());
  auto const rounded = static_cast<float>(BFloat16(number));
  EXPECT_EQ(checkpoint.read("b"), std::vector<float>(3, number));
  EXPECT_EQ(checkpoint.read("c"), std::vector<float>(3, rounded));
  EXPECT_EQ(checkpoint.read("x"), std::vector<float>(3, number)) << "its own";
  std::vector<float> all(6);
  std::vector<SliceInto> const wanted{{{"b"}, std::span(all).first(3)}, {{"c"}, std::span(all).last(3)}};
  checkpoint.read(wanted);
  EXPECT_THAT(all, ElementsAre(number, number, number, rounded, rounded, rounded));
}

TEST_F(BaseTest, MayHaveABaseItself) {
  fs::path const first = adapted().directory();
  Checkpoint second =
      Checkpoint::open(commit("second", {"y"}, 3, {first.string(), manifest_digest(first), {{"c", "c"}, {"x", "x"}}}));
  attach_base(second, "", Communicator::self());
  EXPECT_EQ(second.read("c"), std::vector<float>(3, 1));
  EXPECT_EQ(second.read("x"), std::vector<float>(3, 2));
}

TEST_F(BaseTest, IsFoundElsewhereByItsDigest) {
  Checkpoint checkpoint = adapted();
  fs::rename(directory_ / "base", directory_ / "moved");
  expect_data_error([&] { attach_base(checkpoint, "", Communicator::self()); },
                    "the checkpoint that its adapters were trained with");
  attach_base(checkpoint, (directory_ / "moved").string(), Communicator::self());
  EXPECT_EQ(checkpoint.read("c"), std::vector<float>(3, 1));
  EXPECT_NO_THROW(require_base(checkpoint, (directory_ / "moved").string()));
}

TEST_F(BaseTest, AnotherOneInItsPlaceIsRefused) {
  Checkpoint checkpoint = adapted();
  fs::remove_all(directory_ / "base");
  commit("base", {"a", "b", "c"}, 7);
  expect_data_error([&] { attach_base(checkpoint, "", Communicator::self()); }, "is another checkpoint");
  expect_data_error([&] { require_base(checkpoint, (directory_ / "base").string()); }, "is another checkpoint");
  Checkpoint const plain = Checkpoint::open(base_);
  expect_data_error([&] { require_base(plain, base_.string()); }, "names no base");
}

TEST_F(BaseTest, WithoutAParameterThatIsWantedIsRefused) {
  Checkpoint checkpoint =
      Checkpoint::open(commit("adapted", {"x"}, 2, {base_.string(), manifest_digest(base_), {{"d", "d"}}}));
  expect_data_error([&] { attach_base(checkpoint, "", Communicator::self()); }, "has no parameter 'd'");
}

}  // namespace
}  // namespace heddle
