#include <bit>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/state/replica_check.hpp>
#include <random>

#include "dist/synthetic_model.hpp"
#include "torture.hpp"

namespace heddle {
namespace {

/// A model on ranks that all hold the same.
class ReplicaFlips : public DistTest {
 protected:
  /// The message of the comparison; "" where all agree.
  std::string difference() {
    try {
      check_replicas(model_.parallel, model_.parameters, &model_.optimizer);
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ExitCode::replicas_diverged);
      return error.what();
    }
    return "";
  }

  /// The memory of a parameter's value or one of its moments.
  Tensor memory(Parameter const& parameter, std::size_t key) const {
    return key == 0 ? parameter.value
                    : model_.optimizer.local().state_in(parameter.state[key - 1], elements_of(parameter));
  }

  static void flip(Tensor const& tensor, std::size_t element, int bit) {
    auto values = to_host<float>(tensor);
    values[element] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(values[element]) ^ (1U << bit));
    copy_from_host(tensor, values.data());
  }

  SyntheticModel model_{state_of({1, world_.size(), 1, 1}), {}};
};

TEST_F(ReplicaFlips, OneBitOnOneRankIsFoundAndItsTensorNamed) {
  model_.step(0, 4);
  std::int64_t const cases = torture_count(20, 200);
  std::int64_t missed = 0;
  std::mt19937 random(3);  // the same on all ranks
  for (std::int64_t number = 0; number < cases; ++number) {
    auto const& all = model_.parameters.all();
    Parameter const& parameter = all[random() % all.size()];
    Tensor const tensor = memory(parameter, random() % 3);
    std::size_t const element = random() % static_cast<std::size_t>(parameter.local_shape.size());
    int const bit = static_cast<int>(random() % 32);
    bool const mine = static_cast<int>(random() % static_cast<unsigned>(world_.size())) == world_.rank();
    if (mine) {
      flip(tensor, element, bit);
    }
    std::string const found = difference();
    bool const named = found.find(parameter.spec.name + " differs") != found.npos && found.find("(1 of ") != found.npos;
    missed += any_of(world_, !named) ? 1 : 0;
    if (mine) {
      flip(tensor, element, bit);
    }
    ASSERT_EQ(difference(), "") << "flipped back";
  }
  if (world_.rank() == 0) {
    print_figures(fmt::format("{} bits of values and moments flipped on one of {} ranks: missed {}", cases,
                              world_.size(), missed));
  }
  EXPECT_EQ(missed, 0);
}

TEST_F(ReplicaFlips, CleanStepsRaiseNoAlarm) {
  std::int64_t const steps = torture_count(50, 2'000);
  std::int64_t alarms = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    model_.step(step, 4);
    alarms += difference().empty() ? 0 : 1;
  }
  if (world_.rank() == 0) {
    print_figures(fmt::format("{} clean steps: false alarms {}", steps, alarms));
  }
  EXPECT_EQ(alarms, 0);
}

}  // namespace
}  // namespace heddle
