#include "support/factories.hpp"
#include "team_tiles.hpp"

// Attention for devices without kernels for their matrix units: a team has one block of queries (or, for the gradients
// of keys and values, of keys) of one head of one sequence. Queries pass twice in the backward pass, so that no two
// teams add to the same element.

namespace heddle {
namespace {

using kernels::AttentionHead;
using kernels::AttentionView;
using kernels::BackwardRows;
using kernels::Block;
using kernels::Rows;
using namespace kernels::team_attention;

/// Calls `body(keys)` for the blocks of keys that the queries see.
template <class Element, class Body>
KOKKOS_INLINE_FUNCTION void for_each_visible(AttentionHead<Element> const& head, Block queries, Body const& body) {
  Block const visible = head.visible_keys(queries);
  for (std::int64_t begin = visible.begin / block * block; begin < visible.end(); begin += block) {
    Block const keys = block_at(begin, head.keys);
    if (head.see(queries, keys)) {
      body(keys);
    }
  }
}

/// The running softmax of a block of queries, in a team's scratch: columns of a tile [queries, 3].
template <class Real>
struct Softmax {
  TeamTile<Real> state;

  KOKKOS_INLINE_FUNCTION Real& maximum(int i) const { return state(i, 0); }
  KOKKOS_INLINE_FUNCTION Real& sum(int i) const { return state(i, 1); }
  KOKKOS_INLINE_FUNCTION Real& correction(int i) const { return state(i, 2); }

