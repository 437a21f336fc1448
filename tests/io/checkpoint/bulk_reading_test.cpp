#include "checkpoint_fixture.hpp"

namespace heddle {
namespace {

class BulkReadingTest : public CheckpointTest {
 protected:
  /// A checkpoint with tensors of more than one block.
  std::filesystem::path commit_large() const {
    SampleState sample(7);
    sample.add("large", {1500, 1000}, 7, true);
    return sample.commit_to(store()).directory;
  }

  /// Changes a byte in the middle of the value of "large".
  static void damage_large(std::filesystem::path const& directory) {
    std::int64_t const place = Checkpoint::open(directory).tensor("large").offsets.front() + 3'000'000;
    std::fstream file(directory / "tensors-00000.h5", std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(place);
    int const byte = file.get();
    file.seekp(place);
    file.put(static_cast<char>(byte ^ 1));
  }
};

TEST_F(BulkReadingTest, ManySlicesHaveTheNumbersOfEachOne) {
  Checkpoint const checkpoint = Checkpoint::open(commit_large());
  std::vector<TensorSlice> slices;
  for (TensorInfo const& tensor : checkpoint.tensors()) {
    for (std::string const& key : tensor.keys) {
      slices.push_back({tensor.name, key});
    }
  }
  slices.push_back({"large", value_key, {{0, 1500}, {300, 377}}});
  slices.push_back({"large", value_key, {{20, 1320}}, IndexRange{5, 1'234'567}});
  std::vector<std::vector<float>> expected;
  std::vector<std::vector<float>> found;
  for (TensorSlice const& slice : slices) {
    expected.push_back(checkpoint.read(slice));
    found.emplace_back(expected.back().size());
  }
  std::vector<SliceInto> wanted;
  for (std::size_t index = 0; index < slices.size(); ++index) {
    wanted.push_back({slices[index], found[index]});
  }
  checkpoint.read(wanted);
  for (std::size_t index = 0; index < slices.size(); ++index) {
    expect_same_bits(found[index], expected[index]);
  }
  found.front().resize(3);
  wanted.front().into = found.front();
  expect_error([&] { checkpoint.read(wanted); }, "memory for 3 elements");
}

TEST_F(BulkReadingTest, DamageShowsAtTheLatestWhenItIsRead) {
  std::filesystem::path const directory = commit_large();
  damage_large(directory);
  expect_data_error([&] { Checkpoint::open(directory); }, "SHA-256");
  Checkpoint const checkpoint =
      Checkpoint::open(directory, Communicator::self(), {value_key}, Verification::at_reading);
  std::vector<float> large(1'500'000);
  std::vector<float> small(24);
  std::vector<SliceInto> const whole{{{"large"}, large}, {{"encoder.0.weight"}, small}};
  expect_data_error([&] { checkpoint.read(whole); }, "SHA-256");
  expect_data_error([&] { checkpoint.read("large"); }, "SHA-256");
}

TEST_F(BulkReadingTest, TensorsCanBeRoundedToBfloat16) {
  SampleState const sample(3);
  LocalTensors tensors;
  std::vector<float> values(3'000'001);
  for (std::size_t index = 0; index < values.size(); ++index) {
    values[index] = static_cast<float>(std::sin(static_cast<double>(index)));
  }
  tensors.add({.name = "odd", .shape = {3}, .dtype = DType::bfloat16}, {{{1, -2.0009765625F, 1e-40F}, {}, {}}});
  tensors.add({.name = "rounded", .shape = {3'000'001}, .dtype = DType::bfloat16}, {{values, {}, {}}});
  tensors.add({.name = "whole", .shape = {3}}, {{{0.1F, 0.2F, 0.3F}, {}, {}}});
  auto const directory = store().commit(Communicator::self(), sample.contents(), tensors, 1).directory;
  Checkpoint const checkpoint = Checkpoint::open(directory);
  EXPECT_EQ(checkpoint.tensor("rounded").bytes(), 6'000'002);
  EXPECT_EQ(checkpoint.read("whole"), (std::vector<float>{0.1F, 0.2F, 0.3F}));
  for (float& value : values) {
    value = static_cast<float>(BFloat16(value));
  }
  EXPECT_EQ(checkpoint.read("rounded"), values);
  EXPECT_EQ(checkpoint.read(TensorSlice{"rounded", value_key, {{2'000'000, 2'000'005}}}),
            (std::vector<float>(values.begin() + 2'000'000, values.begin() + 2'000'005)));
  std::vector<float> odd(3);
  std::vector<float> rounded(values.size());
  checkpoint.read(std::vector<SliceInto>{{{"rounded"}, rounded}, {{"odd"}, odd}});
  EXPECT_EQ(rounded, values);
  EXPECT_EQ(odd, (std::vector<float>{1, -2, static_cast<float>(BFloat16(1e-40F))}));
  tensors.add({.name = "too large", .shape = {1}, .dtype = DType::bfloat16},
              {{{std::numeric_limits<float>::max()}, {}, {}}});
  expect_error([&] { CheckpointStore(run_ / "other", 2).commit(Communicator::self(), sample.contents(), tensors, 1); },
               "bfloat16 cannot hold");
}

}  // namespace
}  // namespace heddle
