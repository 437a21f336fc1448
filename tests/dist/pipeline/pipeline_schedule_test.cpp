#include <heddle/dist/pipeline/schedule.hpp>
#include <tuple>

#include "test.hpp"

namespace heddle {
namespace {

constexpr int max_stages = 8;
constexpr std::int64_t max_micro_batches = 17;

/// Runs all stages' lists: an action begins when the one before it and the one it depends on have ended.
class Simulation {
 public:
  Simulation(int stages, int parts, std::int64_t micro_batches, bool training, bool split_backward = false)
      : stages_(stages), parts_(parts), clocks_(static_cast<std::size_t>(stages)), next_(clocks_.size()) {
    for (int stage = 0; stage < stages; ++stage) {
      PipelinePosition const place{stage, stages, parts, split_backward};
      lists_.push_back(training ? training_actions(place, micro_batches) : forward_actions(place, micro_batches));
    }
  }

  /// The step's length if a forward takes 1 and a backward (each part of one that is split) `backward`; nothing on
  /// deadlock.
  std::optional<int> run(int backward) {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t stage = 0; stage < lists_.size(); ++stage) {
        while (next_[stage] < lists_[stage].size() && act(stage, lists_[stage][next_[stage]], backward)) {
          ++next_[stage];
          moved = true;
        }
      }
    }
    for (std::size_t stage = 0; stage < lists_.size(); ++stage) {
      if (next_[stage] < lists_[stage].size()) {
        return std::nullopt;
      }
    }
    return *std::max_element(clocks_.begin(), clocks_.end());
  }

  std::vector<std::vector<PipelineAction>> const& lists() const { return lists_; }

 private:
  using Key = std::tuple<Pass, int, std::int64_t>;  ///< pass, virtual stage, micro-batch

  bool act(std::size_t stage, PipelineAction const& action, int backward) {
    int const virtual_stage = action.part * stages_ + static_cast<int>(stage);
    std::vector<Key> needed;
    if (action.pass == Pass::backward) {
      needed.emplace_back(Pass::forward, virtual_stage, action.micro_batch);
      if (virtual_stage + 1 < stages_ * parts_) {
        needed.emplace_back(Pass::backward, virtual_stage + 1, action.micro_batch);
      }
    } else if (action.pass == Pass::weights) {
      needed.emplace_back(Pass::backward, virtual_stage, action.micro_batch);
    } else if (virtual_stage > 0) {
      needed.emplace_back(Pass::forward, virtual_stage - 1, action.micro_batch);
    }
    int begin = clocks_[stage];
    for (Key const& key : needed) {
      auto const found = ended_.find(key);
      if (found == ended_.end()) {
        return false;
      }
      begin = std::max(begin, found->second);
    }
    clocks_[stage] = begin + (action.pass == Pass::forward ? 1 : backward);
    bool const fresh = ended_.insert({{action.pass, virtual_stage, action.micro_batch}, clocks_[stage]}).second;
    EXPECT_TRUE(fresh) << "a pass occurs twice";
    return true;
  }

  int stages_;
  int parts_;
  std::vector<std::vector<PipelineAction>> lists_;
  std::vector<int> clocks_;
  std::vector<std::size_t> next_;
  std::map<Key, int> ended_;
};

template <class Visit>
void for_each_size(Visit const& visit) {
  for (int stages = 1; stages <= max_stages; ++stages) {
    for (std::int64_t micro_batches = 1; micro_batches <= max_micro_batches; ++micro_batches) {
      for (int parts : {1, 2}) {
        if (stages > 1 || parts == 1) {
          SCOPED_TRACE(testing::Message()
                       << stages << " stages, " << micro_batches << " micro-batches, " << parts << " parts");
          visit(stages, micro_batches, parts);
        }
      }
    }
  }
}

