#include <hdf5.h>

#include <heddle/io/hdf5/hdf5.hpp>
#include <heddle/io/tensors/manifest.hpp>

#include "checkpoint_fixture.hpp"
#include "digest_file.hpp"

namespace heddle {
namespace {

constexpr char const* first_moment = "adam.first_moment";
constexpr char const* second_moment = "adam.second_moment";

std::string open_error(fs::path const& directory) {
  return message_of<DataError>([&] { Checkpoint::open(directory); });
}

TEST_F(CheckpointTest, RoundTripsBitByBit) {
  CommitResult const result = commit(1000);
  EXPECT_EQ(result.directory, run_ / "checkpoints/step-00001000");
  EXPECT_FALSE(result.already_there);
  EXPECT_THAT(result.notes, IsEmpty());
  EXPECT_THAT(names(), ElementsAre("step-00001000"));
  Checkpoint const checkpoint = Checkpoint::open(result.directory);
  expect_whole(checkpoint, 1000);
  EXPECT_FALSE(checkpoint.contains("encoder.1.weight"));
  EXPECT_THROW(checkpoint.read("encoder.1.weight", value_key), DataError);
}

TEST_F(CheckpointTest, ReadsHyperslabs) {
  Checkpoint const checkpoint = Checkpoint::open(commit(7).directory);
  auto const whole = checkpoint.read("encoder.0.weight", second_moment);
  auto const read = [&](std::string const& key, std::vector<IndexRange> const& ranges) {
    return checkpoint.read(TensorSlice{"encoder.0.weight", key, ranges});
  };
  auto const rows = read(second_moment, {{2, 5}});
  expect_same_bits(rows, std::span(whole).subspan(8, 12));
  auto const columns = read(second_moment, {{0, 6}, {1, 3}});
  ASSERT_THAT(columns, SizeIs(12));
  EXPECT_EQ(columns[2], whole[5]);
  EXPECT_EQ(columns[11], whole[22]);
  EXPECT_EQ(read(second_moment, {{4, 6}, {1, 3}}), (std::vector<float>{whole[17], whole[18], whole[21], whole[22]}));
  EXPECT_THROW(read(value_key, {{4, 7}}), DataError);
  EXPECT_THROW(read(value_key, {{0, 6}, {3, 2}}), DataError);
  EXPECT_THROW(read(value_key, {{0, 6}, {0, 4}, {0, 1}}), Error);
}

TEST_F(CheckpointTest, SlabsAreTheWholeTensor) {
  Checkpoint const checkpoint = Checkpoint::open(commit(7).directory);
  TensorInfo const& tensor = checkpoint.tensor("encoder.0.weight");  // [6, 4]
  auto const whole = checkpoint.read(tensor.name, first_moment);
  for (auto const& [max_elements, slabs] : {std::pair{24, 1}, {23, 2}, {8, 3}, {3, 6}}) {
    std::vector<float> joined;
    auto const slices = slabs_of(tensor, first_moment, max_elements);
    EXPECT_EQ(std::ssize(slices), slabs);
    for (TensorSlice const& slab : slices) {
      auto const part = checkpoint.read(slab);
      EXPECT_LE(std::ssize(part), std::max(4, max_elements));
      joined.insert(joined.end(), part.begin(), part.end());
    }
    expect_same_bits(joined, whole);
  }
}

TEST_F(CheckpointTest, ReadsSomeElementsOfASlice) {
  Checkpoint const checkpoint = Checkpoint::open(commit(7).directory);
  auto const read = [&](std::vector<IndexRange> const& ranges, std::optional<IndexRange> elements = {}) {
    return checkpoint.read(TensorSlice{"encoder.0.weight", first_moment, ranges, elements});
  };
  auto const whole = checkpoint.read("encoder.0.weight", first_moment);
  expect_same_bits(read({}, IndexRange{5, 17}), std::span(whole).subspan(5, 12));
  std::vector<IndexRange> const of_columns{{0, 6}, {1, 4}};
  auto const columns = read(of_columns);
  ASSERT_THAT(columns, SizeIs(18));
  for (IndexRange const& elements : {IndexRange{0, 18}, {1, 2}, {2, 3}, {2, 11}, {7, 18}, {9, 12}, {4, 4}}) {
    expect_same_bits(read(of_columns, elements),
                     std::span(columns).subspan(static_cast<std::size_t>(elements.begin),
                                                static_cast<std::size_t>(elements.count())));
  }
  EXPECT_THROW(read(of_columns, IndexRange{10, 19}), DataError);
  EXPECT_THROW(read(of_columns, IndexRange{-1, 2}), DataError);
  EXPECT_THROW(read(of_columns, IndexRange{3, 2}), DataError);
}

TEST_F(CheckpointTest, AModelWithoutMomentsCanBeReadButNotResumed) {
  SampleState sample(5);
  sample.add("exported", {4, 2}, 5, false);
  Checkpoint const checkpoint = Checkpoint::open(sample.commit_to(store()).directory);
  EXPECT_THAT(checkpoint.tensor("exported").keys, ElementsAre(value_key));
  EXPECT_THAT(checkpoint.read("exported", value_key), SizeIs(8));
  EXPECT_THROW(checkpoint.read("exported", first_moment), DataError);
}

TEST_F(CheckpointTest, RefusesContentsThatDoNotFitTogether) {
  for (StreamedTensor const& wrong : {StreamedTensor{"a/b", {4}},
                                      {"", {4}},
                                      {".a", {4}},
                                      {"big", {4}},
                                      {"w", {}},
                                      {"w", {1, 1, 1, 1, 1, 1, 1, 1, 1}}}) {
    SampleState sample(5);
    sample.tensors().add(wrong, {});
    expect_error([&] { sample.commit_to(store()); }, "parameter");
  }
  EXPECT_FALSE(fs::exists(run_ / "checkpoints"));
}

TEST_F(CheckpointTest, EqualStatesMakeEqualFiles) {
  fs::path const first = commit(3).directory;
  CheckpointStore other(run_ / "other", 3);
  fs::path const second = SampleState(3).commit_to(other).directory;
  for (char const* const name : {"state.h5", "tensors-00000.h5", "MANIFEST.json"}) {
    EXPECT_EQ(read_whole(first / name), read_whole(second / name)) << name;
  }
}

TEST_F(CheckpointTest, RejectsEveryFlippedBit) {
  fs::path const directory = commit(1).directory;
  for (char const* name : {"state.h5", "tensors-00000.h5", "MANIFEST.json"}) {
    std::string const content = read_whole(directory / name);
    std::size_t const stride = std::max<std::size_t>(1, content.size() / 97);
    for (std::size_t byte = 0; byte < content.size(); byte += stride) {
      std::string damaged = content;
      damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << (byte % 8)));
      write_file(directory / name, damaged);
      ASSERT_THAT(open_error(directory), HasSubstr(name)) << "byte " << byte;
    }
    write_file(directory / name, content);
  }
  EXPECT_EQ(open_error(directory), "");
}

