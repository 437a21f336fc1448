#pragma once

#include <cstddef>
#include <cstdint>
#include <heddle/core/tensor/tensor.hpp>
#include <span>
#include <vector>

namespace heddle {

/// The losses of the rows that this rank computes in a step, and their sums by groups of samples. Its memory is used
/// again in the next step.
class RowLosses {
 public:
  /// `dtype`: of the losses.
  explicit RowLosses(DType dtype) : dtype_(dtype) {}

  /// Starts a step.
  void clear();
  /// Memory for the losses of a micro-batch's rows, whose samples these are: OutputLoss::Training::row_losses. They are
  /// computed later.
  Tensor add(Tensor const& samples);
  /// The negative log-likelihoods of all of them, added up for each of `count` groups; `of_sample` is each sample's
  /// group. Counted in `unit`, as whole numbers, so that a sum does not depend on the order. Waits for the kernels.
  std::vector<double> sums(std::int64_t count, std::span<std::int32_t const> of_sample) const;

  static constexpr double unit = 1.0 / (1 << 24);  ///< nats

 private:
  struct MicroBatch {
    Tensor memory;
    Tensor losses;
    Tensor samples;
  };
  DType dtype_;
  std::vector<MicroBatch> micro_batches_;
  std::size_t used_ = 0;
};

}  // namespace heddle
