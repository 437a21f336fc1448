#include "ranked_row.hpp"
#include "support/factories.hpp"

namespace heddle {
namespace {

using kernels::RankedRow;
using kernels::RankingView;

/// Columns whose maximum decides whether any of them is looked at: enough to fill the vector pipelines.
constexpr int group = 32;
/// Columns whose sum is kept in the elements' arithmetic type.
constexpr std::int64_t block = 512;
/// More tokens than this are selected with a heap.
constexpr std::int64_t max_inserted = 64;

template <class Element, class Real = kernels::ArithmeticType<Element>>
KOKKOS_INLINE_FUNCTION Real largest(Element const* logits) {
  Real result = kernels::wide<Real>(logits[0]);
  for (int i = 1; i < group; ++i) {
    auto const logit = kernels::wide<Real>(logits[i]);
    result = logit > result ? logit : result;
  }
  return result;
}

template <class Element, class Real = kernels::ArithmeticType<Element>>
KOKKOS_INLINE_FUNCTION double sum_of_exponentials(Element const* logits, std::int64_t columns, Real highest) {
  double sum = 0;
  for (std::int64_t begin = 0; begin < columns; begin += block) {
    std::int64_t const end = begin + block < columns ? begin + block : columns;
    Real partial = 0;
    for (std::int64_t column = begin; column < end; ++column) {
      partial += exp_of_negative(kernels::wide<Real>(logits[column]) - highest);
    }
    sum += static_cast<double>(partial);
  }
  return sum;
}

/// Most groups hold none of the likeliest tokens: one comparison skips such a group.
template <class Element>
KOKKOS_INLINE_FUNCTION void select_by_insertion(RankedRow const& ranked, RankingView<Element> const& view,
                                                Element const* logits) {
  std::int64_t size = 0;
  for (std::int64_t begin = 0; begin < view.columns; begin += group) {
    bool const whole = begin + group <= view.columns;
    if (whole && size == view.count && !(static_cast<double>(largest(logits + begin)) > ranked.logit(size - 1))) {
      continue;
    }
    std::int64_t const end = whole ? begin + group : view.columns;
    for (std::int64_t column = begin; column < end; ++column) {
      auto const logit = kernels::wide<double>(logits[column]);
      if (size < view.count || logit > ranked.logit(size - 1)) {
        ranked.insert(size, static_cast<double>(column), logit);
        size += size < view.count ? 1 : 0;
      }
    }
  }
}

struct KokkosTokenRanking {
  template <class Element>
  static void rank(Execution& execution, TokenRankingCall const& call, Tensor const& table) {
    RankingView<Element> const view(call, table);
    kernels::for_each(
        execution, "token ranking", call.logits.dim(0), KOKKOS_LAMBDA(std::int64_t row) {
          Element const* const logits = view.logits[row];
          RankedRow const ranked(view, row);
          if (view.count <= max_inserted) {
            select_by_insertion(ranked, view, logits);
          } else {
            ranked.select_with_heap(logits, view.columns);
          }
          auto const highest = static_cast<kernels::ArithmeticType<Element>>(ranked.logit(0));
          double const sum = sum_of_exponentials(logits, view.columns, highest);
          ranked.finish(view, logits, static_cast<double>(highest) + std::log(sum));
        });
  }
};

}  // namespace

void add_portable_token_ranking_kernels(KernelRegistries& registries) {
  registries.of<TokenRanking>().add("kokkos", priorities::portable,
                                    std::make_shared<TokenRankingFrontEnd<KokkosTokenRanking>>());
}

}  // namespace heddle
