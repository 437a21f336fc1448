#include "token_ranking.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/exponential.hpp>

namespace heddle {

namespace {

/// The number of independent partial results, which let the compiler use vector instructions without reordering a sum.
constexpr std::size_t lanes = 16;
/// The number of elements whose partial sums are kept in the elements' own type.
constexpr std::size_t block = 512;

/// More tokens than this are sorted.
constexpr std::size_t most_inserted = 64;

template <class Element>
Element largest(Element const* values) {
  std::array<Element, lanes> result;
  std::copy_n(values, lanes, result.begin());
  for (std::size_t width = lanes / 2; width > 0; width /= 2) {
    for (std::size_t lane = 0; lane < width; ++lane) {
      result[lane] = result[lane] < result[lane + width] ? result[lane + width] : result[lane];
    }
  }
  return result[0];
}

template <class Element>
double sum_of_exponentials(std::span<Element const> logits, Element shift) {
  double sum = 0;
  std::size_t index = 0;
  while (index + lanes <= logits.size()) {
    std::array<Element, lanes> partial{};
    std::size_t const end = std::min(index + block, logits.size());
    for (; index + lanes <= end; index += lanes) {
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        partial[lane] += baseline_exp_of_negative(logits[index + lane] - shift);
      }
    }
    for (Element const value : partial) {
      sum += static_cast<double>(value);
    }
  }
  for (; index < logits.size(); ++index) {
    sum += static_cast<double>(baseline_exp_of_negative(logits[index] - shift));
  }
  return sum;
}

}  // namespace

void TokenRanking::insert(RankedToken const& candidate) {
  if (best_.size() == count_) {
    best_.pop_back();
  }
  auto const place = std::find_if(best_.begin(), best_.end(), [&](RankedToken const& other) {
    return other.log_probability < candidate.log_probability;
  });
  best_.insert(place, candidate);
}

/// Orders all tokens, which is faster than insertions where many are wanted.
template <class Element>
void TokenRanking::sort(std::span<Element const> logits) {
  best_.clear();
  for (std::size_t index = 0; index < logits.size(); ++index) {
    best_.push_back({static_cast<std::int32_t>(index), static_cast<double>(logits[index])});
  }
  auto const better = [](RankedToken const& a, RankedToken const& b) {
    return a.log_probability != b.log_probability ? a.log_probability > b.log_probability : a.token < b.token;
  };
  std::size_t const count = std::min(count_, best_.size());
  std::partial_sort(best_.begin(), best_.begin() + static_cast<std::ptrdiff_t>(count), best_.end(), better);
  best_.resize(count);
}

template <class Element>
void TokenRanking::select(std::span<Element const> logits) {
  best_.clear();
  auto const consider = [&](std::size_t index) {
    auto const value = static_cast<double>(logits[index]);
    if (best_.size() < count_ || value > best_.back().log_probability) {
      insert({static_cast<std::int32_t>(index), value});
    }
  };
  std::size_t index = 0;
  for (; index + lanes <= logits.size(); index += lanes) {
    // Most groups hold none of the best tokens: one comparison skips such a group.
    if (best_.size() == count_ && !(static_cast<double>(largest(&logits[index])) > best_.back().log_probability)) {
      continue;
    }
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      consider(index + lane);
    }
  }
  for (; index < logits.size(); ++index) {
    consider(index);
  }
}

template <class Element>
std::span<RankedToken const> TokenRanking::rank(std::span<Element const> logits) {
  if (count_ > most_inserted) {
    sort(logits);
  } else {
    select(logits);
  }
  auto const top = static_cast<Element>(best_.front().log_probability);
  log_sum_exp_ = static_cast<double>(top) + std::log(sum_of_exponentials(logits, top));
  if (!std::isfinite(log_sum_exp_)) {
    throw Error("the model's logits are not finite: its parameters are not those of a trained model");
  }
  for (RankedToken& ranked : best_) {
    ranked.log_probability -= log_sum_exp_;
  }
  return best_;
}

template std::span<RankedToken const> TokenRanking::rank<float>(std::span<float const>);
template std::span<RankedToken const> TokenRanking::rank<double>(std::span<double const>);

}  // namespace heddle
