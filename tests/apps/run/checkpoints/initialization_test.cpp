#include "run/checkpoints/initialization.hpp"

#include <heddle/core/parallel/host_values.hpp>
#include <heddle/io/checkpoint/store.hpp>

#include "test.hpp"

namespace heddle {
namespace {

/// Parameters of which each element has a number of its own.
class NumberedTensors final : public TensorStream {
 public:
  void add(std::string const& name, std::vector<std::int64_t> const& shape) { tensors_.push_back({name, shape}); }
  std::vector<StreamedTensor> const& tensors() const override { return tensors_; }
  void send(TensorChunk const&, int) override { ADD_FAILURE() << "there is no other rank"; }
  void receive(TensorChunk const& chunk, std::span<float> elements) override {
    for (std::size_t index = 0; index < elements.size(); ++index) {
      elements[index] = static_cast<float>(1000 * (chunk.tensor + 1) + index);
    }
  }
  void wait() override {}

 private:
  std::vector<StreamedTensor> tensors_;
};

/// A run that starts from another one with the parameters a [2, 3], b [4] and old.c [5].
class InitializationTest : public testing::Test {
 protected:
  InitializationTest() {
    NumberedTensors tensors;
    tensors.add("a", {2, 3});
    tensors.add("b", {4});
    tensors.add("old.c", {5});
    CheckpointContents contents;
    contents.state.step = 7;
    contents.state.seed = 1;
    contents.config = to_toml(config_);
    contents.source_model = "source";
    contents.target_model = "target";
    config_.train.initialize_from =
        CheckpointStore(directory_.path(), 3).commit(Communicator::self(), contents, tensors, 1).directory.string();
  }

  void declare(std::string const& name, Shape const& shape) { parameters_.declare({name, {shape}, {}}); }
  Initialization plan(std::string const& source_model = "source") {
    if (parameters_.size() == 0) {
      parameters_.allocate(DType::float32);
    }
    std::string const target_model = "target";
    return {{config_, WholeModel::gather(ParallelState(), parameters_), source_model, target_model},
            Communicator::self()};
  }
  std::string refusal(std::string const& source_model = "source") {
    return message_of<Error>([&] { plan(source_model); });
  }
  float first_of(std::string const& name) const { return to_host<float>(parameters_.find(name)->value).front(); }

