#include "tokenizers/pair_merges.hpp"

#include <functional>
#include <queue>
#include <tuple>

namespace heddle {
namespace {

std::uint64_t key(std::int32_t left, std::int32_t right) noexcept {
  return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32U) | static_cast<std::uint32_t>(right);
}

}  // namespace

void PairMerges::add(std::int32_t left, std::int32_t right, std::int32_t both) {
  merges_[key(left, right)] = {rank_++, both};
}

PairMerges::Merge const* PairMerges::merge_of(std::int32_t left, std::int32_t right) const {
  auto const found = merges_.find(key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void PairMerges::apply(std::vector<std::int32_t>& ids) const {
  struct Symbol {
    std::int32_t id;
    std::uint32_t before;
    std::uint32_t after;
  };
  constexpr std::int32_t merged = -1;  // into the symbol before
  std::vector<Symbol> symbols;
  symbols.reserve(ids.size());
  for (std::int32_t const id : ids) {
    auto const at = static_cast<std::uint32_t>(symbols.size());
    symbols.push_back({id, at - (at == 0 ? 0 : 1), at + 1});
  }
  using Candidate = std::tuple<std::uint32_t, std::uint32_t, std::int32_t>;  // rank, place of the left one, id
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  auto const merge_at = [&](std::uint32_t at) {
    std::uint32_t const next = symbols[at].after;
    return next < symbols.size() ? merge_of(symbols[at].id, symbols[next].id) : nullptr;
  };
  auto const add = [&](std::uint32_t at) {
    if (Merge const* const merge = merge_at(at)) {
      candidates.emplace(merge->rank, at, merge->id);
    }
  };
  for (std::uint32_t at = 0; at < symbols.size(); ++at) {
    add(at);
  }
  while (!candidates.empty()) {
    auto const [rank, at, id] = candidates.top();
    candidates.pop();
    Merge const* const merge = symbols[at].id == merged ? nullptr : merge_at(at);
    if (merge == nullptr || merge->rank != rank) {
      continue;  // one of the two was merged with another
    }
    std::uint32_t const right = symbols[at].after;
    symbols[at].id = id;
    symbols[at].after = symbols[right].after;
    symbols[right].id = merged;
    if (symbols[at].after < symbols.size()) {
      symbols[symbols[at].after].before = at;
    }
    add(at);
    if (at > 0) {
      add(symbols[at].before);
    }
  }
  ids.clear();
  for (Symbol const& symbol : symbols) {
    if (symbol.id != merged) {
      ids.push_back(symbol.id);
    }
  }
}

}  // namespace heddle