  /// The state after keys whose weights had this normaliser; -infinity: none yet.
  KOKKOS_INLINE_FUNCTION void begin(int i, Real log_sum_exp) const {
    maximum(i) = log_sum_exp;
    sum(i) = log_sum_exp == -std::numeric_limits<Real>::infinity() ? Real{0} : Real{1};
  }
  /// Replaces the scores of query i by exp(score - maximum), and sets the factor of earlier sums.
  KOKKOS_INLINE_FUNCTION void take(int i, TeamTile<Real> scores, int keys) const {
    Real highest = maximum(i);
    for (int j = 0; j < keys; ++j) {
      highest = scores(i, j) > highest ? scores(i, j) : highest;
    }
    Real const shift = highest == -std::numeric_limits<Real>::infinity() ? Real{0} : highest;
    correction(i) = fast_exp(maximum(i) - shift);
    maximum(i) = highest;
    Real total = sum(i) * correction(i);
    for (int j = 0; j < block; ++j) {
      scores(i, j) = j < keys ? fast_exp(scores(i, j) - shift) : Real{0};
      total += scores(i, j);
    }
    sum(i) = total;
  }
};

/// A block of queries' output.
template <class Element, class Real = kernels::ArithmeticType<Element>>
KOKKOS_INLINE_FUNCTION void forward_block(HeadTeam<Element>& team, Block queries, Rows<Element> const& output,
                                          Rows<Real> const& log_sum_exp) {
  AttentionHead<Element> const& head = team.head;
  auto const q = team.tile(team.head_dim);
  auto const keys_or_values = team.tile(team.head_dim);
  auto const sums = team.tile(team.head_dim);
  auto const scores = team.tile(block);
  Softmax<Real> const softmax{team.tile(3)};
  std::int64_t const first = head.query_row + queries.begin;
  bool const resumes = head.view.accumulate;

  team.load(head.view.q, first, queries.count, q, head.view.query_scale());
  resumes ? team.load(output, first, queries.count, sums) : team.clear(sums);
  team.for_each_row([&](int i) {
    softmax.begin(
        i, resumes && i < queries.count ? log_sum_exp[first + i][head.head] : -std::numeric_limits<Real>::infinity());
  });
  for_each_visible(head, queries, [&](Block keys) {
    team.wait();
    team.load(head.of_keys(head.view.k), head.key_row + keys.begin, keys.count, keys_or_values);
    team.wait();
    team.score(queries, keys, q, keys_or_values, scores);
    team.for_each_row([&](int i) { softmax.take(i, scores, static_cast<int>(keys.count)); });
    team.load(head.of_keys(head.view.v), head.key_row + keys.begin, keys.count, keys_or_values);
    team.wait();
    if (head.view.dropout.active) {
      team.for_each_element(block, [&](int i, int j) { scores(i, j) *= team.kept(queries, keys, i, j); });
      team.wait();
    }
    team.multiply(
        team.head_dim, block, [&](int i, int j) { return scores(i, j); },
        [&](int j, int d) { return keys_or_values(j, d); },
        [&](int i, int d, Real sum) { sums(i, d) = sums(i, d) * softmax.correction(i) + sum; });
  });
  team.wait();
  team.for_each_element(team.head_dim, [&](int i, int d) {
    if (i < queries.count) {
      Real const factor = softmax.sum(i) > 0 ? 1 / softmax.sum(i) : Real{0};
      head.at(output, first + i)[d] = kernels::narrow<Element>(sums(i, d) * factor);
    }
  });
  team.for_each_row([&](int i) {
    if (i < queries.count) {
      log_sum_exp[first + i][head.head] =
          softmax.sum(i) > 0 ? softmax.maximum(i) + std::log(softmax.sum(i)) : softmax.maximum(i);
    }
  });
}

std::int64_t blocks_of(Sequences const& sequences) {
  return (sequences.max_length + block - 1) / block;
}

template <class Element, class Real = kernels::ArithmeticType<Element>>
void run_forward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp) {
  AttentionView<Element> const view(call);
  auto const out = kernels::rows_of<Element>(output);
  auto const statistics = kernels::rows_of<Real>(log_sum_exp);
  std::int64_t const blocks = blocks_of(call.queries);
  std::int64_t const elements =
      3 * TeamTile<Real>::elements(view.head_dim) + TeamTile<Real>::elements(block) + TeamTile<Real>::elements(3);
  for_each_team<Real>(
      execution, "attention forward", view.count * view.heads * blocks, elements,
      KOKKOS_LAMBDA(Member const& member, int level, std::size_t bytes) {
        std::int64_t const of_head = member.league_rank() / blocks;
        HeadTeam<Element> team(member, {view, of_head / view.heads, of_head % view.heads}, level, bytes);
        std::int64_t const begin = member.league_rank() % blocks * block;
        if (begin < team.head.queries) {
          Block const queries = block_at(begin, team.head.queries);
          if (!view.accumulate || team.head.visible_keys(queries).count > 0) {
            forward_block(team, queries, out, statistics);
          }
        }
      });
}

/// Tiles with which a block of queries and a block of keys are differentiated.
template <class Element>
struct BackwardTiles {
  using Real = kernels::ArithmeticType<Element>;

  TeamTile<Real> q, grad_output, k, v;  ///< [block, head_dim]; q is scaled
  TeamTile<Real> weights, grad_scores;  ///< [queries, keys]; the weights after dropout
  TeamTile<Real> query_state;           ///< [queries, 2]: log_sum_exp, and Σ output * grad_output
  TeamTile<Real> grad;                  ///< [block, head_dim]: a gradient that the team sums

  KOKKOS_INLINE_FUNCTION explicit BackwardTiles(HeadTeam<Element>& team)
      : q(team.tile(team.head_dim)),
        grad_output(team.tile(team.head_dim)),
        k(team.tile(team.head_dim)),
        v(team.tile(team.head_dim)),
        weights(team.tile(block)),
        grad_scores(team.tile(block)),
        query_state(team.tile(2)),
        grad(team.tile(team.head_dim)) {}

  static std::int64_t elements(std::int64_t head_dim) {
    return 5 * TeamTile<Real>::elements(head_dim) + 2 * TeamTile<Real>::elements(block) + TeamTile<Real>::elements(2);
  }

