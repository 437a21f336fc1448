#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/report/memory_plan.hpp>
#include <iterator>

namespace heddle {

namespace {

constexpr std::size_t max_memory_lines = 32;
constexpr std::size_t numbers = 11;

std::array<std::int64_t*, numbers> fields(MemoryReport& report) {
  auto& [predicted, measured, resident] = report;
  return {&predicted.parameters,
          &predicted.gradients,
          &predicted.moments,
          &predicted.kernels,
          &predicted.activations,
          &measured.parameters,
          &measured.gradients,
          &measured.moments,
          &measured.kernels,
          &measured.activations,
          &resident};
}

/// A row of the table.
struct MemoryLine {
  std::string label;
  MemoryReport report;
};

MemoryReport extreme(std::vector<MemoryReport> ranks, std::function<bool(std::int64_t, std::int64_t)> const& before) {
  MemoryReport result = ranks.front();
  for (MemoryReport& rank : ranks) {
    for (std::size_t index = 0; index < numbers; ++index) {
      std::int64_t& best = *fields(result)[index];
      best = before(*fields(rank)[index], best) ? *fields(rank)[index] : best;
    }
  }
  return result;
}

std::string mebibytes(std::int64_t bytes) {
  return readable_decimal(static_cast<double>(bytes) / (1 << 20), 1);
}

std::string row(std::string_view label, std::string_view kind, MemoryUse const& use) {
  return fmt::format("{:<16} {:<9} {:>10} {:>10} {:>10} {:>10} {:>11} {:>10}", label, kind, mebibytes(use.parameters),
                     mebibytes(use.gradients), mebibytes(use.moments), mebibytes(use.kernels),
                     mebibytes(use.activations), mebibytes(use.total()));
}

/// True if the rows print the same, except for the resident memory of their processes.
bool alike(MemoryReport const& one, MemoryReport const& other) {
  return row("", "", one.predicted) == row("", "", other.predicted) &&
         row("", "", one.measured) == row("", "", other.measured);
}

/// A line for adjacent ranks that print the same, with the largest of each number.
std::vector<MemoryLine> lines_of(std::vector<MemoryReport> const& ranks) {
  std::vector<MemoryLine> lines;
  for (auto begin = ranks.begin(); begin != ranks.end();) {
    auto const end =
        std::find_if_not(begin, ranks.end(), [&](MemoryReport const& rank) { return alike(*begin, rank); });
    auto const first = std::distance(ranks.begin(), begin);
    auto const last = std::distance(ranks.begin(), end) - 1;
    lines.push_back({first == last ? fmt::format("rank {}", first) : fmt::format("ranks {} to {}", first, last),
                     extreme({begin, end}, std::greater<>())});
    begin = end;
  }
  if (lines.size() > max_memory_lines) {
    lines = {{"least of a rank", extreme(ranks, std::less<>())}, {"most of a rank", extreme(ranks, std::greater<>())}};
  }
  return lines;
}

std::string header(std::string_view rest) {
  return fmt::format("{:<16} {:<9} {:>10} {:>10} {:>10} {:>10} {:>11} {:>10}{}\n", "memory, MiB", "", "parameters",
                     "gradients", "moments", "kernels", "activations", "together", rest);
}

}  // namespace

std::vector<MemoryReport> gather_memory(Communicator const& world, MemoryReport const& own) {
  return gather_values(world, own);
}

std::string describe_prediction(std::vector<MemoryReport> const& ranks) {
  std::string text = header("");
  for (MemoryLine const& line : lines_of(ranks)) {
    text += row(line.label, "predicted", line.report.predicted) + "\n";
  }
  return text;
}

std::string describe_memory(std::vector<MemoryReport> const& ranks) {
  std::string text = header("   resident");
  for (MemoryLine const& line : lines_of(ranks)) {
    text += row(line.label, "predicted", line.report.predicted) + "\n";
    text += row("", "measured", line.report.measured) +
            (line.report.resident > 0 ? fmt::format(" {:>10}\n", mebibytes(line.report.resident)) : "\n");
  }
  return text;
}

}  // namespace heddle
