#include <fmt/format.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <array>
#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/attention_score.hpp>
#include <heddle/core/operations/observation.hpp>
#include <limits>
#include <vector>

namespace heddle {

namespace {

constexpr bool kernels_run_on_host = std::is_same_v<Kokkos::DefaultExecutionSpace, Kokkos::DefaultHostExecutionSpace>;

/// The number of keys that the query at `position` sees, of keys at `count` ascending positions; `index_of` gives the
/// first of them that is not below a position. A prefix counts as seen only by its own tokens.
template <class IndexOf>
double seen_keys(AttentionMask const& mask, std::int64_t position, std::int64_t count, IndexOf const& index_of) {
  auto const between = [&](std::int64_t first, std::int64_t end) {
    return static_cast<double>(std::max<std::int64_t>(index_of(end) - index_of(first), 0));
  };
  if (mask.is(MaskKind::bidirectional)) {
    return static_cast<double>(count);
  }
  constexpr std::int64_t lowest = std::numeric_limits<std::int32_t>::min();
  constexpr std::int64_t highest = std::numeric_limits<std::int32_t>::max();
  if (!mask.is_local()) {
    return between(lowest, position + 1);
  }
  std::int64_t const end = mask.hides_later ? position + 1 : highest;
  if (position < mask.global_tokens) {
    return between(lowest, end);
  }
  std::int64_t const first = mask.first_key(position);
  return between(first, mask.end_key(position)) + between(lowest, std::min({first, end, mask.global_tokens}));
}

double visible_pairs(AttentionCall const& call) {
  auto const query_begins = to_host<std::int32_t>(call.queries.begin);
  auto const query_lengths = to_host<std::int32_t>(call.queries.length);
  auto const key_begins = to_host<std::int32_t>(call.keys.begin);
  auto const key_lengths = to_host<std::int32_t>(call.keys.length);
  bool const given = !call.query_position.empty();
  auto const query_positions = given ? to_host<std::int32_t>(call.query_position) : std::vector<std::int32_t>();
  auto const key_positions = given ? to_host<std::int32_t>(call.key_position) : std::vector<std::int32_t>();
  double pairs = 0;
  for (std::size_t index = 0; index < query_lengths.size(); ++index) {
    std::int64_t const keys = key_lengths[index];
    auto const first = given ? key_positions.begin() + key_begins[index] : key_positions.begin();
    auto const index_of = [&](std::int64_t position) {
      return given ? static_cast<std::int64_t>(std::lower_bound(first, first + keys, position) - first)
                   : std::clamp<std::int64_t>(position, 0, keys);
    };
    for (std::int64_t row = 0; row < query_lengths[index]; ++row) {
      std::int64_t const position = given ? query_positions[static_cast<std::size_t>(query_begins[index] + row)]
                                          : row + keys - query_lengths[index];
      pairs += seen_keys(call.mask, position, keys, index_of);
    }
  }
  return pairs;
}

std::string_view name_of(MaskKind kind) {
  constexpr std::array<std::string_view, 5> names{"bidirectional", "causal", "window", "blocks", "prefix"};
  return names[static_cast<std::size_t>(kind)];
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
    auto const describe = [&] { return description("forward", call, forward_cost); };
    pass<&Attention::forward>(execution, describe, call, output, log_sum_exp);
  }
  void backward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp,
                Tensor const& grad_output, AttentionGradients const& gradients) override {
    auto const describe = [&] { return description("backward", call, backward_cost); };
    pass<&Attention::backward>(execution, describe, call, output, log_sum_exp, grad_output, gradients);
  }
  bool wide_results() const override { return selected() != nullptr && selected()->wide_results(); }

