#pragma once

#include <cstdint>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/parameters/parameter.hpp>
#include <memory>
#include <string>
#include <vector>

namespace heddle {

struct Execution;
class TensorOps;

/// Sums gradients over groups other than the replicas, for the parameters that need it: over the tensor group (norms
/// and biases where sequence parallelism leaves each rank a part of the tokens), then over the pipeline stages that
/// hold the parameter (tied embeddings). Keeps references to the parameters and the execution.
class PartialSums {
 public:
  /// Allocates all buffers. Throws Error if a parameter's stages do not ascend or do not include this one, and
  /// ConfigError if its gradient is declared partial over pipeline, for which `stages` exists.
  PartialSums(ParallelState const& parallel, ParameterSet const& parameters, std::shared_ptr<TensorOps> operations,
              Execution& execution, std::int64_t bucket_elements);

  /// Sums the elements in `ranges` of the gradient buffer, the same ranges on every rank of the tensor group and the
  /// same parts of a parameter on all its stages; every holder gets the same bits. Collective over tensor × pipeline.
  void sum(std::vector<IndexRange> const& ranges) const;

 private:
  struct Held {
    std::string name;
    IndexRange elements;
    std::vector<int> stages;
  };

  void sum_over_tensor(std::vector<IndexRange> const& ranges) const;
  void sum_over_stages(IndexRange const& range, std::vector<int> const& stages) const;

  Communicator tensor_;
  Communicator pipeline_;
  ParameterSet const& parameters_;
  std::shared_ptr<TensorOps> operations_;
  Execution& execution_;
  std::vector<IndexRange> over_tensor_;
  std::vector<Held> over_stages_;  ///< by name: the same order on every stage
  Tensor packed_;                  ///< the elements of `over_tensor_`, adjacent
  Tensor received_;                ///< [other holders, elements of one exchange]
};

}  // namespace heddle
