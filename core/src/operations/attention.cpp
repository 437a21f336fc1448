#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/observation.hpp>

namespace heddle {

namespace {

/// The number of (query, key) pairs that see each other where both are parts of longer sequences.
double visible_pairs_by_position(AttentionCall const& call) {
  auto const query_begins = to_host<std::int32_t>(call.queries.begin);
  auto const query_lengths = to_host<std::int32_t>(call.queries.length);
  auto const key_begins = to_host<std::int32_t>(call.keys.begin);
  auto const key_lengths = to_host<std::int32_t>(call.keys.length);
  auto const query_positions = to_host<std::int32_t>(call.query_position);
  auto const key_positions = to_host<std::int32_t>(call.key_position);
  double pairs = 0;
  for (std::size_t index = 0; index < query_lengths.size(); ++index) {
    auto const first = key_positions.begin() + key_begins[index];
    for (std::int32_t row = 0; row < query_lengths[index]; ++row) {
      std::int32_t const position = query_positions[static_cast<std::size_t>(query_begins[index] + row)];
      pairs += static_cast<double>(std::upper_bound(first, first + key_lengths[index], position) - first);
    }
  }
  return pairs;
}

double visible_pairs(AttentionCall const& call) {
  if (call.mask.is(MaskKind::causal) && !call.query_position.empty()) {
    return visible_pairs_by_position(call);
  }
  auto const queries = to_host<std::int32_t>(call.queries.length);
  auto const keys = to_host<std::int32_t>(call.keys.length);
  double pairs = 0;
  for (std::size_t index = 0; index < queries.size(); ++index) {
    double const n = queries[index];
    double const m = keys[index];
    // The last query sees every key, each query before it one key less; none where there are fewer keys than that.
    double const triangle = std::min(n, m);
    double const causal = n * std::max(m - n, 0.0) + triangle * (triangle + 1) / 2;
    switch (call.mask.kind) {
      case MaskKind::bidirectional:
      case MaskKind::prefix:  // an upper bound
        pairs += n * m;
        break;
      case MaskKind::causal:
        pairs += causal;
        break;
      case MaskKind::window:  // an upper bound
        pairs += std::min(call.mask.right == 0 ? causal : n * m,
                          n * static_cast<double>(call.mask.left + 1 + call.mask.right));
        break;
    }
  }
  return pairs;
}

std::string_view variant_of(AttentionMask const& mask) {
  switch (mask.kind) {
    case MaskKind::bidirectional:
      return "not causal";
    case MaskKind::causal:
      return "causal";
    case MaskKind::window:
      return "window";
    case MaskKind::prefix:
      return "prefix";
  }
  return "";
}

AttentionExtents extents_of(AttentionCall const& call) {
  return {.queries = static_cast<double>(call.q.dim(0)),
          .keys = static_cast<double>(call.k.dim(0)),
          .pairs = visible_pairs(call),
          .accumulate = call.accumulate};
}

class ObservedAttention final : public ObservedKernel<Attention> {
 public:
  using ObservedKernel::ObservedKernel;

  void forward(Execution& execution, AttentionCall const& call, Tensor const& output,
               Tensor const& log_sum_exp) override {
    pass(
        execution, call.problem(), [&] { return description("forward", call, forward_cost); },
        [=, &execution](Attention& kernel) { kernel.forward(execution, call, output, log_sum_exp); });
  }

  void backward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp,
                Tensor const& grad_output, AttentionGradients const& gradients) override {
    pass(
        execution, call.problem(), [&] { return description("backward", call, backward_cost); },
        [=, &execution](Attention& kernel) {
          kernel.backward(execution, call, output, log_sum_exp, grad_output, gradients);
        });
  }

 private:
  template <class CostOf>
  static CallDescription description(std::string_view direction, AttentionCall const& call, CostOf const& cost_of) {
    return {.direction = direction,
            .variant = variant_of(call.mask),
            .extents = fmt::format("{} on {} tokens", call.q.dim(0), call.k.dim(0)),
            .dtype = call.q.dtype(),
            .cost = cost_of(call.problem(), extents_of(call))};
  }
};

/// The bytes of the tensors of the queries' shape, of the keys' shape and of the log_sum_exp.
struct Operands {
  double queries, keys, log_sum_exp;