TEST_F(CheckpointTest, RejectsTornDirectories) {
  fs::path const directory = commit(1).directory;
  fs::path const state_file = directory / "tensors-00000.h5";
  std::string const content = read_whole(state_file);
  std::string zeroed = content;
  std::fill_n(zeroed.begin() + 100000, 4096, '\0');
  write_file(state_file, zeroed);
  expect_contains(open_error(directory), "do not have the SHA-256");
  write_file(state_file, content.substr(0, content.size() / 2));
  expect_contains(open_error(directory), "bytes where MANIFEST.json states");
  write_file(state_file, content + "x");
  expect_contains(open_error(directory), "bytes where MANIFEST.json states");
  fs::remove(state_file);
  expect_contains(open_error(directory), "does not exist");
  write_file(state_file, content);
  write_file(directory / "state.h5.old", "x");
  expect_contains(open_error(directory), "is not listed");
  fs::remove(directory / "state.h5.old");
  EXPECT_EQ(open_error(directory), "");
}

TEST_F(CheckpointTest, RejectsACheckpointUnderAnotherStepsName) {
  fs::path const directory = commit(1).directory;
  fs::rename(directory, run_ / "checkpoints/step-00000002");
  expect_contains(open_error(run_ / "checkpoints/step-00000002"), "holds a checkpoint of step 1");
  fs::rename(run_ / "checkpoints/step-00000002", run_ / "copy");
  EXPECT_EQ(open_error(run_ / "copy"), "");
}

