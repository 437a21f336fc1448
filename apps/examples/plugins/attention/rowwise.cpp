// A plug-in: an implementation of the operation "attention" in which a work item is a row and a head.

#include "rowwise.hpp"

#include <cmath>
#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/kernel_author.hpp>
#include <heddle/core/plugins/entry.hpp>

namespace rowwise_plugin {

template <class Element, class Real = kernels::ArithmeticType<Element>>
void forward_as(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp) {
  Scores<Element> const scores(call);
  auto const v = kernels::rows_of<Element>(call.v);
  auto const out = kernels::rows_of<Element>(output);
  auto const lse = kernels::rows_of<Real>(log_sum_exp);
  kernels::for_each(
      execution, "rowwise", scores.items(call.queries), KOKKOS_LAMBDA(std::int64_t item) {
        Place const at = scores.place(item, scores.query_lengths, scores.max_queries);
        if (!at.exists) {
          return;
        }
        std::int64_t const row = scores.query_begins[at.sequence] + at.index;
        Real max = -INFINITY;
        scores.for_each_key(at, [&](std::int64_t key) { max = std::fmax(max, scores.score(row, key, at.head)); });
        Real sum = 0;
        scores.for_each_key(at, [&](std::int64_t key) { sum += std::exp(scores.score(row, key, at.head) - max); });
        lse[row][at.head] = max + std::log(sum);  // -infinity where the query sees no key
        for (std::int64_t c = at.head * scores.head_dim; c < (at.head + 1) * scores.head_dim; ++c) {
          Real value = 0;
          scores.for_each_key(at, [&](std::int64_t key) {
            value += std::exp(scores.score(row, key, at.head) - lse[row][at.head]) * kernels::wide<Real>(v[key][c]);
          });
          out[row][c] = kernels::narrow<Element>(value);
        }
      });
}

class Rowwise final : public heddle::Attention {
 public:
  bool supports(heddle::AttentionProblem const& problem) const override {
    bool const mask = problem.mask.is(heddle::MaskKind::bidirectional) || problem.mask.is(heddle::MaskKind::causal);
    bool const plain =
        problem.score == heddle::ScoreKind::dot_product && problem.own_keys() && !problem.soft_cap && !problem.state;
    return mask && plain && !problem.bias && !problem.positions && !problem.accumulate && problem.dropout_rate == 0 &&
           problem.dtype != heddle::DType::int32;
  }
  void forward(Execution& execution, AttentionCall const& call, Tensor const& output,
               Tensor const& log_sum_exp) override {
    kernels::with_floating(call.q.dtype(),
                           [&]<class Element>(Element) { forward_as<Element>(execution, call, output, log_sum_exp); });
  }
  void backward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp,
                Tensor const& grad_output, heddle::AttentionGradients const& gradients) override {
    rowwise_plugin::backward(execution, call, {output, log_sum_exp, grad_output}, gradients);
  }
};

void register_all(heddle::Registries& registries) {
  // Slower than the built-in ones: it runs where `[kernels] attention = "rowwise"` names it.
  registries.kernels.of<heddle::Attention>().add("rowwise", 1, std::make_shared<Rowwise>());
}

}  // namespace rowwise_plugin

HEDDLE_PLUGIN(rowwise_plugin::register_all)