 private:
  static CallDescription description(std::string_view direction, AttentionCall const& call,
                                     Cost (*cost_of)(AttentionProblem const&, AttentionExtents const&)) {
    return {.direction = direction,
            .variant = call.mask.is(MaskKind::bidirectional) ? "not causal" : name_of(call.mask.kind),
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

/// " NAME" of scores that are not the usual ones.
std::string score_words(AttentionProblem const& problem) {
  return fmt::format("{}{}{}", problem.score == ScoreKind::dot_product ? "" : " ",
                     problem.function != nullptr ? problem.function->name() : name_of(problem.score),
                     problem.soft_cap ? " capped" : "");
}

/// Two operations for each visible pair and column. Linear scores take two products with a state of head_dim columns
/// for each token, which counts as pairs with half as many keys.
double product_operations(AttentionProblem const& problem, AttentionExtents const& extents) {
  double const pairs = problem.score == ScoreKind::linear
                           ? (extents.queries + extents.keys) * static_cast<double>(problem.head_dim) / 2
                           : extents.pairs;
  return 2 * pairs * static_cast<double>(problem.heads * problem.head_dim);
}

void require_scores(AttentionCall const& call, std::int64_t key_heads, std::int64_t head_dim) {
  if ((call.score == ScoreKind::additive) == call.score_weight.empty()) {
    throw Error("attention has a score_weight where its scores are additive, and only there");
  }
  if (!call.score_weight.empty()) {
    call.score_weight.require(statistics_dtype(call.q.dtype()), {call.heads, head_dim}, "attention's score_weight");
  }
  if (!call.state.empty()) {
    call.state.require(statistics_dtype(call.q.dtype()), {call.keys.count, key_heads * head_dim * (head_dim + 1)},
                       "attention's state");
  }
}

}  // namespace

double visible_pairs(AttentionMask const& mask, std::int64_t length) {
  auto const index_of = [&](std::int64_t position) { return std::clamp<std::int64_t>(position, 0, length); };
  double pairs = 0;
  for (std::int64_t position = 0; position < length; ++position) {
    pairs += seen_keys(mask, position, length, index_of);
  }
  return pairs;
}

std::string describe(AttentionMask const& mask) {
  if (!mask.is_local()) {
    return std::string(name_of(mask.kind));
  }
  // A local mask that ends at the query is causal unless it says otherwise.
  std::string_view const direction =
      mask.hides_later == (mask.right == 0) ? "" : (mask.hides_later ? "causal " : "bidirectional ");
  return fmt::format("{}{}{}({}, {}){}", direction, name_of(mask.kind),
                     mask.is(MaskKind::blocks) ? fmt::format(" of {}", mask.block) : "", mask.left, mask.right,
                     mask.global_tokens > 0 ? fmt::format(" with {} global", mask.global_tokens) : "");
}

AttentionProblem AttentionCall::problem() const {
  if (heads <= 0 || q.dim(1) % heads != 0) {
    throw Error("attention with {} heads over {} columns: the heads must divide the columns", heads, q.dim(1));
  }
  std::int64_t const key_heads = kv_heads > 0 ? kv_heads : heads;
  if (heads % key_heads != 0 || k.dim(1) != key_heads * (q.dim(1) / heads)) {
    throw Error(
        "attention with {} heads over {} columns and {} key heads over {} columns: key heads must "
        "divide the heads and have columns as wide as theirs",
        heads, q.dim(1), key_heads, k.dim(1));
  }
  if (mask.is(MaskKind::prefix)) {
    prefix_length.require(DType::int32, {keys.count}, "attention's prefix_length");
  }
  if (!bias.empty()) {
    bias.require(statistics_dtype(q.dtype()), {heads, bias.dim(1) / 2 * 2 + 1}, "attention's bias");
  }
  require_scores(*this, key_heads, q.dim(1) / heads);
  if (!query_position.empty() || !key_position.empty()) {
    query_position.require(DType::int32, {q.dim(0)}, "attention's query_position");
    key_position.require(DType::int32, {k.dim(0)}, "attention's key_position");
  }
  AttentionProblem const problem{.dtype = q.dtype(),
                                 .heads = heads,
                                 .head_dim = q.dim(1) / heads,
                                 .kv_heads = key_heads,
                                 .mask = mask,
                                 .score = score,
                                 .function = function,
                                 .soft_cap = soft_cap > 0,
                                 .bias = !bias.empty(),
                                 .positions = !query_position.empty(),
                                 .accumulate = accumulate,
                                 .state = !state.empty(),
                                 .dropout_rate = dropout.rate};
  if (!is_defined(problem)) {
    throw Error("{} is not defined", describe(problem));
  }
  return problem;
}

bool is_defined(AttentionProblem const& problem) {
  bool const bidirectional = problem.mask.is(MaskKind::bidirectional);
  if ((problem.score == ScoreKind::function) != (problem.function != nullptr) ||
      (problem.function != nullptr && (problem.soft_cap || !kernels_run_on_host))) {
    return false;
  }
  if (problem.score != ScoreKind::linear) {
    return !problem.state;
  }
  return !problem.soft_cap && !problem.bias && problem.dropout_rate == 0 &&
         (bidirectional || problem.mask.is(MaskKind::causal)) &&
         (!problem.state || (bidirectional && !problem.accumulate));
}

std::string describe(AttentionProblem const& problem) {
  return fmt::format("{}{} attention of {} with {} heads{} of {} columns{}{}{}{} and dropout {}",
                     describe(problem.mask), score_words(problem), name_of(problem.dtype), problem.heads,
                     problem.own_keys() ? "" : fmt::format(" ({} of keys and values)", problem.kv_heads),
                     problem.head_dim, problem.bias ? ", biases" : "", problem.positions ? ", given positions" : "",
                     problem.accumulate ? ", accumulated" : "", problem.state ? ", a state" : "", problem.dropout_rate);
}

std::string timing_key(AttentionProblem const& problem) {
  return fmt::format(
      "{}{} {}, {} heads{} of {}{}{}{}{}{}", describe(problem.mask), score_words(problem), name_of(problem.dtype),
      problem.heads, problem.own_keys() ? "" : fmt::format(" ({} of keys)", problem.kv_heads), problem.head_dim,
      problem.bias ? ", biases" : "", problem.positions ? ", positions" : "", problem.accumulate ? ", accumulated" : "",
      problem.state ? ", state" : "", problem.dropout_rate > 0 ? ", dropout" : "");
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

std::string describe(AttentionScoreProblem const& problem) {
  return fmt::format("the score '{}' in {}", problem.function, name_of(problem.dtype));
}

std::shared_ptr<AttentionScore> AttentionScore::observed(ObservedSelection<AttentionScore> selection) {
  return std::move(selection.selected);
}

}  // namespace heddle