/// A checkpoint whose files are changed by hand and whose manifest then states what they hold.
class CraftedCheckpointTest : public CheckpointTest {
 protected:
  /// Changes a file through HDF5; returns the error on opening the checkpoint.
  std::string change(char const* name, std::function<void(hid_t)> const& work) const {
    hid_t const file = H5Fopen((directory_ / name).c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    work(file);
    H5Fclose(file);
    return sign();
  }
  std::string sign() const {
    write_file(
        directory_ / "MANIFEST.json",
        manifest_text({1, {digest_file(directory_ / "state.h5"), digest_file(directory_ / "tensors-00000.h5")}}));
    return open_error(directory_);
  }
  std::string set_integer(char const* attribute, std::int64_t value, char const* group = "training") const {
    return change("state.h5", [&](hid_t file) {
      hid_t const training = H5Gopen2(file, group, H5P_DEFAULT);
      H5Adelete(training, attribute);
      hid_t const space = H5Screate(H5S_SCALAR);
      hid_t const id = H5Acreate2(training, attribute, H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT);
      H5Awrite(id, H5T_NATIVE_INT64, &value);
      H5Aclose(id);
      H5Sclose(space);
      H5Gclose(training);
    });
  }
  /// Replaces a text in state.h5 by another of the same length.
  std::string replace(std::string const& from, std::string const& to) const {
    std::string content = read_whole(directory_ / "state.h5");
    content.replace(content.find(from), from.size(), to);
    write_file(directory_ / "state.h5", content);
    return sign();
  }

  fs::path directory_ = commit(1).directory;
};

TEST_F(CraftedCheckpointTest, RejectsFilesThatReachElsewhere) {
  EXPECT_EQ(sign(), "");
  expect_contains(change("tensors-00000.h5",
                         [](hid_t file) {
                           H5Lcreate_external("/etc/passwd", "/d", file, "parameters/outside", H5P_DEFAULT,
                                              H5P_DEFAULT);
                         }),
                  "soft or external link");
}

TEST_F(CraftedCheckpointTest, RejectsTensorsThatAreNotWhereTheIndexPlacesThem) {
  expect_contains(replace(R"("file":"tensors-00000.h5")", R"("file":"tensors-00001.h5")"), "does not name");
  EXPECT_THAT(replace(R"("file":"tensors-00001.h5")", R"("file":"tensors-00000.h5")"), "");
  expect_contains(replace(R"("shape":[3,70000])", R"("shape":[6,35000])"), "expected float32 [6, 35000]");
  expect_contains(replace(R"("shape":[6,35000])", R"("shape":[3,99999])"), "past the end");
  EXPECT_THAT(replace(R"("shape":[3,99999])", R"("shape":[3,70000])"), "");
  expect_contains(replace(R"("name":"big")", R"("name":"bag")"), "is it missing?");
  EXPECT_THAT(replace(R"("name":"bag")", R"("name":"big")"), "");
  expect_contains(change("tensors-00000.h5",
                         [](hid_t file) {
                           H5Lmove(file, "parameters/big/adam.first_moment", file, "parameters/big/x", H5P_DEFAULT,
                                   H5P_DEFAULT);
                           H5Lmove(file, "parameters/big/value", file, "parameters/big/adam.first_moment", H5P_DEFAULT,
                                   H5P_DEFAULT);
                           H5Lmove(file, "parameters/big/x", file, "parameters/big/value", H5P_DEFAULT, H5P_DEFAULT);
                         }),
                  "is not where the index in state.h5 places it");
  expect_contains(
      change("tensors-00000.h5", [](hid_t file) { H5Ldelete(file, "parameters/big/adam.first_moment", H5P_DEFAULT); }),
      "is not where the index");
}

TEST_F(CraftedCheckpointTest, RejectsImpossibleNumbers) {
  expect_contains(set_integer("best_step", 2), "is impossible");
  EXPECT_THAT(set_integer("best_step", 0), "");
  expect_contains(set_integer("position", -1), "is negative");
  EXPECT_THAT(set_integer("position", 1), "");
  expect_contains(set_integer("best_step", 2, "losses"), "/losses: a loss is not finite, or best_step");
  EXPECT_THAT(set_integer("best_step", 1, "losses"), "");
  expect_contains(set_integer("risen_steps", -1, "losses"), "is impossible");
  EXPECT_THAT(set_integer("risen_steps", 1, "losses"), "");
  expect_contains(set_integer("step", (std::int64_t{1} << 31) + 7), "steps go up to 2147483647");
  write_file(directory_ / "state.h5", "no HDF5 at all");
  expect_contains(sign(), "could not open the file");
}

TEST_F(CraftedCheckpointTest, RefusesNegativeSecondMomentsAndNumbersThatAreNotFinite) {
  auto const set = [&](char const* key, float value) {
    Checkpoint const checkpoint = Checkpoint::open(directory_);
    TensorInfo const& tensor = checkpoint.tensor("decoder.1.bias");
    std::int64_t const offset = tensor.offsets[tensor.find(key).value()];
    std::string content = read_whole(directory_ / "tensors-00000.h5");
    std::memcpy(content.data() + offset, &value, sizeof value);
    write_file(directory_ / "tensors-00000.h5", content);
    EXPECT_EQ(sign(), "");
    return message_of<DataError>([&] { Checkpoint::open(directory_).read("decoder.1.bias", key); });
  };
  EXPECT_EQ(set(value_key, -1), "");
  EXPECT_EQ(set(second_moment, 1), "");
  expect_contains(set(second_moment, -1), "'decoder.1.bias''s adam.second_moment holds negative values");
  expect_contains(set(value_key, std::numeric_limits<float>::infinity()), "not finite, which no training leaves");
}

TEST_F(CheckpointTest, ValuesThatAreNotFiniteAreNotKept) {
  commit(1);
  for (auto const& [part, number] : {std::pair<std::size_t, float>{0, std::numeric_limits<float>::infinity()},
                                     {1, std::numeric_limits<float>::quiet_NaN()},
                                     {2, -1e-30F}}) {
    SampleState sample(2);
    sample.tensors().parts(2)[part][100000] = number;
    try {
      sample.commit_to(store());
      ADD_FAILURE() << "kept " << number;
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ExitCode::loss_not_finite);
      expect_contains(error.what(), {"parameter big", "--resume-from STEP"});
    }
    EXPECT_THAT(names(), ElementsAre("step-00000001"));
  }
}

