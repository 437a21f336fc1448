#include "support/factories.hpp"
#include "tiles.hpp"

namespace heddle {
namespace {

/// A call; scale and cap are in float64, as they are given, and so is a function of the scores.
template <class Element>
struct Call {
  kernels::AttentionView<Element> view;
  double scale, soft_cap;
  kernels::ScoreFunction<double> function;

  explicit Call(AttentionCall const& call) : view(call), scale(call.scale), soft_cap(call.soft_cap), function(call) {}

  KOKKOS_INLINE_FUNCTION std::int64_t key_heads() const { return view.heads / view.sharing; }
};

/// One head of one sequence, with the textbook formulas: scores are computed again wherever they are needed.
template <class Element>
struct Head : kernels::AttentionHead<Element> {
  using Base = kernels::AttentionHead<Element>;
  using Base::position_of, Base::position_of_query;
  using Base::view, Base::queries, Base::keys, Base::query_row, Base::key_row, Base::head;

  Call<Element> const& call;

  KOKKOS_INLINE_FUNCTION Head(Call<Element> const& of, std::int64_t of_sequence, std::int64_t head_index)
      : Base(of.view, of_sequence, head_index), call(of) {}

  /// The head's columns of a query, and those of its key and value head, which several heads may share.
  KOKKOS_INLINE_FUNCTION Element* of_query(kernels::Rows<Element> const& rows, std::int64_t query) const {
    return this->at(rows, query_row + query);
  }
  KOKKOS_INLINE_FUNCTION Element* of_key(kernels::Rows<Element> const& rows, std::int64_t key) const {
    return this->at(this->of_keys(rows), key_row + key);
  }
  KOKKOS_INLINE_FUNCTION bool sees(std::int64_t query, std::int64_t key) const {
    return view.mask.sees(this->prefix, position_of_query(query), position_of(key));
  }
  /// The index of the head's bias that is added to the pair's score.
  KOKKOS_INLINE_FUNCTION std::int64_t bias_index(std::int64_t query, std::int64_t key) const {
    std::int64_t const distance = position_of(key) - position_of_query(query);
    std::int64_t const reach = view.bias_reach;
    return reach + (distance < -reach ? -reach : (distance > reach ? reach : distance));
  }
  KOKKOS_INLINE_FUNCTION double dot(Element const* a, Element const* b) const {
    double sum = 0;
    for (std::int64_t i = 0; i < view.head_dim; ++i) {
      sum += kernels::wide<double>(a[i]) * kernels::wide<double>(b[i]);
    }
    return sum;
  }
  KOKKOS_INLINE_FUNCTION double tanh_of_sum(std::int64_t query, std::int64_t key, std::int64_t d) const {
    return std::tanh(kernels::wide<double>(of_query(view.q, query)[d]) + kernels::wide<double>(of_key(view.k, key)[d]));
  }
  KOKKOS_INLINE_FUNCTION static double feature(double x) { return x > 0 ? x + 1 : std::exp(x); }
  KOKKOS_INLINE_FUNCTION double query_feature(std::int64_t query, std::int64_t d) const {
    return feature(kernels::wide<double>(of_query(view.q, query)[d]));
  }
  KOKKOS_INLINE_FUNCTION double key_feature(std::int64_t key, std::int64_t d) const {
    return feature(kernels::wide<double>(of_key(view.k, key)[d]));
  }
  /// The score before the cap and the bias; of linear scores, whose logarithm is the score, the product of features.
  KOKKOS_INLINE_FUNCTION double raw_score(std::int64_t query, std::int64_t key) const {
    double sum = 0;
    for (std::int64_t d = 0; view.score == ScoreKind::additive && d < view.head_dim; ++d) {
      sum += static_cast<double>(view.score_weight[head][d]) * tanh_of_sum(query, key, d);
    }
    for (std::int64_t d = 0; view.score == ScoreKind::linear && d < view.head_dim; ++d) {
      sum += query_feature(query, d) * key_feature(key, d);
    }
    if (view.score == ScoreKind::linear) {
      return sum;
    }
    return call.scale * (view.score == ScoreKind::additive ? sum : dot(of_query(view.q, query), of_key(view.k, key)));
  }
  /// The score before a function of it.
  KOKKOS_INLINE_FUNCTION double plain_score(std::int64_t query, std::int64_t key) const {
    double const raw = raw_score(query, key);
    double const shaped = view.score == ScoreKind::linear
                              ? std::log(raw)
                              : (call.soft_cap > 0 ? call.soft_cap * std::tanh(raw / call.soft_cap) : raw);
    return view.bias ? shaped + static_cast<double>(view.bias[head][bias_index(query, key)]) : shaped;
  }
  /// A function's value and its derivative at the pair's plain score; the score itself and 1 where there is none.
  struct Applied {
    double value, slope;
  };
  KOKKOS_INLINE_FUNCTION Applied applied(std::int64_t query, std::int64_t key) const {
    Applied result{plain_score(query, key), 1};
    if (call.function) {
      double const score = result.value;
      call.function(1, &score, &result.value, &result.slope);
    }
    return result;
  }
  KOKKOS_INLINE_FUNCTION double score(std::int64_t query, std::int64_t key) const { return applied(query, key).value; }
  /// The weight of a pair, 0 where the query does not see the key.
  KOKKOS_INLINE_FUNCTION double weight(std::int64_t query, std::int64_t key, double normalizer) const {
    if (!sees(query, key)) {
      return 0;
    }
    return view.normalized ? std::exp(score(query, key) - normalizer) : score(query, key);
  }
  /// The derivative of plain_score by raw_score.
  KOKKOS_INLINE_FUNCTION double slope(std::int64_t query, std::int64_t key) const {
    double const raw = view.score == ScoreKind::linear || call.soft_cap > 0 ? raw_score(query, key) : 0.0;
    if (view.score == ScoreKind::linear) {
      return 1 / raw;
    }
    double const tanh = call.soft_cap > 0 ? std::tanh(raw / call.soft_cap) : 0.0;
    return 1 - tanh * tanh;
  }
  /// The derivatives of raw_score by column d of the query and of the key.
  KOKKOS_INLINE_FUNCTION double slope_by_query(std::int64_t query, std::int64_t key, std::int64_t d) const {
    if (view.score == ScoreKind::linear) {
      double const own = query_feature(query, d);
      return (own > 1 ? 1.0 : own) * key_feature(key, d);
    }
    return view.score == ScoreKind::additive ? slope_by_sum(query, key, d)
                                             : call.scale * kernels::wide<double>(of_key(view.k, key)[d]);
  }
  KOKKOS_INLINE_FUNCTION double slope_by_key(std::int64_t query, std::int64_t key, std::int64_t d) const {
    if (view.score == ScoreKind::linear) {
      double const own = key_feature(key, d);
      return (own > 1 ? 1.0 : own) * query_feature(query, d);
    }
    return view.score == ScoreKind::additive ? slope_by_sum(query, key, d)
                                             : call.scale * kernels::wide<double>(of_query(view.q, query)[d]);
  }
  KOKKOS_INLINE_FUNCTION double slope_by_sum(std::int64_t query, std::int64_t key, std::int64_t d) const {
    double const tanh = tanh_of_sum(query, key, d);
    return call.scale * static_cast<double>(view.score_weight[head][d]) * (1 - tanh * tanh);
  }
  KOKKOS_INLINE_FUNCTION double kept(std::int64_t query, std::int64_t key) const {
    std::int64_t const position = position_of(key);
    kernels::DropoutRule const& dropout = view.dropout;
    std::int64_t const group = ((dropout.first_column + head) << 20) + position / 8;
    return dropout.active ? dropout.multiplier(query_row + query, group, position % 8) : 1.0;
  }
  /// The log-sum-exp of the query's scores and one more, `others`; 0 where there is no softmax.
  KOKKOS_INLINE_FUNCTION double log_sum_exp(std::int64_t query, double others) const {
    if (!view.normalized) {
      return 0;
    }
    double maximum = others;
    for (std::int64_t key = 0; key < keys; ++key) {
      double const own = sees(query, key) ? score(query, key) : maximum;
      maximum = own > maximum ? own : maximum;
    }
    double sum = others > -INFINITY ? std::exp(others - maximum) : 0.0;
    for (std::int64_t key = 0; key < keys; ++key) {
      sum += sees(query, key) ? std::exp(score(query, key) - maximum) : 0.0;
    }
    return sum > 0 ? maximum + std::log(sum) : maximum;
  }
};

/// to[d] = share * to[d] + the sum over 0 ≤ i < count of factor_of(i) * value_of(i, d), rounded once.
template <class Element, class FactorOf, class ValueOf>
KOKKOS_INLINE_FUNCTION void sum_terms(Element* to, std::int64_t head_dim, double share, std::int64_t count,
                                      FactorOf const& factor_of, ValueOf const& value_of) {
  constexpr std::int64_t columns = 64;  // at once
  for (std::int64_t begin = 0; begin < head_dim; begin += columns) {
    std::int64_t const end = head_dim - begin < columns ? head_dim : begin + columns;
    double sums[columns];
    for (std::int64_t d = begin; d < end; ++d) {
      sums[d - begin] = share > 0 ? share * kernels::wide<double>(to[d]) : 0.0;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      double const factor = factor_of(i);
      for (std::int64_t d = begin; factor != 0 && d < end; ++d) {
        sums[d - begin] += factor * value_of(i, d);
      }
    }
    for (std::int64_t d = begin; d < end; ++d) {
      to[d] = kernels::narrow<Element>(sums[d - begin]);
    }
  }
}

template <class Element>
void run_forward(Execution& execution, AttentionCall const& attention, Tensor const& output,
                 Tensor const& log_sum_exp) {
  using Real = kernels::ArithmeticType<Element>;
  Call<Element> const call(attention);
  auto const out = kernels::rows_of<Element>(output);
  auto const statistics = kernels::rows_of<Real>(log_sum_exp);
  kernels::for_each(
      execution, "reference attention forward", call.view.count * call.view.heads, KOKKOS_LAMBDA(std::int64_t item) {
        Head<Element> const head(call, item / call.view.heads, item % call.view.heads);
        for (std::int64_t query = 0; query < head.queries; ++query) {
          Real& statistic = statistics[head.query_row + query][head.head];
          double const others = call.view.accumulate ? static_cast<double>(statistic) : -INFINITY;
          double const normalizer = head.log_sum_exp(query, others);
          double share = others > -INFINITY ? std::exp(others - normalizer) : 0.0;
          if (!call.view.normalized) {
            share = call.view.accumulate ? 1 : 0;
          }
          statistic = static_cast<Real>(normalizer);
          sum_terms(
              head.of_query(out, query), head.view.head_dim, share, head.keys,
              [&](std::int64_t key) { return head.weight(query, key, normalizer) * head.kept(query, key); },
              [&](std::int64_t key, std::int64_t d) {
                return kernels::wide<double>(head.of_key(head.view.v, key)[d]);
              });
        }
      });
}

template <class Element>
struct ReferenceRows : kernels::BackwardRows<Element> {
  kernels::Rows<kernels::ArithmeticType<Element>> grad_bias, grad_score_weight;
};

/// A query-key pair's weight after dropout, which times grad_output is its part of grad_v, and the gradients of its
/// score and of its raw_score.
struct PairFactors {
  double weight = 0;
  double score = 0;
  double raw_score = 0;
};

/// With weight p, kept multiplier m, dp = grad_output · v and delta = grad_output · output: dv += p m grad_output,
/// d(score) = p (m dp - delta). Where a function gives the weights, d(weight) = m dp.
template <class Element>
KOKKOS_INLINE_FUNCTION PairFactors pair_factors(Head<Element> const& head, ReferenceRows<Element> const& rows,
                                                std::int64_t query, std::int64_t key) {
  if (!head.sees(query, key)) {
    return {};
  }
  Element const* const grad = head.of_query(rows.grad_output, query);
  double const delta = head.dot(grad, head.of_query(rows.output, query));
  double const normalizer = rows.log_sum_exp[head.query_row + query][head.head];
  double const weight = head.weight(query, key, normalizer);
  double const kept = head.kept(query, key);
  double const grad_weight = kept * head.dot(grad, head.of_key(head.view.v, key));
  double const grad_value = head.view.normalized ? weight * (grad_weight - delta) : grad_weight;
  double const grad_score = head.call.function ? grad_value * head.applied(query, key).slope : grad_value;
  return {weight * kept, grad_score, grad_score * head.slope(query, key)};
}

template <class Element>
KOKKOS_INLINE_FUNCTION void write_grad_q(Head<Element> const& head, ReferenceRows<Element> const& rows, double share) {
  for (std::int64_t query = 0; query < head.queries; ++query) {
    sum_terms(
        head.of_query(rows.grad_q, query), head.view.head_dim, share, head.keys,
        [&](std::int64_t key) { return pair_factors(head, rows, query, key).raw_score; },
        [&](std::int64_t key, std::int64_t d) { return head.slope_by_query(query, key, d); });
  }
}

/// grad_k and grad_v of a sequence's key head: sums over the queries of all heads that share it.
template <class Element>
KOKKOS_INLINE_FUNCTION void write_grad_k_and_v(Call<Element> const& call, ReferenceRows<Element> const& rows,
                                               std::int64_t sequence, std::int64_t key_head) {
  double const share = call.view.accumulate ? 1 : 0;
  Head<Element> const first(call, sequence, key_head * call.view.sharing);
  std::int64_t const pairs = first.queries * call.view.sharing;
  auto const head_of = [&](std::int64_t pair) {
    return Head<Element>(call, sequence, first.head + pair / first.queries);
  };
  for (std::int64_t key = 0; key < first.keys; ++key) {
    sum_terms(
        first.of_key(rows.grad_k, key), first.view.head_dim, share, pairs,
        [&](std::int64_t pair) { return pair_factors(head_of(pair), rows, pair % first.queries, key).raw_score; },
        [&](std::int64_t pair, std::int64_t d) { return head_of(pair).slope_by_key(pair % first.queries, key, d); });
    sum_terms(
        first.of_key(rows.grad_v, key), first.view.head_dim, share, pairs,
        [&](std::int64_t pair) { return pair_factors(head_of(pair), rows, pair % first.queries, key).weight; },
        [&](std::int64_t pair, std::int64_t d) {
          return kernels::wide<double>(head_of(pair).of_query(rows.grad_output, pair % first.queries)[d]);
        });
  }
}

template <class Element>
void run_backward(Execution& execution, AttentionCall const& attention, ReferenceRows<Element> const& rows) {
  Call<Element> const call(attention);
  kernels::for_each(
      execution, "reference attention backward", call.view.count * call.view.heads, KOKKOS_LAMBDA(std::int64_t item) {
        write_grad_q(Head<Element>(call, item / call.view.heads, item % call.view.heads), rows,
                     call.view.accumulate ? 1 : 0);
      });
  kernels::for_each(
      execution, "reference attention backward", call.view.count * call.key_heads(), KOKKOS_LAMBDA(std::int64_t item) {
        write_grad_k_and_v(call, rows, item / call.key_heads(), item % call.key_heads());
      });
}

/// Calls `add(head, query, key)` for all pairs of one head of all sequences, in their order.
template <class Element, class Add>
KOKKOS_INLINE_FUNCTION void for_each_pair(Call<Element> const& call, std::int64_t head_index, Add const& add) {
  for (std::int64_t sequence = 0; sequence < call.view.count; ++sequence) {
    Head<Element> const head(call, sequence, head_index);
    for (std::int64_t pair = 0; pair < head.queries * head.keys; ++pair) {
      add(head, pair / head.keys, pair % head.keys);
    }
  }
}

/// One work item for each bias.
template <class Element>
void add_bias_gradients(Execution& execution, AttentionCall const& attention, ReferenceRows<Element> const& rows) {
  Call<Element> const call(attention);
  std::int64_t const distances = attention.bias.dim(1);
  kernels::for_each(
      execution, "reference attention bias gradient", call.view.heads * distances, KOKKOS_LAMBDA(std::int64_t item) {
        double sum = 0;
        for_each_pair(call, item / distances, [&](Head<Element> const& head, std::int64_t query, std::int64_t key) {
          bool const at_distance = head.bias_index(query, key) == item % distances;
          sum += at_distance ? pair_factors(head, rows, query, key).score : 0.0;
        });
        rows.grad_bias[item / distances][item % distances] += static_cast<kernels::ArithmeticType<Element>>(sum);
      });
}

/// One work item for each weight of additive scores.
template <class Element>
void add_score_weight_gradients(Execution& execution, AttentionCall const& attention,
                                ReferenceRows<Element> const& rows) {
  Call<Element> const call(attention);
  kernels::for_each(
      execution, "reference attention score weight gradient", call.view.heads * call.view.head_dim,
      KOKKOS_LAMBDA(std::int64_t item) {
        std::int64_t const d = item % call.view.head_dim;
        double sum = 0;
        for_each_pair(
            call, item / call.view.head_dim, [&](Head<Element> const& head, std::int64_t query, std::int64_t key) {
              sum += pair_factors(head, rows, query, key).raw_score * call.scale * head.tanh_of_sum(query, key, d);
            });
        rows.grad_score_weight[item / call.view.head_dim][d] += static_cast<kernels::ArithmeticType<Element>>(sum);
      });
}

/// Forward of a call with a state, one work item for each sequence and head of keys.
template <class Element>
void run_with_state(Execution& execution, AttentionCall const& attention, Tensor const& output,
                    Tensor const& log_sum_exp) {
  using Real = kernels::ArithmeticType<Element>;
  Call<Element> const call(attention);
  auto const out = kernels::rows_of<Element>(output);
  auto const statistics = kernels::rows_of<Real>(log_sum_exp);
  auto const states = kernels::rows_of<Real>(attention.state);
  kernels::for_each(
      execution, "reference attention with a state", call.view.count * call.key_heads(),
      KOKKOS_LAMBDA(std::int64_t item) {
        std::int64_t const columns = call.view.head_dim + 1;
        std::int64_t const key_head = item % call.key_heads();
        Real* const state = states[item / call.key_heads()] + key_head * call.view.head_dim * columns;
        Head<Element> const first(call, item / call.key_heads(), key_head * call.view.sharing);
        for (std::int64_t entry = 0; entry < call.view.head_dim * columns; ++entry) {
          double sum = static_cast<double>(state[entry]);
          for (std::int64_t key = 0; key < first.keys; ++key) {
            std::int64_t const d = entry % columns;
            double const value =
                d < call.view.head_dim ? kernels::wide<double>(first.of_key(first.view.v, key)[d]) : 1.0;
            sum += first.key_feature(key, entry / columns) * value;
          }
          state[entry] = static_cast<Real>(sum);
        }
        for (std::int64_t row = 0; row < first.queries * call.view.sharing; ++row) {
          std::int64_t const query = row / call.view.sharing;
          Head<Element> const head(call, item / call.key_heads(), first.head + row % call.view.sharing);
          auto const read = [&](std::int64_t column) {
            double sum = 0;
            for (std::int64_t d = 0; d < call.view.head_dim; ++d) {
              sum += head.query_feature(query, d) * static_cast<double>(state[d * columns + column]);
            }
            return sum;
          };
          double const normalizer = read(call.view.head_dim);
          for (std::int64_t d = 0; d < call.view.head_dim; ++d) {
            head.of_query(out, query)[d] = kernels::narrow<Element>(normalizer > 0 ? read(d) / normalizer : 0.0);
          }
          statistics[head.query_row + query][head.head] = static_cast<Real>(std::log(normalizer));
        }
      });
}

class ReferenceAttention : public Attention {
 public:
  bool supports(AttentionProblem const& problem) const override {
    return problem.dtype != DType::int32 && is_defined(problem);
  }
  void forward(Execution& execution, AttentionCall const& call, Tensor const& output,
               Tensor const& log_sum_exp) override {
    kernels::with_floating(call.q.dtype(), [&]<class Element>(Element) {
      auto const& run = call.state.empty() ? run_forward<Element> : run_with_state<Element>;
      run(execution, call, output, log_sum_exp);
    });
  }
  void backward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp,
                Tensor const& grad_output, AttentionGradients const& gradients) override {
    kernels::with_floating(call.q.dtype(), [&]<class Element>(Element) {
      using Real = kernels::ArithmeticType<Element>;
      ReferenceRows<Element> const rows{{output, log_sum_exp, grad_output, gradients},
                                        kernels::rows_of<Real>(gradients.bias),
                                        kernels::rows_of<Real>(gradients.score_weight)};
      run_backward<Element>(execution, call, rows);
      if (!gradients.bias.empty()) {
        add_bias_gradients<Element>(execution, call, rows);
      }
      if (!gradients.score_weight.empty()) {
        add_score_weight_gradients<Element>(execution, call, rows);
      }
    });
  }
};

}  // namespace

void add_attention_kernels(KernelRegistries& registries) {
  registries.of<Attention>().add("reference", priorities::reference, std::make_shared<ReferenceAttention>());
}

}  // namespace heddle
