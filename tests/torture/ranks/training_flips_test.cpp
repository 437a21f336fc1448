#include <bit>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/optimizer/buffer_shards.hpp>
#include <heddle/dist/state/replica_check.hpp>
#include <random>

#include "dist/dist_fixture.hpp"
#include "dist/layout_run.hpp"
#include "torture.hpp"

// Bits flipped while a model trains: three steps come before the comparison, as between two checkpoints.
namespace heddle {
namespace {

enum class Where : std::uint8_t {
  own_value,
  copied_value,
  first_moment,
  second_moment,
  partial_gradient,
  own_gradient
};
constexpr std::array where_names{"values",         "copies of others' values",   "first moments",
                                 "second moments", "gradients before their sum", "summed gradients"};

std::array<std::string, 2> const keys{"adam.first_moment", "adam.second_moment"};

/// One flip; the same on all ranks.
struct Flip {
  Where where = Where::own_value;
  int rank = 0;
  int step = 0;  ///< before it, or in it if it is a gradient's
  std::uint64_t element = 0;
  int bit = 0;
};

/// The result of a case; the same on all ranks.
struct Result {
  bool found = false;
  bool rank_named = false;
  bool named = false;  ///< the rank and the tensor
  bool finite = true;
  bool changed = false;  ///< the state after the last step is not that of the undisturbed run
};

/// The first parameter with an element in a range of the buffers.
std::string name_at(ParameterSet const& parameters, std::int64_t element) {
  for (Parameter const& parameter : parameters.all()) {
    if (element >= elements_of(parameter).begin && element < elements_of(parameter).end) {
      return parameter.spec.name;
    }
  }
  return "";
}

class TrainingFlips {
 public:
  static constexpr int first_step = 2;
  static constexpr int last_step = 4;

  TrainingFlips(Layout const& layout, Communicator const& world)
      : world_(world),
        parallel_(parallel_of(layout, world)),
        run_(all_variants().front(), layout, world, DType::float32) {
    step(0, {});
    start_ = state();
    restore();
    EXPECT_TRUE(run({}).finite);
    end_ = state();
  }

  bool sharded() { return optimizer().sharded(); }

  Result attempt(Flip const& flip) {
    restore();
    Result result = run(flip);
    std::string message;
    try {
      check_replicas(parallel_, parameters(), &optimizer());
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ExitCode::replicas_diverged);
      message = error.what();
    }
    std::string const name = broadcast_text(world_, name_, flip.rank);
    std::string const rank = std::to_string(flip.rank);
    result.found = !message.empty();
    bool const right_rank =
        message.find("on rank " + rank + " ") != message.npos || message.find("{" + rank + "}") != message.npos;
    bool const right_name =
        message.find(" " + name + " ") != message.npos || message.find(" " + name + "'s ") != message.npos;
    result.rank_named = right_rank;
    result.named = right_rank && right_name;
    result.changed = any_of(world_, state() != end_);
    return result;
  }

 private:
  ParameterSet& parameters() { return run_.engine().parameters(); }
  DistributedOptimizer& optimizer() { return run_.engine().optimizer(); }

  /// Values and this rank's moments.
  std::array<std::vector<float>, 3> state() {
    return {to_host<float>(parameters().values()), to_host<float>(kept(keys[0])), to_host<float>(kept(keys[1]))};
  }

  void restore() {
    copy_from_host(parameters().values(), start_[0].data());
    parameters().bump_versions();
    for (Parameter const& parameter : parameters().all()) {
      for (std::string const& key : parameter.state) {
        for (IndexRange const& range : optimizer().kept_state(parameter, key)) {
          optimizer().set_state(parameter, key, range, std::vector<float>(static_cast<std::size_t>(range.count())));
        }
      }
    }
    copy_from_host(kept(keys[0]), start_[1].data());
    copy_from_host(kept(keys[1]), start_[2].data());
  }

  Tensor const& kept(std::string const& key) { return optimizer().local().state().at(key); }

  Result run(std::optional<Flip> const& flip) {
    Result result;
    name_.clear();
    for (int number = 1; number <= last_step; ++number) {
      std::optional<Flip> const now = flip && flip->step == number ? flip : std::nullopt;
      result.finite = step(number, now) && result.finite;
    }
    return result;
  }

  bool step(int number, std::optional<Flip> const& flip) {
    bool const mine = flip && flip->rank == world_.rank();
    bool const partial = mine && flip->where == Where::partial_gradient;
    if (mine && flip->where < Where::partial_gradient) {
      strike(*flip);
    }
    // Each data rank has all four. When the last one is asked for, the first two have added to the gradients.
    auto const make = [&](std::int64_t index) {
      if (partial && index + 1 == micro_batches) {
        strike(*flip);
      }
      return run_.pack(number, index);
    };
    double const loss =
        run_.engine().accumulate(TestMicroBatches(micro_batches, make, 2 * target_tokens(number)), number);
    if (mine && flip->where == Where::own_gradient) {
      strike(*flip);
    }
    double const norm = run_.engine().update(run_.rate(), number + 1);
    return std::isfinite(loss) && std::isfinite(norm);
  }