TEST_F(CheckpointTest, GoesBackToAnEarlierStep) {
  for (auto const& [step, best] : {std::pair(1, 1), {2, 1}, {3, 1}, {4, 4}}) {
    commit_with_best(step, best, 9);
  }
  EXPECT_EQ(link(), "step-00000004");
  std::vector<std::string> reports;
  auto const report = [&](std::string const& message) { reports.push_back(message); };
  EXPECT_THROW(store().go_back(5, report, Communicator::self()), DataError);
  EXPECT_THAT(reports, IsEmpty());
  EXPECT_EQ(store().go_back(2, report, Communicator::self()).state().step, 2);
  EXPECT_THAT(reports, SizeIs(2));
  EXPECT_THAT(names(), ElementsAre("best", "rejected-step-00000003", "rejected-step-00000004", "step-00000001",
                                   "step-00000002"));
  EXPECT_EQ(best(), 1) << "the best one of the state of step 2";
  EXPECT_EQ(link(), "step-00000001");
  EXPECT_EQ(store().newest_verified({})->state().step, 2);
}

TEST_F(CheckpointTest, AWriterHoldsOneChunkOfATensor) {
  SampleState sample(1);
  sample.add("huge", {9, 1 << 18}, 1, true);
  Checkpoint const checkpoint = Checkpoint::open(sample.commit_to(store()).directory);
  EXPECT_EQ(sample.tensors().largest_chunk(), std::size_t{1} << 20);
  for (std::size_t key = 0; key < adam_keys.size(); ++key) {
    expect_same_bits(checkpoint.read("huge", adam_keys[key]), sample.tensors().parts(4)[key]);
  }
  auto const columns = checkpoint.read(TensorSlice{"huge", second_moment, {{0, 9}, {1000, 1262}}});
  ASSERT_THAT(columns, SizeIs(9 * 262));
  EXPECT_EQ(columns[8 * 262 + 261], sample.tensors().parts(4)[2][8 * (1 << 18) + 1261]);
}