  TemporaryDirectory directory_;
  Config config_;
  Mesh mesh_{{1, 1, 1, 1}, 0, 1};
  ParameterSet parameters_{mesh_};
};

TEST_F(InitializationTest, TakesParametersByNameAndNamesTheOthers) {
  declare("a", {2, 3});
  declare("b", {4});
  declare("new", {3});
  config_.train.initialize_missing = {"n*"};
  config_.model.heads = 4;
  Initialization const planned = plan();
  std::vector<float> const untouched(static_cast<std::size_t>(parameters_.size()), -1.0F);
  copy_from_host(parameters_.values(), untouched.data());
  planned.apply(parameters_);
  EXPECT_EQ(to_host<float>(parameters_.find("a")->value), (std::vector<float>{1000, 1001, 1002, 1003, 1004, 1005}));
  EXPECT_EQ(to_host<float>(parameters_.find("b")->value), (std::vector<float>{2000, 2001, 2002, 2003}));
  EXPECT_EQ(to_host<float>(parameters_.find("new")->value), (std::vector<float>{-1, -1, -1}));
  EXPECT_THAT(planned.describe(),
              ElementsAre("parameters from " + config_.train.initialize_from +
                              " (step 7): 2 taken, 0 of them under another name; 1 start new; 1 left there",
                          "start new: new", "left there: old.c",
                          "note: model.heads = 4, in the run whose parameters are taken 8"));
}

TEST_F(InitializationTest, RenamesBeforeItLooks) {
  declare("c", {5});
  declare("deep.b.x", {4});
  config_.train.initialize_rename = {"old.* -> *", "b -> deep.b.x"};
  Initialization const planned = plan();
  planned.apply(parameters_);
  EXPECT_EQ(first_of("c"), 3000);
  EXPECT_EQ(first_of("deep.b.x"), 2000);
  EXPECT_THAT(planned.describe(), Contains(HasSubstr("2 taken, 2 of them under another name; 0 start new; 1")));
}

TEST_F(InitializationTest, RefusesWhatWouldStartNewUnasked) {
  declare("a", {3, 2});
  declare("c", {5});
  expect_contains(refusal(), {"has no values for 2 of this run's 2 parameters: a ([2, 3] there, "
                              "[3, 2] here), c;",
                              "train.initialize_missing"});
  config_.train.initialize_missing = {"a"};
  expect_contains(refusal(), "1 of this run's 2 parameters: c;");
  config_.train.initialize_missing = {"a", "c"};
  EXPECT_EQ(refusal(), "");
  config_.train.initialize_missing = {"a", "c", "d"};
  expect_contains(refusal(), "initialize_missing has the pattern \"d\", which no parameter's name matches");
}

TEST_F(InitializationTest, RefusesRulesThatAreNoneOrMatchNothing) {
  declare("b", {4});
  for (std::string const rule : {"b", "b->c", "-> c", "b* -> c", "b -> c*", "*b* -> *c*", " -> "}) {
    config_.train.initialize_rename = {rule};
    expect_contains(refusal(), "initialize_rename has \"" + rule + "\"; expected \"NAME THERE -> NAME HERE\"");
  }
  config_.train.initialize_rename = {"x.* -> b"};
  expect_contains(refusal(), "expected");
  config_.train.initialize_rename = {"x.* -> y.*"};
  expect_contains(refusal(), "has the pattern \"x.*\", which no parameter's name matches; names are a, b, old.c");
}

TEST_F(InitializationTest, OneParameterFillsSeveralPlaces) {
  declare("encoder.c", {5});
  declare("decoder.c", {5});
  config_.train.initialize_rename = {"old.* -> encoder.*", "old.* -> decoder.*"};
  Initialization const planned = plan();
  planned.apply(parameters_);
  EXPECT_EQ(first_of("encoder.c"), 3000);
  EXPECT_EQ(first_of("decoder.c"), 3000);
  EXPECT_THAT(planned.describe(),
              ElementsAre(HasSubstr("2 taken, 2 of them under another name; 0 start new; 2 left"), "left there: a, b"));
}

TEST_F(InitializationTest, TheFirstRuleForAPlaceCountsAndOneLeavesParametersThere) {
  declare("b", {5});
  config_.train.initialize_rename = {"old.c -> b", "a -> b"};
  Initialization const planned = plan();
  planned.apply(parameters_);
  EXPECT_EQ(first_of("b"), 3000);
  EXPECT_THAT(planned.describe(), Contains("left there: a, b"));
  for (std::string const dropped : {"old.* ->", "old.* -> "}) {
    config_.train.initialize_rename = {dropped, "old.c -> b"};
    EXPECT_THAT(refusal(), HasSubstr("b ([4] there, [5] here)")) << "a rule after it is not asked";
  }
  config_.train.initialize_rename = {"b ->"};
  expect_contains(refusal(), "has no values for 1 of this run's 1 parameters: b;");
  config_.train.initialize_missing = {"b"};
  EXPECT_THAT(plan().describe(), Contains("start new: b"));
}

TEST_F(InitializationTest, RefusesAnotherVocabularyAndAPlaceWithoutACheckpoint) {
  declare("b", {4});
  EXPECT_EQ(refusal(), "");
  expect_contains(refusal("another"), "was trained with another vocabulary than this run's data have");
  config_.train.initialize_from = directory_.path().string() + "/nowhere";
  expect_contains(refusal(), "nowhere");
}

}  // namespace
}  // namespace heddle
