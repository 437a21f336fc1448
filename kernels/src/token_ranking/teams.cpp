#include <heddle/core/operations/row_lanes.hpp>
#include <limits>

#include "ranked_row.hpp"
#include "support/factories.hpp"

namespace heddle {
namespace {

using kernels::ColumnGroup;
using kernels::RankedRow;
using kernels::RankingView;
using kernels::RowLanes;

/// More tokens than this are selected by one thread of a team, with a heap: each costs a pass over the row.
constexpr std::int64_t max_passes = 64;

/// A column and its logit: the likeliest of all that were joined.
template <class Real>
struct Candidate {
  Real logit = -std::numeric_limits<Real>::infinity();
  std::int64_t column = std::numeric_limits<std::int64_t>::max();  ///< none

  KOKKOS_INLINE_FUNCTION bool before(Candidate const& other) const {
    return logit > other.logit || (logit == other.logit && column < other.column);
  }
  KOKKOS_INLINE_FUNCTION void join(Candidate const& other) { *this = other.before(*this) ? other : *this; }
};

/// The likeliest of the columns that come after `last`.
template <class Element, class Real>
KOKKOS_INLINE_FUNCTION Candidate<Real> next_candidate(RowLanes const& lanes, Element const* logits,
                                                      std::int64_t columns, Candidate<Real> const& last) {
  return lanes.reduce_groups<Candidate<Real>>(columns, [&](ColumnGroup const& at, Candidate<Real>& best) {
    auto const x = at.template load<Real>(logits);
    at.for_each([&](int i) {
      Candidate<Real> const one{x[i], at.begin + i};
      if (last.before(one)) {
        best.join(one);
      }
    });
  });
}

template <class Element, class Real = kernels::ArithmeticType<Element>>
KOKKOS_INLINE_FUNCTION double sum_of_exponentials(RowLanes const& lanes, Element const* logits, std::int64_t columns,
                                                  Real highest) {
  auto const sum =
      lanes.reduce_groups<kernels::Sum<double>>(columns, [&](ColumnGroup const& at, kernels::Sum<double>& partial) {
        auto const x = at.template load<Real>(logits);
        Real of_group = 0;
        at.for_each([&](int i) { of_group += exp_of_negative(x[i] - highest); });
        partial.value += static_cast<double>(of_group);
      });
  return sum.value;
}

/// One pass for each token, in which the row comes from the cache, and one for the sum.
template <class Element, class Real = kernels::ArithmeticType<Element>>
KOKKOS_INLINE_FUNCTION void rank_row(RankingView<Element> const& view, std::int64_t row, RowLanes const& lanes) {
  Element const* const logits = view.logits[row];
  RankedRow const ranked(view, row);
  bool const by_passes = view.ranked() <= max_passes;
  Candidate<Real> const first{std::numeric_limits<Real>::infinity(), -1};
  Candidate<Real> const best = next_candidate(lanes, logits, view.columns, first);
  double const sum = sum_of_exponentials(lanes, logits, view.columns, best.logit);
  Candidate<Real> last = best;
  for (std::int64_t index = 0; by_passes && index < view.ranked(); ++index) {
    last = index == 0 ? best : next_candidate(lanes, logits, view.columns, last);
    lanes.once([&] { ranked.set(index, static_cast<double>(last.column), static_cast<double>(last.logit)); });
  }
  lanes.once([&] {
    if (!by_passes) {
      ranked.select_with_heap(logits, view.columns);
    }
    ranked.finish(view, logits, static_cast<double>(best.logit) + std::log(sum));
  });
}

struct TeamTokenRanking {
  template <class Element>
  static void rank(Execution& execution, TokenRankingCall const& call, Tensor const& table) {
    RankingView<Element> const view(call, table);
    kernels::for_each_row(
        execution, "team token ranking", call.logits.dim(0), view.columns,
        KOKKOS_LAMBDA(std::int64_t row, RowLanes const& lanes) { rank_row(view, row, lanes); });
  }
};

}  // namespace

void add_team_token_ranking_kernels(KernelRegistries& registries) {
  registries.of<TokenRanking>().add("teams", priorities::teams(),
                                    std::make_shared<TokenRankingFrontEnd<TeamTokenRanking>>());
}

}  // namespace heddle