TEST_F(CheckpointTest, PrunesOldOnesButNeverTheBest) {
  for (std::int64_t step = 1; step <= 6; ++step) {
    commit_with_best(step, 1);
  }
  EXPECT_THAT(names(), ElementsAre("best", "step-00000001", "step-00000004", "step-00000005", "step-00000006"));
  commit_with_best(7, 5, 0);
  EXPECT_THAT(names(), ElementsAre("best", "step-00000005", "step-00000006", "step-00000007"));
  EXPECT_EQ(Checkpoint::open(run_ / "checkpoints/best").state().step, 5);
}

TEST_F(CheckpointTest, TornOnesDoNotCountAsKept) {
  commit(1);
  commit(2);
  fs::resize_file(run_ / "checkpoints/step-00000002/state.h5", 100);
  commit(3, 2);
  EXPECT_THAT(names(), ElementsAre("step-00000001", "step-00000002", "step-00000003"));
}

TEST_F(CheckpointTest, DamagedOnesThatTheRunDidNotGoOnFromDoNotCountAsKept) {
  for (std::int64_t const step : {10, 20, 30}) {
    commit(step);
  }
  damage(20);
  damage(30);
  EXPECT_EQ(store().newest_verified({})->state().step, 10);
  commit(15, 2);
  EXPECT_THAT(names(), ElementsAre("step-00000010", "step-00000015", "step-00000020", "step-00000030"));
  commit(17, 2);
  EXPECT_THAT(names(), ElementsAre("step-00000015", "step-00000017", "step-00000020", "step-00000030"));
}

TEST_F(CheckpointTest, DamagedOnesAreStillKnownWhenTheRunHasPassedThem) {
  for (std::int64_t const step : {70, 80, 85}) {
    commit(step);
  }
  damage(85);
  CheckpointStore kept = store(2);
  EXPECT_EQ(kept.newest_verified({})->state().step, 80);
  SampleState(120).commit_to(kept);
  EXPECT_THAT(names(), ElementsAre("step-00000080", "step-00000085", "step-00000120"));
}

TEST_F(CheckpointTest, SparesTheNewestUpToAStep) {
  CheckpointStore kept = store(2);
  kept.protect(25);
  for (std::int64_t const step : {10, 20, 30, 40, 50}) {
    SampleState(step).commit_to(kept);
  }
  EXPECT_THAT(names(), ElementsAre("step-00000020", "step-00000040", "step-00000050"));
  kept.protect(std::nullopt);
  SampleState(60).commit_to(kept);
  EXPECT_THAT(names(), ElementsAre("step-00000050", "step-00000060"));
}

TEST_F(CheckpointTest, KeepsAVerifiedCheckpointOfTheSameStep) {
  commit(4);
  std::string const before = read_whole(run_ / "checkpoints/step-00000004/state.h5");
  SampleState other(4);
  other.contents().config = "something else";
  CommitResult const result = other.commit_to(store());
  EXPECT_TRUE(result.already_there);
  EXPECT_THAT(result.notes, ElementsAre(HasSubstr("was kept")));
  EXPECT_EQ(read_whole(run_ / "checkpoints/step-00000004/state.h5"), before);
}

TEST_F(CheckpointTest, MovesADamagedCheckpointOfTheSameStepAside) {
  for (int round = 0; round < 2; ++round) {
    commit(4);
    fs::resize_file(run_ / "checkpoints/step-00000004/state.h5", 100);
  }
  CommitResult const result = commit(4);
  EXPECT_FALSE(result.already_there);
  EXPECT_THAT(result.notes, ElementsAre(HasSubstr("moved aside to rejected-step-00000004-1")));
  EXPECT_THAT(names(), ElementsAre("rejected-step-00000004", "rejected-step-00000004-1", "step-00000004"));
  expect_whole(Checkpoint::open(result.directory), 4);
}

