#include "sampling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/random.hpp>
#include <numeric>
#include <vector>

namespace heddle {

namespace {

/// In [0, 1).
double random_number(std::uint64_t seed, DrawPlace const& place) {
  auto const words =
      Philox::words(random_key(seed, "generation.sampling"),
                    {static_cast<std::uint32_t>(place.source), static_cast<std::uint32_t>(place.source >> 32),
                     static_cast<std::uint32_t>(place.position), static_cast<std::uint32_t>(place.position >> 32)});
  std::uint64_t const bits = (std::uint64_t{words[0]} << 21) | (words[1] >> 11);
  return std::ldexp(static_cast<double>(bits), -53);
}

}  // namespace

void require_valid(Sampling const& sampling) {
  if (!std::isfinite(sampling.temperature) || sampling.temperature < 0 || sampling.top_k < 0 || sampling.top_p > 1 ||
      !(sampling.top_p > 0)) {
    throw UsageError(
        fmt::format("temperature {}, top-k {}, top-p {}: expected a temperature of at least 0, a top-k of at least 1 "
                    "(or 0 for all tokens) and a top-p above 0 and at most 1",
                    sampling.temperature, sampling.top_k, sampling.top_p));
  }
  if (sampling.temperature == 0 && (sampling.top_k > 0 || sampling.top_p < 1)) {
    throw UsageError(
        fmt::format("top-k {} and top-p {} with temperature 0: nothing is drawn; set a temperature above 0",
                    sampling.top_k, sampling.top_p));
  }
}

RankedToken draw_token(Sampling const& sampling, std::span<RankedToken const> best, DrawPlace const& place) {
  std::vector<double> weights;
  for (RankedToken const& token : best) {
    weights.push_back(std::exp((token.log_probability - best.front().log_probability) / sampling.temperature));
  }
  std::partial_sum(weights.begin(), weights.end(), weights.begin());
  if (sampling.top_p < 1) {
    auto const last = std::lower_bound(weights.begin(), weights.end(), sampling.top_p * weights.back());
    weights.erase(last + 1, weights.end());
  }
  double const wanted = random_number(sampling.seed, place) * weights.back();
  auto const drawn = std::upper_bound(weights.begin(), weights.end() - 1, wanted);
  return best[static_cast<std::size_t>(drawn - weights.begin())];
}

}  // namespace heddle
