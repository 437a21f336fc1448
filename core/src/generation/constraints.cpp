#include "constraints.hpp"

#include <algorithm>
#include <heddle/core/base/error.hpp>

namespace heddle {
namespace {

void make_set(std::vector<std::int32_t>& tokens) {
  std::ranges::sort(tokens);
  auto const surplus = std::ranges::unique(tokens);
  tokens.erase(surplus.begin(), surplus.end());
}

}  // namespace

std::vector<std::int32_t> end_tokens(GenerationModel const& model) {
  return model.limits.ends.empty() ? std::vector{model.ids.target.end} : model.limits.ends;
}

Constraints::Constraints(GenerationModel const& model, GenerationOptions const& options)
    : ends_(end_tokens(model)),
      min_length_(static_cast<std::size_t>(options.min_length)),
      ngram_(static_cast<std::size_t>(options.no_repeat_ngram)),
      first_(model.limits.suppressed_first) {
  Tokens named = first_;
  for (auto const* const list : {&model.limits.suppressed, &options.forbidden}) {
    for (Tokens const& sequence : *list) {
      if (sequence.empty()) {
        throw UsageError("a suppressed sequence of tokens is empty; expected at least one token");
      }
      named.insert(named.end(), sequence.begin(), sequence.end());
      if (sequence.size() == 1) {
        always_.push_back(sequence.front());
      } else {
        sequences_[sequence[sequence.size() - 2]].push_back(sequence);
      }
    }
  }
  if (std::int32_t const unknown = model.ids.target.unknown;
      unknown != SpecialIds::absent && !options.allow_unknown && !ends(unknown)) {
    always_.push_back(unknown);
  }
  Tokens at_first = always_;
  at_first.insert(at_first.end(), first_.begin(), first_.end());
  make_set(always_);
  make_set(at_first);
  named.insert(named.end(), model.limits.ends.begin(), model.limits.ends.end());
  make_set(named);
  std::int64_t const vocabulary = model.model.target_vocabulary();
  if (!named.empty() && (named.front() < 0 || named.back() >= vocabulary)) {
    throw UsageError("suppressed and end tokens from {} to {}; expected ids from 0 to {}", named.front(), named.back(),
                     vocabulary - 1);
  }
  if (std::ssize(at_first) >= vocabulary) {
    throw UsageError("all tokens are suppressed: no token is left that could be generated");
  }
}

std::vector<std::int32_t> Constraints::left_out(std::span<std::int32_t const> start,
                                                std::span<std::int32_t const> tokens) const {
  Tokens out = always_;
  if (tokens.empty()) {
    out.insert(out.end(), first_.begin(), first_.end());
  } else if (auto const found = sequences_.find(tokens.back()); found != sequences_.end()) {
    for (Tokens const& sequence : found->second) {
      auto const before = std::span(sequence).first(sequence.size() - 1);
      if (before.size() <= tokens.size() && std::ranges::equal(before, tokens.last(before.size()))) {
        out.push_back(sequence.back());
      }
    }
  }
  if (tokens.size() < min_length_) {
    out.insert(out.end(), ends_.begin(), ends_.end());
  }
  if (ngram_ > 0) {
    add_repeating(start, tokens, out);
  }
  make_set(out);
  return out;
}

void Constraints::add_repeating(std::span<std::int32_t const> start, std::span<std::int32_t const> tokens,
                                Tokens& out) const {
  Tokens all(start.begin(), start.end());
  all.insert(all.end(), tokens.begin(), tokens.end());
  std::size_t const before = ngram_ - 1;
  for (std::size_t at = before; at < all.size(); ++at) {
    bool const repeats = std::equal(all.end() - static_cast<std::ptrdiff_t>(before), all.end(),
                                    all.begin() + static_cast<std::ptrdiff_t>(at - before));
    if (repeats && !ends(all[at])) {  // a start may have the end token
      out.push_back(all[at]);
    }
  }
}

void leave_out(std::span<std::int32_t const> left_out, std::size_t wanted, std::int32_t end, RowRanking& ranking) {
  std::erase_if(ranking.best,
                [&](RankedToken const& each) { return std::ranges::binary_search(left_out, each.token); });
  ranking.best.resize(std::min(ranking.best.size(), wanted));
  if (ranking.best.empty()) {
    ranking.best.push_back({end, ranking.end_log_probability});
  }
}

}  // namespace heddle