TEST_F(CheckpointTest, NewestVerifiedReportsEveryRejectedOne) {
  EXPECT_FALSE(store().newest_verified({}).has_value());
  for (std::int64_t step : {1, 2, 3}) {
    commit(step);
  }
  fs::resize_file(run_ / "checkpoints/step-00000003/state.h5", 100);
  fs::remove(run_ / "checkpoints/step-00000002/MANIFEST.json");
  fs::create_directory_symlink("step-00000001", run_ / "checkpoints/step-00000009");
  std::vector<std::string> reports;
  auto const report = [&](std::string const& message) { reports.push_back(message); };
  auto const newest = store().newest_verified(report);
  ASSERT_TRUE(newest.has_value());
  expect_whole(*newest, 1);
  EXPECT_THAT(reports, ElementsAre(HasSubstr("step-00000009 rejected: is a symbolic link"),
                                   HasSubstr("step-00000003 rejected: "), HasSubstr("step-00000002 rejected: ")));
  fs::remove_all(run_ / "checkpoints/step-00000001");
  try {
    store().newest_verified({});
    FAIL() << "resumed from a checkpoint that does not verify";
  } catch (DataError const& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_data);
    expect_contains(error.what(), {"no checkpoint verifies", "step-00000002 rejected"});
  }
}

TEST_F(CheckpointTest, ARejectedOneAloneIsNotAFreshStart) {
  fs::create_directories(run_ / "checkpoints/rejected-step-00000001");
  EXPECT_THROW(store().newest_verified({}), DataError);
}

TEST_F(CheckpointTest, ListsWithTheCheckAskedFor) {
  EXPECT_THAT(store().list(CheckpointStore::Check::all_bytes), IsEmpty());
  commit(1);
  commit_with_best(2, 2);
  std::string damaged = read_whole(run_ / "checkpoints/step-00000001/state.h5");
  damaged[damaged.size() / 2] ^= 1;
  write_file(run_ / "checkpoints/step-00000001/state.h5", damaged);
  auto const quick = store().list(CheckpointStore::Check::sizes);
  ASSERT_THAT(quick, SizeIs(2));
  EXPECT_EQ(quick[0].problem, "");
  EXPECT_TRUE(quick[1].best);
  EXPECT_GT(quick[1].bytes, 2500000);
  auto const thorough = store().list(CheckpointStore::Check::all_bytes);
  expect_contains(thorough[0].problem, "SHA-256");
  EXPECT_EQ(thorough[1].problem, "");
}

TEST_F(CheckpointTest, ListsTheCheckpointsOfWhateverPlaceTheUserNames) {
  using Check = CheckpointStore::Check;
  commit(1);
  commit_with_best(2, 1);
  EXPECT_THAT(list_checkpoints(run_, Check::sizes), SizeIs(2));
  EXPECT_THAT(list_checkpoints(run_ / "checkpoints/", Check::sizes), SizeIs(2));
  EXPECT_EQ(list_checkpoints(run_ / "checkpoints/step-00000002/", Check::sizes).at(0).step, 2);
  auto const best = list_checkpoints(run_ / "checkpoints/best", Check::all_bytes);
  ASSERT_THAT(best, SizeIs(1));
  EXPECT_EQ(best[0].step, 1);
  EXPECT_EQ(best[0].problem, "");
  fs::remove(run_ / "checkpoints/step-00000001/MANIFEST.json");
  expect_contains(list_checkpoints(run_ / "checkpoints/step-00000001", Check::sizes).at(0).problem, "MANIFEST");
  EXPECT_THROW(list_checkpoints(run_ / "nowhere", Check::sizes), DataError);
  EXPECT_THROW(list_checkpoints(run_ / "checkpoints/step-00000009", Check::sizes), DataError);
  fs::create_directories(run_ / "empty");
  EXPECT_THAT(list_checkpoints(run_ / "empty", Check::sizes), IsEmpty());
}

TEST(CheckpointNames, AreCanonical) {
  EXPECT_EQ(checkpoint_directory_name(1000), "step-00001000");
  EXPECT_EQ(checkpoint_directory_name(1234567890), "step-1234567890");
  EXPECT_EQ(checkpoint_step("step-00001000"), 1000);
  EXPECT_EQ(checkpoint_step("step-1234567890"), 1234567890);
  for (char const* name : {"step-", "step-1000", "step-000001000", "step-0000100x", "step--0001000", "best",
                           ".tmp-step-00001000", "step-99999999999999999999"}) {
    EXPECT_EQ(checkpoint_step(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace heddle