  KOKKOS_INLINE_FUNCTION void load_queries(HeadTeam<Element> const& team, Block queries,
                                           BackwardRows<Element> const& rows) const {
    AttentionHead<Element> const& head = team.head;
    std::int64_t const first = head.query_row + queries.begin;
    team.load(head.view.q, first, queries.count, q, head.view.query_scale());
    team.load(rows.grad_output, first, queries.count, grad_output);
    team.wait();
    team.for_each_row([&](int i) {
      // A row without visible keys, or beyond the queries, has no weights: exp(score - infinity).
      query_state(i, 0) = std::numeric_limits<Real>::infinity();
      query_state(i, 1) = 0;
      if (i < queries.count) {
        Real const normalizer = rows.log_sum_exp[first + i][head.head];
        query_state(i, 0) = normalizer == -std::numeric_limits<Real>::infinity() ? -normalizer : normalizer;
        Element const* const output = head.at(rows.output, first + i);
        for (int d = 0; d < team.head_dim; ++d) {
          query_state(i, 1) += grad_output(i, d) * kernels::wide<Real>(output[d]);
        }
      }
    });
  }
  KOKKOS_INLINE_FUNCTION void load_keys(HeadTeam<Element> const& team, Block keys) const {
    AttentionHead<Element> const& head = team.head;
    team.load(head.of_keys(head.view.k), head.key_row + keys.begin, keys.count, k);
    team.load(head.of_keys(head.view.v), head.key_row + keys.begin, keys.count, v);
  }