TEST(PipelineSchedule, NoStageWaitsForEverAndEveryPassOccursOnce) {
  for_each_size([](int stages, std::int64_t micro_batches, int parts) {
    for (bool const training : {true, false}) {
      for (int const backward : {1, 2, 5}) {
        Simulation simulation(stages, parts, micro_batches, training);
        EXPECT_TRUE(simulation.run(backward)) << (training ? "training" : "forward alone");
        for (std::vector<PipelineAction> const& list : simulation.lists()) {
          EXPECT_EQ(list.size(), static_cast<std::size_t>(micro_batches * parts * (training ? 2 : 1)));
        }
      }
    }
  });
}

TEST(PipelineSchedule, TheBubbleIsTheFormulas) {
  for_each_size([](int stages, std::int64_t micro_batches, int parts) {
    if (parts > 1 && micro_batches < stages) {
      return;  // a part ends before its next one can begin
    }
    for (int const backward : {1, 2, 5}) {
      auto const work = static_cast<int>(parts * micro_batches) * (1 + backward);
      int const bubble = (stages - 1) * (1 + backward);
      EXPECT_EQ(Simulation(stages, parts, micro_batches, true).run(backward), work + bubble);
    }
  });
}

TEST(PipelineSchedule, SplitBackwardPassesLeaveAThirdOfTheBubble) {
  for_each_size([](int stages, std::int64_t micro_batches, int parts) {
    Simulation simulation(stages, parts, micro_batches, true, true);
    std::optional<int> const length = simulation.run(1);
    ASSERT_TRUE(length);
    if (micro_batches >= stages) {
      EXPECT_EQ(*length, 3 * parts * micro_batches + stages - 1);
    }
    std::int64_t first = 0;
    for (std::vector<PipelineAction> const& list : simulation.lists()) {
      EXPECT_EQ(std::ssize(list), 3 * parts * micro_batches);
      std::int64_t const in_flight = max_in_flight(list);
      first = std::max(first, list == simulation.lists().front() ? in_flight : 0);
      EXPECT_LE(in_flight, first);
    }
  });
}

TEST(PipelineSchedule, FewMicroBatchesAreInFlight) {
  for_each_size([](int stages, std::int64_t micro_batches, int parts) {
    for (int stage = 0; stage < stages; ++stage) {
      std::int64_t const max = max_in_flight(training_actions({stage, stages, parts}, micro_batches));
      if (parts == 1) {
        EXPECT_EQ(max, std::min<std::int64_t>(stages - stage, micro_batches));
      } else if (micro_batches % stages == 0) {
        EXPECT_EQ(max, std::min<std::int64_t>(2 * (stages - stage - 1) + stages + 1, 2 * micro_batches));
      } else {
        EXPECT_LE(max, 2 * (stages - stage - 1) + 2 * stages);
      }
    }
  });
}

TEST(PipelineSchedule, OneForwardOneBackwardInWords) {
  auto const f = [](std::int64_t micro_batch) { return PipelineAction{Pass::forward, 0, micro_batch}; };
  auto const b = [](std::int64_t micro_batch) { return PipelineAction{Pass::backward, 0, micro_batch}; };
  EXPECT_THAT(training_actions({0, 2, 1}, 3), ElementsAre(f(0), f(1), b(0), f(2), b(1), b(2)));
  EXPECT_THAT(training_actions({1, 2, 1}, 3), ElementsAre(f(0), b(0), f(1), b(1), f(2), b(2)));
  auto const w = [](std::int64_t micro_batch) { return PipelineAction{Pass::weights, 0, micro_batch}; };
  EXPECT_THAT(training_actions({0, 2, 1, true}, 2), ElementsAre(f(0), f(1), b(0), w(0), b(1), w(1)));
  EXPECT_THAT(training_actions({1, 2, 1, true}, 2), ElementsAre(f(0), b(0), f(1), b(1), w(0), w(1)));
  EXPECT_THAT(forward_actions({0, 2, 2}, 2),
              ElementsAre(f(0), f(1), PipelineAction{Pass::forward, 1, 0}, PipelineAction{Pass::forward, 1, 1}));
}

}  // namespace
}  // namespace heddle
