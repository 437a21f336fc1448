#include "rate_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>

namespace heddle {

namespace {

/// The part of the rate with the lowest loss that is proposed: there the loss has just stopped falling, and a run that
/// stays near its peak for long needs a margin. docs/reference/optimizers.md has the runs that the number comes from.
constexpr double part_of_lowest = 0.3;
constexpr std::size_t min_steps = 20;

/// Means over a window around each step, so that a mean is of its rate and not of earlier ones.
std::vector<TriedRate> smoothed(std::vector<TriedRate> const& steps) {
  auto const last = std::ranges::find_if(steps, [](TriedRate const& step) { return !std::isfinite(step.loss); });
  auto const count = static_cast<std::size_t>(last - steps.begin());
  std::size_t const reach = count / 40;
  std::vector<TriedRate> means;
  for (std::size_t step = 0; step < count; ++step) {
    std::size_t const around = std::min({reach, step, count - 1 - step});
    double sum = 0;
    for (std::size_t near = step - around; near <= step + around; ++near) {
      sum += steps[near].loss;
    }
    means.push_back({steps[step].rate, sum / static_cast<double>(2 * around + 1)});
  }
  return means;
}

/// The nearest of 1, 1.5, 2, 3, 5, 7 and 10 times a power of ten.
double rounded(double rate) {
  double const power = std::pow(10.0, std::floor(std::log10(rate)));
  auto const distance = [&](double digit) { return std::abs(std::log(digit * power / rate)); };
  double const nearest = power * std::ranges::min({1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0}, {}, distance);
  return std::stod(fmt::format("{:.2g}", nearest));  // 0.3, and not 0.30000000000000004
}

/// Places in a picture of a search.
struct Axes {
  static constexpr double width = 640;
  static constexpr double height = 360;
  static constexpr double margin = 48;

  double first, last;      ///< of the rates' logarithms
  double lowest, highest;  ///< of the losses: one that has grown far beyond the first would flatten the rest

  explicit Axes(RateSearch const& search)
      : first(std::log10(search.tried.front().rate)),
        last(std::log10(search.tried.back().rate)),
        lowest(std::ranges::min(search.tried, {}, &TriedRate::loss).loss),
        highest(1.2 * search.tried.front().loss) {}

  double x(double rate) const { return margin + (width - 2 * margin) * (std::log10(rate) - first) / (last - first); }
  double y(double loss) const {
    return margin + (height - 2 * margin) * (highest - std::min(loss, highest)) / (highest - lowest);
  }
};

}  // namespace

RateSearch search_rate(std::vector<TriedRate> const& steps) {
  RateSearch found{.tried = smoothed(steps)};
  if (found.tried.size() < min_steps) {
    throw DataError("the loss of only {} steps is finite; expected at least {}: begin with a lower rate (--from)",
                    found.tried.size(), min_steps);
  }
  auto const lowest = std::ranges::min_element(found.tried, {}, &TriedRate::loss);
  double const first = found.tried.front().loss;
  found.lowest = lowest->rate;
  found.proposed = rounded(part_of_lowest * lowest->rate);
  found.reason = fmt::format("the loss falls from {:.3f} to {:.3f} at the rate {:.2g}, of which this is {:.0f} %",
                             first, lowest->loss, lowest->rate, 100 * found.proposed / lowest->rate);
  if (found.tried.end() - lowest <= std::ssize(found.tried) / 20) {
    found.doubt = "the loss still fell at the end: try higher rates (--to)";
  } else if (lowest->loss > 0.9 * first) {
    found.doubt = "the loss hardly fell: take more steps (--steps)";
  }
  return found;
}

std::string draw(RateSearch const& search) {
  Axes const axes(search);
  constexpr double bottom = Axes::height - Axes::margin;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      Axes::width, Axes::height);
  for (double power = std::ceil(axes.first); power <= axes.last; ++power) {
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#ddd\"/>\n"
        "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">1e{4:.0f}</text>\n",
        axes.x(std::pow(10.0, power)), Axes::margin, bottom, bottom + 16, power);
  }
  for (double const loss : {axes.lowest, search.tried.front().loss}) {
    svg += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.2f}</text>\n", Axes::margin - 4,
                       axes.y(loss) + 4, loss);
  }
  svg += "<polyline fill=\"none\" stroke=\"#1f5fa8\" stroke-width=\"1.5\" points=\"";
  for (TriedRate const& tried : search.tried) {
    svg += fmt::format("{:.1f},{:.1f} ", axes.x(tried.rate), axes.y(tried.loss));
  }
  return svg + fmt::format(
                   "\"/>\n<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#c04020\"/>\n"
                   "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\" fill=\"#c04020\">proposed: {4:.2g}</text>\n"
                   "<text x=\"{5}\" y=\"{6}\" text-anchor=\"middle\">learning rate</text>\n</svg>\n",
                   axes.x(search.proposed), Axes::margin, bottom, Axes::margin - 6, search.proposed, Axes::width / 2,
                   Axes::height - 8);
}

}  // namespace heddle
