#include <heddle/core/operations/softmax_cross_entropy.hpp>
#include <heddle/core/tensor/execution.hpp>

namespace heddle {

void SoftmaxCrossEntropy::losses_and_gradient(Execution& execution, SoftmaxCrossEntropyCall const& call, double scale,
                                              Tensor const& losses) {
  ArenaScope const scope(execution.scratch);
  Tensor const of_rows =
      execution.scratch.allocate(statistics_dtype(call.logits.dtype()), {call.logits.dim(0), statistics_columns});
  statistics(execution, call, of_rows);
  this->losses(execution, call, of_rows, losses);
  gradient(execution, call, of_rows, scale);
}

}  // namespace heddle
