#include "ranked_row.hpp"
#include "support/factories.hpp"

namespace heddle {
namespace {

struct ReferenceTokenRanking {
  template <class Element>
  static void rank(Execution& execution, TokenRankingCall const& call, Tensor const& table) {
    kernels::RankingView<Element> const view(call, table);
    kernels::for_each(
        execution, "reference token ranking", call.logits.dim(0), KOKKOS_LAMBDA(std::int64_t row) {
          Element const* const logits = view.logits[row];
          kernels::RankedRow const ranked(view, row);
          ranked.select_with_heap(logits, view.columns);
          double const highest = ranked.logit(0);
          double sum = 0;
          for (std::int64_t column = 0; column < view.columns; ++column) {
            sum += std::exp(kernels::wide<double>(logits[column]) - highest);
          }
          ranked.finish(view, logits, highest + std::log(sum));
        });
  }
};

}  // namespace

void add_token_ranking_kernels(KernelRegistries& registries) {
  registries.of<TokenRanking>().add("reference", priorities::reference,
                                    std::make_shared<TokenRankingFrontEnd<ReferenceTokenRanking>>());
}

}  // namespace heddle
