#pragma once

#include <heddle/core/base/index_range.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/parameters/parameter.hpp>
#include <memory>
#include <vector>

namespace heddle {

struct Execution;

/// Whether a sum over the whole model counts this rank's part of a parameter: if not, another tensor rank or stage has
/// the same.
bool counts_here(ParameterSpec const& spec, Mesh const& mesh);

/// The norm of a whole model's gradient, with each number counted once: numbers that every tensor rank holds on the
/// first of them, numbers that several stages hold on the first of those, numbers of frozen parameters nowhere. Keeps
/// references to the parameters and the execution.
class GradientNorm {
 public:
  GradientNorm(ParallelState const& parallel, ParameterSet const& parameters, std::shared_ptr<TensorOps> operations,
               Execution& execution);

  /// sum [1] in float64 += the squares in these ranges of the gradient buffer that this rank counts.
  void add(std::vector<IndexRange> const& ranges, Tensor const& sum) const;
  /// The norm, the same bits on every rank, from what `add` has counted here: of ranges that every replica has or, if
  /// `scattered`, of each replica's own. Collective over tensor × pipeline; if scattered, over the world.
  double of(double own_sum_of_squares, bool scattered) const;

 private:
  ParallelState parallel_;
  ParameterSet const& parameters_;
  std::shared_ptr<TensorOps> operations_;
  Execution& execution_;
  std::vector<IndexRange> counted_;  ///< on this rank; adjacent ones joined
};

}  // namespace heddle
