#include <fmt/format.h>

#include <heddle/core/operations/observation.hpp>
#include <heddle/core/operations/token_ranking.hpp>

namespace heddle {

namespace {

class ObservedTokenRanking final : public ObservedKernel<TokenRanking> {
 public:
  using ObservedKernel::ObservedKernel;

  void rank(Execution& execution, TokenRankingCall const& call, Tensor const& table) override {
    pass<&TokenRanking::rank>(execution, traffic("rank", {call.logits, table}), call, table);
  }
};

}  // namespace

std::string describe(TokenRankingProblem const& problem) {
  return fmt::format("a vocabulary of {} in {}", problem.local_vocabulary, name_of(problem.dtype));
}

std::shared_ptr<TokenRanking> TokenRanking::observed(ObservedSelection<TokenRanking> selection) {
  return std::make_shared<ObservedTokenRanking>(std::move(selection));
}

}  // namespace heddle