  /// weights and grad_scores of two blocks that are loaded.
  KOKKOS_INLINE_FUNCTION void differentiate_softmax(HeadTeam<Element> const& team, Block queries, Block keys) const {
    team.wait();
    team.score(queries, keys, q, k, weights);
    team.multiply(
        block, team.head_dim, [&](int i, int d) { return grad_output(i, d); }, [&](int d, int j) { return v(j, d); },
        [&](int i, int j, Real sum) { grad_scores(i, j) = sum; });
    team.wait();
    team.for_each_element(block, [&](int i, int j) {
      Real const weight = fast_exp(weights(i, j) - query_state(i, 0));
      Real const kept = team.kept(queries, keys, i, j);
      grad_scores(i, j) = weight * (grad_scores(i, j) * kept - query_state(i, 1));
      weights(i, j) = weight * kept;
    });
    team.wait();
  }
};

/// The queries' gradients of one block of queries.
template <class Element, class Real = kernels::ArithmeticType<Element>>
KOKKOS_INLINE_FUNCTION void differentiate_queries(HeadTeam<Element>& team, Block queries,
                                                  BackwardRows<Element> const& rows) {
  BackwardTiles<Element> const tiles(team);
  tiles.load_queries(team, queries, rows);
  team.clear(tiles.grad);
  for_each_visible(team.head, queries, [&](Block keys) {
    team.wait();
    tiles.load_keys(team, keys);
    tiles.differentiate_softmax(team, queries, keys);
    team.multiply(
        team.head_dim, block, [&](int i, int j) { return tiles.grad_scores(i, j); },
        [&](int j, int d) { return tiles.k(j, d); }, [&](int i, int d, Real sum) { tiles.grad(i, d) += sum; });
  });
  team.wait();
  team.store(tiles.grad, rows.grad_q, team.head.query_row + queries.begin, queries.count, team.head.view.query_scale());
}

/// The gradients of one block of keys and values, summed over the heads that share them.
template <class Element, class Real = kernels::ArithmeticType<Element>>
KOKKOS_INLINE_FUNCTION void differentiate_keys(HeadTeam<Element>& team, Block keys, BackwardRows<Element> const& rows) {
  AttentionHead<Element> const first = team.head;
  BackwardTiles<Element> const tiles(team);
  auto const grad_v = team.tile(team.head_dim);
  tiles.load_keys(team, keys);
  team.clear(tiles.grad);
  team.clear(grad_v);
  for (std::int64_t sharer = 0; sharer < first.view.sharing; ++sharer) {
    team.head.head = first.head + sharer;
    for (std::int64_t begin = 0; begin < first.queries; begin += block) {
      Block const queries = block_at(begin, first.queries);
      if (!first.see(queries, keys)) {
        continue;
      }
      team.wait();
      tiles.load_queries(team, queries, rows);
      tiles.differentiate_softmax(team, queries, keys);
      team.multiply(
          team.head_dim, block, [&](int j, int i) { return tiles.grad_scores(i, j); },
          [&](int i, int d) { return tiles.q(i, d); }, [&](int j, int d, Real sum) { tiles.grad(j, d) += sum; });
      team.multiply(
          team.head_dim, block, [&](int j, int i) { return tiles.weights(i, j); },
          [&](int i, int d) { return tiles.grad_output(i, d); }, [&](int j, int d, Real sum) { grad_v(j, d) += sum; });
    }
  }
  team.wait();
  team.head.head = first.head;
  team.store(tiles.grad, first.of_keys(rows.grad_k), first.key_row + keys.begin, keys.count);
  team.store(grad_v, first.of_keys(rows.grad_v), first.key_row + keys.begin, keys.count);
}

template <class Element>
void run_backward(Execution& execution, AttentionCall const& call, BackwardRows<Element> const& rows) {
  using Real = kernels::ArithmeticType<Element>;
  AttentionView<Element> const view(call);
  std::int64_t const query_blocks = blocks_of(call.queries);
  std::int64_t const key_blocks = blocks_of(call.keys);
  std::int64_t const key_heads = view.heads / view.sharing;
  std::int64_t const elements = BackwardTiles<Element>::elements(view.head_dim);
  for_each_team<Real>(
      execution, "attention backward, queries", view.count * view.heads * query_blocks, elements,
      KOKKOS_LAMBDA(Member const& member, int level, std::size_t bytes) {
        std::int64_t const of_head = member.league_rank() / query_blocks;
        HeadTeam<Element> team(member, {view, of_head / view.heads, of_head % view.heads}, level, bytes);
        std::int64_t const begin = member.league_rank() % query_blocks * block;
        if (begin < team.head.queries) {
          differentiate_queries(team, block_at(begin, team.head.queries), rows);
        }
      });
  for_each_team<Real>(
      execution, "attention backward, keys", view.count * key_heads * key_blocks,
      elements + TeamTile<Real>::elements(view.head_dim),
      KOKKOS_LAMBDA(Member const& member, int level, std::size_t bytes) {
        std::int64_t const of_head = member.league_rank() / key_blocks;
        HeadTeam<Element> team(member, {view, of_head / key_heads, of_head % key_heads * view.sharing}, level, bytes);
        std::int64_t const begin = member.league_rank() % key_blocks * block;
        if (begin < team.head.keys) {
          differentiate_keys(team, block_at(begin, team.head.keys), rows);
        }
      });
}

class TeamAttention final : public Attention {
 public:
  /// Dot products without a cap and biases; the portable kernel has the others.
  bool supports(AttentionProblem const& problem) const override {
    return problem.dtype != DType::int32 && is_defined(problem) && problem.score == ScoreKind::dot_product &&
           !problem.soft_cap && !problem.bias;
  }
  void forward(Execution& execution, AttentionCall const& call, Tensor const& output,
               Tensor const& log_sum_exp) override {
    kernels::with_floating(call.q.dtype(),
                           [&]<class Element>(Element) { run_forward<Element>(execution, call, output, log_sum_exp); });
  }
  void backward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp,
                Tensor const& grad_output, AttentionGradients const& gradients) override {
    kernels::with_floating(call.q.dtype(), [&]<class Element>(Element) {
      run_backward<Element>(execution, call, {output, log_sum_exp, grad_output, gradients});
    });
  }
};

}  // namespace

void add_team_attention_kernels(KernelRegistries& registries) {
  registries.of<Attention>().add("teams", priorities::teams(), std::make_shared<TeamAttention>());
}

}  // namespace heddle
