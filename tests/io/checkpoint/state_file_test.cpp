#include "checkpoint/state_file.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <heddle/core/base/error.hpp>
#include <limits>

#include "temporary_directory.hpp"

namespace heddle {
namespace {

using testing::HasSubstr;

constexpr std::int64_t huge = std::int64_t{1} << 62;

/// The error on reading the file of this content, beside a file of tensors of that length; "" where there is none.
std::string read_error(CheckpointIndex const& index, std::int64_t tensor_file_bytes) {
  std::string const bytes = state_file_bytes(index);
  return test::message_of<DataError>([&] {
    read_state_file({reinterpret_cast<std::uint8_t const*>(bytes.data()), bytes.size()}, "state.h5",
                    {tensor_file_bytes});
  });
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
  EXPECT_THAT(state_error([](auto& state) { state.epoch = (1 << 20) + 2; }),
              HasSubstr("epochs up to the step + 1048576"));
  EXPECT_EQ(state_error([](auto& state) { state.epoch = (1 << 20) + 1; }), "");
  EXPECT_THAT(state_error([](auto& state) { state.step = huge; }), HasSubstr("steps go up to 2147483647"));
  EXPECT_THAT(state_error([](auto& state) { state.tokens = huge; }), HasSubstr("tokens in 1 steps are impossible"));
  EXPECT_THAT(state_error([](auto& state) { state.validations_without_improvement = 2; }), HasSubstr("is impossible"));
  for (double const seconds : {std::nan(""), -1.0, std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(state_error([&](auto& state) { state.seconds = seconds; }),
                HasSubstr("expected a finite number from 0"));
  }
  EXPECT_THAT(state_error([](auto& state) { state.best_valid_loss = std::nan(""); }),
              HasSubstr("best_valid_loss = nan is impossible"));
}

TEST(StateFileTest, TensorsFillTheirFile) {
  CheckpointIndex const one{{}, {{{"a", {100, 100}, false}, 0, {4096}}}};
  EXPECT_EQ(read_error(one, 44096), "");
  EXPECT_THAT(read_error(one, std::int64_t{1} << 40),
              HasSubstr("tensors-00000.h5 has 1099511627776 bytes, its tensors"));
  CheckpointIndex two = one;
  two.tensors.push_back({{"b", {100, 100}, false}, 0, {4096}});
  EXPECT_THAT(read_error(two, 44096), HasSubstr("the tensors of tensors-00000.h5 have more bytes than the file"));
  two.tensors.back().offsets = {44096};
  EXPECT_EQ(read_error(two, 84096), "");
}

TEST(StateFileTest, AVocabularyIsAtMostAsLargeAsThatOfADataset) {
  CheckpointIndex index;
  index.contents.target_model.assign((std::size_t{64} << 20) + 1, 'x');
  EXPECT_THAT(read_error(index, 0), HasSubstr("vocabulary/target: has 67108865 bytes, expected at most 67108864"));
}

}  // namespace
}  // namespace heddle
