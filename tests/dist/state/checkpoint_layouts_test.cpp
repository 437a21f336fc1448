#include <signal.h>
#include <sys/resource.h>

#include <heddle/dist/state/replica_check.hpp>

#include "file_faults.hpp"
#include "state/load_state.hpp"

namespace heddle {
namespace {

using Options = SyntheticModel::Options;

class CheckpointLayoutsTest : public CheckpointTest {
 protected:
  static bool same(std::vector<WholeTensor> const& left, std::vector<WholeTensor> const& right) {
    return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                      [](auto const& a, auto const& b) { return a == b; });
  }
};

TEST_F(CheckpointLayoutsTest, EveryLayoutWritesTheBytesThatOneRankWritesAndLoadsThem) {
  SyntheticModel alone(ParallelState(), {});
  alone.step(0, 4);
  std::string expected;
  if (world_.rank() == 0) {
    fs::path const written = commit(alone, "alone", 1);
    expected = read_whole(written / "tensors-00000.h5");
    EXPECT_GT(expected.size(), 40000U);
  }
  int number = 0;
  for (auto const& layout : layouts_of(world_.size())) {
    for (bool const shard : {false, true}) {
      SyntheticModel model(state_of(layout), {.shard = shard});
      SCOPED_TRACE(testing::Message() << model.parallel.mesh.to_string() << (shard ? ", sharded" : ""));
      model.step(0, 4);
      std::string const store = std::to_string(number++);
      // All ranks write; then a model that has trained on takes the state up again, and one rank writes it.
      fs::path const divided = commit(model, store + "-divided", world_.size());
      EXPECT_TRUE(fs::exists(divided / fmt::format("tensors-{:05}.h5", world_.size() - 1)));
      model.step(1, 4);
      load_state(model, Checkpoint::open(divided, world_));
      EXPECT_TRUE(same(model.gathered(7), model.gathered())) << "small chunks";
      fs::path const whole = commit(model, store, 1);
      if (world_.rank() == 0) {
        EXPECT_TRUE(read_whole(whole / "tensors-00000.h5") == expected);
      }
    }
  }
}

TEST_F(CheckpointLayoutsTest, ARunResumesUnderAnotherSizeOfAnExpertAxis) {
  SyntheticModel undisturbed(ParallelState(), {.clip_norm = 50});
  std::vector<double> norms;
  for (std::int64_t step = 0; step < 4; ++step) {
    norms.push_back(undisturbed.step(step, 4));
  }
  auto const expected = undisturbed.gathered();
  int const ranks = world_.size();
  int number = 0;
  for (auto const& [before, after] : {std::pair{1, ranks}, {ranks, 1}, {ranks, ranks}}) {
    for (bool const shard : {false, true}) {
      SCOPED_TRACE(testing::Message() << before << " to " << after << (shard ? ", sharded" : ""));
      SyntheticModel model(state_of(with_experts(ranks / before, before)), {.shard = shard, .clip_norm = 50});
      SyntheticModel resumed(state_of(with_experts(ranks / after, after)), {.shard = shard, .clip_norm = 50});
      EXPECT_EQ(model.step(0, 4), norms[0]);
      EXPECT_EQ(model.step(1, 4), norms[1]);
      check_replicas(model.parallel, model.parameters, &model.optimizer);
      load_state(resumed, Checkpoint::open(commit(model, fmt::format("experts-{}", number++), ranks), world_));
      EXPECT_EQ(resumed.step(2, 4), norms[2]);
      EXPECT_EQ(resumed.step(3, 4), norms[3]);
      check_replicas(resumed.parallel, resumed.parameters, &resumed.optimizer);
      if (auto const actual = resumed.gathered(); world_.rank() == 0) {
        EXPECT_TRUE(same(actual, expected));
      }
    }
  }
}

TEST_F(CheckpointLayoutsTest, AWriterThatFailsIsNamedOnEveryRankAndTheEarlierCheckpointStays) {
  SyntheticModel model(state_of({1, world_.size(), 1, 1}), {});
  commit(model, "run", world_.size(), 1);
  int const last = world_.size() - 1;
  for (auto const& [call, kind] : {std::pair{FileCall::pwrite, FaultKind::no_space},
                                   {FileCall::pwrite, FaultKind::flipped_bit},
                                   {FileCall::fsync, FaultKind::io_error}}) {
    // Rank 0's first fsyncs are those of directories that it makes: there are none now.
    std::unique_ptr<FileFault> const fault =
        world_.rank() == last ? std::make_unique<FileFault>(call, kind, 0) : nullptr;
    std::string const error = error_of([&] { commit(model, "run", world_.size(), 2); });
    expect_contains(error, {"checkpoint of step 2 was not written: ", fmt::format("tensors-{:05}.h5", last)});
    if (last > 0) {
      expect_contains(error, fmt::format("rank {} on ", last));
    }
    auto const newest = CheckpointStore(directory_ / "run", 9).newest_verified({}, world_);
    ASSERT_TRUE(newest.has_value());
    EXPECT_EQ(newest->state().step, 1);
    if (world_.rank() == 0) {
      for (auto const& entry : fs::directory_iterator(directory_ / "run")) {
        EXPECT_THAT(entry.path().filename().string(), AnyOf(".lock", "step-00000001"));
      }
    }
    world_.barrier();
  }
}

TEST_F(CheckpointLayoutsTest, ABitFlippedInOneRanksReadsRejectsTheCheckpointOnAllRanks) {
  SyntheticModel model(state_of({world_.size(), 1, 1, 1}), {});
  commit(model, "run", world_.size(), 1);
  commit(model, "run", world_.size(), 2);
  CheckpointStore store(directory_ / "run", 9);
  {
    std::unique_ptr<FileFault> const fault =
        world_.rank() == world_.size() - 1 ? std::make_unique<FileFault>(FileCall::pread, FaultKind::flipped_bit, 0)
                                           : nullptr;
    std::vector<std::string> rejected;
    auto const newest = store.newest_verified([&](std::string const& text) { rejected.push_back(text); }, world_);
    ASSERT_TRUE(newest.has_value());
    EXPECT_EQ(newest->state().step, 1);
    if (world_.rank() == 0) {
      EXPECT_THAT(rejected,
                  ElementsAre(AnyOf(HasSubstr("do not have the SHA-256"), HasSubstr("MANIFEST.json: is damaged"))));
    }
  }
  // The bytes that are loaded are verified, too, not only those that were looked at before.
  Checkpoint const checkpoint = *store.newest_verified({}, world_);
  EXPECT_EQ(checkpoint.state().step, 2);
  std::vector<float> const good = checkpoint.read("layer7.rows");
  std::string error = "nothing was thrown";
  int reads = 0;
  for (bool happened = true; happened; ++reads) {
    Checkpoint const other = Checkpoint::open(checkpoint.directory(), world_);
    FileFault const fault(FileCall::pread, FaultKind::flipped_bit, reads);
    error = error_of([&] { EXPECT_EQ(other.read("layer7.rows"), good); });
    happened = fault.happened();
    EXPECT_EQ(error != "nothing was thrown", happened);
    happened = any_of(world_, happened);
  }
}

TEST_F(CheckpointLayoutsTest, ValuesThatAreNotFiniteEndTheSaveOnAllRanks) {
  SyntheticModel model(state_of({1, 1, 1, world_.size()}), {});
  if (world_.rank() == world_.size() - 1) {
    auto values = to_host<float>(model.parameters.values());
    values[static_cast<std::size_t>(model.parameters.all().front().place.begin)] = HUGE_VALF;
    copy_from_host(model.parameters.values(), values.data());
  }
  try {
    commit(model, "run", 0);
    ADD_FAILURE() << "kept an infinite value";
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ExitCode::loss_not_finite);
    expect_contains(error.what(), "are not finite");
  }
}

}  // namespace
}  // namespace heddle