  /// The elements of the buffers that a flip may hit: of parameters, and of this rank's parts or the others'.
  std::vector<std::int64_t> candidates(Where where) {
    std::vector<std::int64_t> elements;
    for (Parameter const& parameter : parameters().all()) {
      IndexRange const all = elements_of(parameter);
      auto const own = intersection({all}, optimizer().local().parts());
      for (std::int64_t element = all.begin; element < all.end; ++element) {
        bool const is_own = std::ranges::any_of(
            own, [&](IndexRange const& part) { return part.begin <= element && element < part.end; });
        if (where == Where::partial_gradient || is_own == (where != Where::copied_value)) {
          elements.push_back(element);
        }
      }
    }
    return elements;
  }

  void strike(Flip const& flip) {
    auto const elements = candidates(flip.where);
    std::int64_t const element = elements[flip.element % elements.size()];
    name_ = name_at(parameters(), element);
    IndexRange const range{element, element + 1};
    Optimizer const& own = optimizer().local();
    Tensor const hit = flip.where <= Where::copied_value    ? parameters().values().rows(element, 1)
                       : flip.where == Where::first_moment  ? own.state_in(keys[0], range)
                       : flip.where == Where::second_moment ? own.state_in(keys[1], range)
                                                            : parameters().gradients().rows(element, 1);
    float const flipped =
        std::bit_cast<float>(std::bit_cast<std::uint32_t>(to_host<float>(hit).front()) ^ (1U << flip.bit));
    copy_from_host(hit, &flipped);
  }

  Communicator world_;
  ParallelState parallel_;
  LayoutRun run_;
  std::array<std::vector<float>, 3> start_, end_;  ///< after the first step, and after the last one undisturbed
  std::string name_;                               ///< of the damaged parameter, on its rank
};

class ReplicaFlipsInTraining : public DistTest {
 protected:
  /// Whether a kind of flip must be found.
  static bool is_promised(Where where, bool sharded) {
    return where == Where::partial_gradient || where == Where::copied_value ? false
           : where == Where::own_gradient                                   ? !sharded
                                                                            : true;
  }

  void attack(Layout const& layout) {
    TrainingFlips flips(layout, world_);
    std::int64_t const cases = torture_count(6, 200);
    std::mt19937 random(7);  // the same on all ranks
    struct Count {
      int flips = 0, found = 0, rank_named = 0, named = 0, not_finite = 0, kept = 0, without_effect = 0;
    };
    std::map<Where, Count> counts;
    for (std::int64_t number = 0; number < cases; ++number) {
      Flip flip{.where = static_cast<Where>(number % 6)};
      if (!flips.sharded() && flip.where == Where::copied_value) {
        flip.where = Where::own_value;
      }
      flip.rank = static_cast<int>(random() % static_cast<unsigned>(world_.size()));
      flip.step = TrainingFlips::first_step +
                  static_cast<int>(random() % (TrainingFlips::last_step - TrainingFlips::first_step + 1));
      flip.element = random();
      flip.bit = static_cast<int>(random() % 32);
      Result const result = flips.attempt(flip);
      Count& count = counts[flip.where];
      ++count.flips;
      count.found += result.found ? 1 : 0;
      count.rank_named += result.rank_named ? 1 : 0;
      count.named += result.named ? 1 : 0;
      count.not_finite += !result.found && !result.finite ? 1 : 0;
      count.kept += !result.found && result.finite && result.changed ? 1 : 0;
      count.without_effect += !result.found && result.finite && !result.changed ? 1 : 0;
    }
    std::string text;
    for (auto const& [where, count] : counts) {
      text += fmt::format("; {}: {} of {} found, {} named right ({} the rank)",
                          where_names[static_cast<std::size_t>(where)], count.found, count.flips, count.named,
                          count.rank_named);
      for (auto const& [number, what] : {std::pair{count.without_effect, "without effect"},
                                         {count.not_finite, "in steps that are not finite"},
                                         {count.kept, "kept in a checkpoint"}}) {
        text += number > 0 ? fmt::format(", {} {}", number, what) : "";
      }
      if (is_promised(where, flips.sharded())) {
        EXPECT_EQ(count.found + count.without_effect, count.flips) << describe(layout) << text;
        // A rank whose gradient norm is wrong clips all gradients otherwise: then all its tensors differ.
        EXPECT_EQ(where == Where::own_gradient ? count.rank_named : count.named, count.found)
            << describe(layout) << text;
      }
    }
    if (world_.rank() == 0) {
      print_figures(describe(layout) + text);
    }
  }
};

TEST_F(ReplicaFlipsInTraining, WhatIsPromisedIsFoundAndNamed) {
  int const ranks = world_.size();
  if (ranks != 2 && ranks != 4) {
    return;
  }
  for (bool const shard : {false, true}) {
    attack({.shape = {1, 2, ranks / 2, 1}, .shard_optimizer = shard});
    if (ranks == 4) {
      attack({.shape = {1, 2, 1, 2}, .shard_optimizer = shard});
    }
  }
}

}  // namespace
}  // namespace heddle
