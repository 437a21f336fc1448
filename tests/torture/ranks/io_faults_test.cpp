#include <heddle/core/parallel/host_values.hpp>
#include <heddle/io/checkpoint/store.hpp>

#include "dist/synthetic_model.hpp"
#include "file_faults.hpp"
#include "torture.hpp"

namespace heddle {
namespace {

std::map<FileCall, std::vector<FaultKind>> const faults{
    {FileCall::pwrite,
     {FaultKind::io_error, FaultKind::no_space, FaultKind::short_count, FaultKind::flipped_bit, FaultKind::delay}},
    {FileCall::pread, {FaultKind::io_error, FaultKind::short_count, FaultKind::flipped_bit}},
    {FileCall::fsync, {FaultKind::io_error, FaultKind::delay}}};

/// A model whose state all ranks write, each a file, while a call of one of them fails.
class IoFaults : public DistTest {
 protected:
  struct Counts {
    int struck = 0;
    int saved = 0;  ///< all the same, and whole
  };

  IoFaults() {
    if (world_.rank() == 0) {
      made_ = std::make_unique<TemporaryDirectory>();
    }
    directory_ = broadcast_text(world_, made_ ? made_->path().string() : "");
  }
  ~IoFaults() override { world_.barrier(); }

  CheckpointStore store() const { return {directory_ / "run", 9}; }

  /// The error of a save of `step`; "" if it succeeded.
  std::string commit(std::int64_t step) {
    ModelStream tensors(model_.parallel, model_.model, model_.parameters, model_.optimizer);
    CheckpointContents contents;
    contents.state.step = step;
    return message_of<Error>([&] { store().commit(world_, contents, tensors, world_.size()); });
  }

  /// Whether a checkpoint has the numbers of the model.
  bool whole(Checkpoint const& checkpoint) const {
    bool same = true;
    for (Parameter const& parameter : model_.parameters.all()) {
      TensorSlice const slice{parameter.spec.name, value_key, parameter.slice.ranges()};
      same = same && checkpoint.read(slice) == to_host<float>(parameter.value);
    }
    return !any_of(world_, !same);
  }

  /// Lets each call of this kind on `rank` fail, one save for each, until a save has no further such call.
  void strike_each(int rank, FileCall call, FaultKind kind, Counts& counts) {
    bool happened = true;
    for (int number = 0; happened; ++number) {
      SCOPED_TRACE(testing::Message() << "rank " << rank << ", call " << static_cast<int>(call) << ", fault "
                                      << static_cast<int>(kind) << ", number " << number);
      std::unique_ptr<FileFault> fault;
      if (world_.rank() == rank) {
        fault = std::make_unique<FileFault>(call, kind, number);
      }
      std::string const error = commit(2);
      happened = any_of(world_, fault && fault->happened());
      fault.reset();
      std::vector<std::string> rejected;
      auto const newest = store().newest_verified([&](std::string const& text) { rejected.push_back(text); }, world_);
      ASSERT_TRUE(newest.has_value());
      ASSERT_TRUE(whole(*newest));
      ASSERT_THAT(rejected, IsEmpty());
      std::int64_t const step = newest->state().step;
      // A failed fsync of the parent directory comes after the rename: the step may be there, but is not promised.
      ASSERT_TRUE(step == (error.empty() ? 2 : 1) || (step == 2 && call == FileCall::fsync)) << error;
      ASSERT_TRUE(kind != FaultKind::delay || error.empty()) << error;
      counts.struck += happened ? 1 : 0;
      counts.saved += happened && error.empty() ? 1 : 0;
      on_rank_0_remove_others();
    }
  }

  void on_rank_0_remove_others() const {
    world_.barrier();
    if (world_.rank() == 0) {
      for (auto const& entry : fs::directory_iterator(directory_ / "run")) {
        if (entry.path().filename() != "step-00000001" && entry.path().filename() != ".lock") {
          fs::remove_all(entry.path());
        }
      }
    }
    world_.barrier();
  }

  std::unique_ptr<TemporaryDirectory> made_;  ///< rank 0's
  fs::path directory_;
  SyntheticModel model_{state_of({1, world_.size(), 1, 1}), {}};
};

TEST_F(IoFaults, AFaultOfAnyCallOnAnyWriterLeavesTheEarlierCheckpoint) {
  model_.step(0, 4);
  ASSERT_EQ(commit(1), "");
  Counts counts;
  for (int rank = torture_is_big() ? 0 : world_.size() - 1; rank < world_.size(); ++rank) {
    for (auto const& [call, kinds] : faults) {
      for (FaultKind const kind : kinds) {
        strike_each(rank, call, kind, counts);
      }
    }
  }
  EXPECT_GT(counts.struck, 5);
  if (world_.rank() == 0) {
    print_figures(fmt::format(
        "{} faults, one in each call of a save on {} of {} writers: the earlier checkpoint or the whole new one each "
        "time ({} saves succeeded all the same: short counts, delays)",
        counts.struck, torture_is_big() ? "each" : "one", world_.size(), counts.saved));
  }
}

}  // namespace
}  // namespace heddle
