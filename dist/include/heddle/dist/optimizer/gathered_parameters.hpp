#pragma once

#include <cstddef>
#include <deque>
#include <heddle/core/config/config.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/operations/work_observer.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/parameters/parameter.hpp>
#include <heddle/core/tensor/arena.hpp>
#include <heddle/dist/optimizer/scattered_trees.hpp>
#include <memory>
#include <vector>

namespace heddle {

struct Execution;

/// The runs of replicas that divide parameters in training.
inline ParameterSet::Division division_of(ParallelConfig const& parallel) {
  return {parallel.shard_parameters ? std::optional(parallel.shard_min_parameters) : std::nullopt, parallel.shard_ranks,
          parallel.expert};
}

/// Gathers the values that the replicas divide (ZeRO-3, Rajbhandari et al. 2020; FSDP, Zhao et al. 2023): a unit before
/// each use, the next one while it is used. A unit that stays in memory until its next use is not gathered again. The
/// gradients of a use are summed over the replicas, in the order of their ranks, and each adds its part to its
/// gradients' buffer. Memory: the two units that need most, for values and for gradients. Sections that are used in
/// parts are not gathered; in a deterministic step their gradients go to the trees. Keeps references to the parameters
/// and the execution.
class GatheredParameters final : public ParameterAccess {
 public:
  struct Options {
    DType activations = DType::float32;       ///< bfloat16: values that their uses round travel rounded
    WorkObserver* observer = nullptr;         ///< of waiting; null: none
    Arena::Kind arena = Arena::Kind::memory;  ///< `addresses` for kernels that compute nothing
  };

  /// The set must be allocated. Not collective.
  GatheredParameters(ParallelState const& parallel, ParameterSet& parameters, std::shared_ptr<TensorOps> operations,
                     Execution& execution, Options const& options);

  /// Throws Error where the uses of the pass before are not all done.
  void begin(std::vector<UnitUse> uses) override;
  /// Throws Error where the pass has another use here.
  void use(ParameterUnit& unit, bool gradient) override;
  void done(ParameterUnit& unit) override;
  void progress() override;
  bool keeps_ranks_apart() const override { return trees_ != nullptr; }
  /// Returns when all gradients of the step are in this rank's buffer. Collective over the replicas.
  void finish();
  /// Takes the gradients to these trees from now on, one micro-batch after the other; null: to the buffer again.
  void sum_in(ScatteredTrees* trees) { trees_ = trees; }

  /// The maximum bytes of gathered values, and of gradients on their way with those received from other replicas.
  std::int64_t value_bytes() const;
  std::int64_t gradient_bytes() const;

 private:
  /// Memory for the values of one unit.
  struct Values {
    Values(std::size_t bytes, Arena::Kind kind) : capacity(bytes), arena(bytes, kind) {}

    std::size_t capacity;
    Arena arena;
    ParameterUnit* unit = nullptr;
    std::uint64_t version = 0;  ///< of the values
    std::vector<Tensor> sections{};
    std::vector<Transfer> transfers{};
  };
  /// Memory for the gradient of one section.
  struct Gradient {
    Gradient(std::size_t bytes, Arena::Kind kind) : capacity(bytes), arena(bytes, kind) {}

    std::size_t capacity;
    Arena arena;
    DividedSection* section = nullptr;  ///< null: free
    Tensor whole{};
    Transfer transfer{};
  };

  DType dtype_of(DividedSection const& section) const;
  std::size_t value_bytes_of(ParameterUnit const& unit) const;
  Values* gathered(ParameterUnit& unit);
  void begin_leaves(ParameterUnit const& unit);
  Values* find(ParameterUnit const& unit);
  Values* start_gather(ParameterUnit& unit);
  void gather_next();
  void begin_gradient(DividedSection& section);
  void start_reduce();
  /// Adds the gradient that was started first, which has arrived, to the buffer.
  void add_first();

  Communicator replicas_;
  ParameterSet& parameters_;
  std::shared_ptr<TensorOps> operations_;
  Execution& execution_;
  bool rounds_;  ///< values that their uses round
  WorkObserver* observer_;
  std::deque<Values> values_;       ///< two, the larger first
  std::deque<Gradient> gradients_;  ///< the same
  std::vector<UnitUse> uses_;
  std::size_t next_ = 0;
  Values* in_use_ = nullptr;
  Gradient* computed_ = nullptr;       ///< of the use that has not ended; null: it has none
  std::deque<Gradient*> under_way_{};  ///< in the order of their starts, in which they are added
  ScatteredTrees* trees_ = nullptr;
  Arena leaves_;  ///< gradients of the unit in use, from each rank's rows
};

}  // namespace heddle
