#include <cstdlib>

#include "state/load_state.hpp"

namespace heddle {
namespace {

using Layout = MeshShape;

int ranks_of(Layout const& layout) {
  return layout.ranks();
}

/// The 18 layouts of tensor {1, 2, 4} x pipeline {1, 2} x data {1, 2, 3}.
std::vector<Layout> matrix() {
  std::vector<Layout> layouts;
  for (int const tensor : {1, 2, 4}) {
    for (int const pipeline : {1, 2}) {
      for (int const data : {1, 2, 3}) {
        layouts.push_back({pipeline, data, 1, tensor});
      }
    }
  }
  return layouts;
}

/// Layouts on the first ranks of one world.
class ReshardTest : public CheckpointTest {
 protected:
  /// Calls `action` with the communicator of the first `ranks` ranks, on these.
  void on_first(int ranks, auto const& action) {
    bool const takes_part = world_.rank() < ranks;
    Communicator const group = world_.split(takes_part ? 0 : 1, world_.rank());
    if (takes_part) {
      action(group);
    }
    world_.barrier();
  }

  static SyntheticModel model_of(Communicator const& group, Layout const& layout) {
    // Moments are sharded where there are replicas: this too must not show in the files.
    return SyntheticModel(make_parallel_state(group, Mesh(layout, group.rank(), group.size())),
                          {.shard = layout.size(MeshAxis::data) > 1});
  }
};

// Each layout writes its state with two writers; a model in another layout, which has other values, restores it and one
// rank writes it again: the files are byte for byte those of one rank. HEDDLE_TORTURE=big: all pairs.
TEST_F(ReshardTest, EveryLayoutReadsWhatEveryOtherWrote) {
  auto const layouts = matrix();
  std::string expected;
  on_first(1, [&](Communicator const& self) {
    SyntheticModel model = model_of(self, {1, 1, 1, 1});
    model.step(0, 12);
    expected = read_whole(commit(model, "one", 1) / "tensors-00000.h5");
    EXPECT_GT(expected.size(), 40000U);
    model.step(1, 12);
    EXPECT_NE(read_whole(commit(model, "later", 1) / "tensors-00000.h5"), expected);
  });
  for (std::size_t from = 0; from < layouts.size(); ++from) {
    on_first(ranks_of(layouts[from]), [&](Communicator const& group) {
      SyntheticModel model = model_of(group, layouts[from]);
      model.step(0, 12);
      commit(model, std::to_string(from), 2);
    });
  }
  char const* const size = std::getenv("HEDDLE_TORTURE");
  bool const all = size != nullptr && std::string(size) == "big";
  int pairs = 0;
  int equal = 0;
  for (std::size_t to = 0; to < layouts.size(); ++to) {
    // One rank reads all in the small version; each other layout reads one that is neither itself nor of one rank.
    std::size_t const other = 1 + (to + 6) % (layouts.size() - 1);
    on_first(ranks_of(layouts[to]), [&](Communicator const& group) {
      SyntheticModel model = model_of(group, layouts[to]);
      for (std::size_t from = 0; from < layouts.size(); ++from) {
        if (!all && to != 0 && from != other) {
          continue;
        }
        model.step(2, 12);
        load_state(model, Checkpoint::open(directory_ / std::to_string(from) / checkpoint_directory_name(1), group));
        std::string const again = fmt::format("{}-{}", from, to);
        fs::path const file = commit(model, again, 1) / "tensors-00000.h5";
        if (group.rank() == 0) {
          bool const same = read_whole(file) == expected;
          ++pairs;
          equal += same ? 1 : 0;
          EXPECT_TRUE(same) << "written by " << Mesh(layouts[from], 0, ranks_of(layouts[from])).to_string()
                            << ", read by " << model.parallel.mesh.to_string();
          fs::remove_all(directory_ / again);
        }
        group.barrier();
      }
    });
  }
  if (world_.rank() == 0) {
    EXPECT_EQ(pairs, all ? 324 : 35);
    fmt::print("figures: {} of {} pairs of layouts bitwise equal\n", equal, pairs);
  }
}

}  // namespace
}  // namespace heddle