  Operands(AttentionProblem const& problem, AttentionExtents const& extents) {
    auto const element = static_cast<double>(size_of(problem.dtype));
    auto const columns = static_cast<double>(problem.heads * problem.head_dim);
    std::int64_t const kv_heads = problem.own_keys() ? problem.heads : problem.kv_heads;
    queries = element * extents.queries * columns;
    keys = element * extents.keys * static_cast<double>(kv_heads * problem.head_dim);
    log_sum_exp = static_cast<double>(size_of(statistics_dtype(problem.dtype))) * extents.queries *
                  static_cast<double>(problem.heads);
  }
};

/// " NAME" of a score kind that is not the usual one.
std::string score_words(AttentionProblem const& problem) {
  return problem.score == ScoreKind::scaled_dot_product ? "" : fmt::format(" {}", name_of(problem.score));
}

/// Two operations for each visible pair and column.
double product_operations(AttentionProblem const& problem, AttentionExtents const& extents) {
  return 2 * extents.pairs * static_cast<double>(problem.heads * problem.head_dim);
}

}  // namespace

std::string describe(AttentionMask const& mask) {
  switch (mask.kind) {
    case MaskKind::bidirectional:
      return "bidirectional";
    case MaskKind::causal:
      return "causal";
    case MaskKind::window:
      return fmt::format("window({}, {})", mask.left, mask.right);
    case MaskKind::prefix:
      return "prefix";
  }
  return "";
}

AttentionProblem AttentionCall::problem() const {
  if (heads <= 0 || q.dim(1) % heads != 0) {
    throw Error(
        fmt::format("attention with {} heads over {} columns: the heads must divide the columns", heads, q.dim(1)));
  }
  std::int64_t const key_heads = kv_heads > 0 ? kv_heads : heads;
  if (heads % key_heads != 0 || k.dim(1) != key_heads * (q.dim(1) / heads)) {
    throw Error(
        fmt::format("attention with {} heads over {} columns and {} key heads over {} columns: key heads must "
                    "divide the heads and have columns as wide as theirs",
                    heads, q.dim(1), key_heads, k.dim(1)));
  }
  if (mask.is(MaskKind::prefix)) {
    prefix_length.require(DType::int32, {keys.count}, "attention's prefix_length");
  }
  if (!bias.empty()) {
    bias.require(statistics_dtype(q.dtype()), {heads, bias.dim(1) / 2 * 2 + 1}, "attention's bias");
  }
  if (!query_position.empty() || !key_position.empty()) {
    query_position.require(DType::int32, {q.dim(0)}, "attention's query_position");
    key_position.require(DType::int32, {k.dim(0)}, "attention's key_position");
  }
  return {.dtype = q.dtype(),
          .heads = heads,
          .head_dim = q.dim(1) / heads,
          .kv_heads = key_heads,
          .mask = mask,
          .score = score,
          .bias = !bias.empty(),
          .positions = !query_position.empty(),
          .accumulate = accumulate,
          .dropout_rate = dropout.rate};
}

std::string describe(AttentionProblem const& problem) {
  return fmt::format("{}{} attention of {} with {} heads{} of {} columns{}{}{} and dropout {}", describe(problem.mask),
                     score_words(problem), name_of(problem.dtype), problem.heads,
                     problem.own_keys() ? "" : fmt::format(" ({} of keys and values)", problem.kv_heads),
                     problem.head_dim, problem.bias ? ", biases" : "", problem.positions ? ", given positions" : "",
                     problem.accumulate ? ", accumulated" : "", problem.dropout_rate);
}

std::string timing_key(AttentionProblem const& problem) {
  return fmt::format("{}{} {}, {} heads{} of {}{}{}{}{}", describe(problem.mask), score_words(problem),
                     name_of(problem.dtype), problem.heads,
                     problem.own_keys() ? "" : fmt::format(" ({} of keys)", problem.kv_heads), problem.head_dim,
                     problem.bias ? ", biases" : "", problem.positions ? ", positions" : "",
                     problem.accumulate ? ", accumulated" : "", problem.dropout_rate > 0 ? ", dropout" : "");
}

Cost forward_cost(AttentionProblem const& problem, AttentionExtents const& extents) {
  Operands const operands(problem, extents);
  double const results = operands.queries + operands.log_sum_exp;
  return {2 * product_operations(problem, extents),
          operands.queries + 2 * operands.keys + results * (extents.accumulate ? 2 : 1)};
}

Cost backward_cost(AttentionProblem const& problem, AttentionExtents const& extents) {
  Operands const operands(problem, extents);
  double const read = 3 * operands.queries + 2 * operands.keys + operands.log_sum_exp;
  double const results = operands.queries + 2 * operands.keys;
  return {5 * product_operations(problem, extents), read + results * (extents.accumulate ? 2 : 1)};
}

std::shared_ptr<Attention> Attention::observed(ObservedSelection<Attention> selection) {
  return std::make_shared<ObservedAttention>(std::move(selection));
}

}  // namespace heddle
