#include <algorithm>
#include <heddle/dist/report/efficiency.hpp>
#include <numeric>

namespace heddle {

Efficiency efficiency_of(std::vector<StepTimes::Seconds> const& ranks) {
  auto const count = static_cast<double>(ranks.size());
  auto const sum = [&](auto const& of) {
    return std::accumulate(ranks.begin(), ranks.end(), 0.0,
                           [&](double total, StepTimes::Seconds const& rank) { return total + of(rank); });
  };
  double const mean = sum([](StepTimes::Seconds const& rank) { return rank.computing(); }) / count;
  double max = 0;
  double all = 0;
  for (StepTimes::Seconds const& rank : ranks) {
    max = std::max(max, rank.computing());
    all = std::max(all, rank.all);
  }
  auto const min = std::ranges::min_element(ranks, {}, &StepTimes::Seconds::communicating);
  Efficiency result{.load_balance = mean / max,
                    .communication = max / all,
                    .parallel = mean / all,
                    .slowest = static_cast<int>(min - ranks.begin())};
  if (ranks.size() > 1) {
    double const others = sum([](StepTimes::Seconds const& rank) { return rank.communicating; }) - min->communicating;
    result.waited_less = others / (count - 1) - min->communicating;
  }
  return result;
}

}  // namespace heddle
