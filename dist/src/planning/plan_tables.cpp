#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <heddle/core/base/readable.hpp>
#include <heddle/dist/planning/planner.hpp>
#include <span>

namespace heddle {

namespace {

std::string mebibytes(std::int64_t bytes) {
  return readable_decimal(static_cast<double>(bytes) / (1 << 20), 1);
}

constexpr std::string_view memory_format = " {:>10} {:>10} {:>10} {:>10} {:>11} {:>10}";
/// The columns of a table of MemoryUse after the labels.
std::string const memory_heads =
    fmt::format(memory_format, "parameters", "gradients", "state", "kernels", "activations", "total");

std::string memory_numbers(MemoryUse const& use) {
  return fmt::format(memory_format, mebibytes(use.parameters), mebibytes(use.gradients), mebibytes(use.state),
                     mebibytes(use.kernels), mebibytes(use.activations), mebibytes(use.total()));
}

/// Calls line(first, last) for adjacent elements that are alike.
template <class Element, class Alike, class Line>
void for_each_run(std::vector<Element> const& elements, Alike const& alike, Line const& line) {
  for (std::size_t first = 0, end = 0; first < elements.size(); first = end) {
    for (end = first + 1; end < elements.size() && alike(elements[first], elements[end]); ++end) {
    }
    line(first, end - 1);
  }
}

std::string label(char const* what, std::size_t first, std::size_t last) {
  return first == last ? fmt::format("{} {}", what, first) : fmt::format("{}s {} to {}", what, first, last);
}

/// A line for adjacent stages with equal memory.
std::string memory_table(std::vector<MemoryUse> const& stages) {
  std::string text = fmt::format("  {:<14}{}\n", "MiB of a rank", memory_heads);
  for_each_run(stages, std::equal_to(), [&](std::size_t first, std::size_t last) {
    text += fmt::format("  {:<14}{}\n", stages.size() == 1 ? "each" : label("stage", first, last),
                        memory_numbers(stages[first]));
  });
  return text;
}

struct RankLine {
  std::string label;
  MemoryReport report;
};

using Choose = std::int64_t const& (*)(std::int64_t const&, std::int64_t const&);

MemoryReport extreme(std::span<MemoryReport const> ranks, Choose choose) {
  MemoryReport result = ranks.front();
  for (auto const& [predicted, measured, resident] : ranks) {
    result = {combined(result.predicted, predicted, choose), combined(result.measured, measured, choose),
              choose(result.resident, resident)};
  }
  return result;
}

/// A line for adjacent ranks that print the same, except for their resident memory.
std::vector<RankLine> lines_of(std::vector<MemoryReport> const& ranks) {
  constexpr std::size_t max_lines = 32;
  std::vector<RankLine> lines;
  auto const alike = [](MemoryReport const& one, MemoryReport const& other) {
    return memory_numbers(one.predicted) == memory_numbers(other.predicted) &&
           memory_numbers(one.measured) == memory_numbers(other.measured);
  };
  std::span const all(ranks);
  for_each_run(ranks, alike, [&](std::size_t first, std::size_t last) {
    lines.push_back({label("rank", first, last), extreme(all.subspan(first, last - first + 1), std::max)});
  });
  if (lines.size() > max_lines) {
    lines = {{"min of all ranks", extreme(all, std::min)}, {"max of all ranks", extreme(all, std::max)}};
  }
  return lines;
}

std::string row(std::string_view label, std::string_view kind, std::string_view numbers) {
  return fmt::format("{:<16} {:<9}{}", label, kind, numbers);
}

std::string percent(double part, double whole) {
  return fmt::format("{:.0f} %", whole > 0 ? 100 * part / whole : 0);
}

std::string rejected(Rejection const& rejection) {
  return fmt::format("{} rejected: {}; for example {}\n", counted(rejection.layouts, "layout"), rejection.limit,
                     rejection.example);
}

/// The layouts for which a batch has too few tokens, if they are the majority; otherwise null.
Rejection const* dominant_batch_limit(Plan const& plan) {
  std::int64_t layouts = plan.fitting;
  Rejection const* by_batch = nullptr;
  for (Rejection const& rejection : plan.rejections) {
    layouts += rejection.layouts;
    by_batch = rejection.limit == batch_limit ? &rejection : by_batch;
  }
  return by_batch != nullptr && 2 * by_batch->layouts >= layouts ? by_batch : nullptr;
}

}  // namespace

std::string describe_plan(LayoutPlan const& plan) {
  std::string text = fmt::format(
      "  {} micro-batch{} for each data rank; step {:.4f} s: kernels of the busiest stage {}, bubble {}, reading {}\n",
      readable_count(plan.micro_batches), plan.micro_batches == 1 ? "" : "es", plan.step_seconds,
      percent(plan.kernel_seconds, plan.step_seconds), percent(plan.bubble, 1),
      percent(plan.reading_seconds, plan.step_seconds));
  if (plan.assumed_share > 0.005) {
    text += fmt::format("  {} of the kernels' time is assumed, not measured\n", percent(plan.assumed_share, 1));
  }
  text += memory_table(plan.stages);
  for (GroupTraffic const& group : plan.groups) {
    text += fmt::format("  {:<9} of {:>5} ranks {:<13}: {:>10} MiB, {:>9.4f} s of messages in a step\n", group.name,
                        readable_count(group.place.ranks), group.place.inside_node ? "in a node" : "across nodes",
                        mebibytes(group.bytes), group.seconds);
  }
  return text;
}

std::string describe_best(Plan const& plan, std::int64_t batch_tokens) {
  std::string text;
  Rejection const* const by_batch = dominant_batch_limit(plan);
  if (by_batch != nullptr) {
    text = fmt::format("{} of the layouts {} left out: {}\n", readable_count(by_batch->layouts),
                       by_batch->layouts == 1 ? "is" : "are", by_batch->example);
  }
  if (!plan.best.empty()) {
    text += "The fastest layouts, by step time; where the estimates do not tell them apart, the simplest first:\n";
    text +=
        fmt::format("{:>3}  {:>10} {:>12} {:>7} {:>13}  layout\n", "", "step, s", "tokens/s", "bubble", "node memory");
  }
  for (std::size_t index = 0; index < plan.best.size(); ++index) {
    LayoutPlan const& each = plan.best[index];
    text += fmt::format("{:>3}  {:>10.4f} {:>12} {:>5.0f} % {:>13}  {}\n", index + 1, each.step_seconds,
                        readable_count(static_cast<double>(batch_tokens) / each.step_seconds), 100 * each.bubble,
                        readable_size(each.node_bytes), describe(each.layout));
  }
  if (plan.fitting > static_cast<std::int64_t>(plan.best.size())) {
    text += fmt::format("     {} more layouts fit\n",
                        readable_count(plan.fitting - static_cast<std::int64_t>(plan.best.size())));
  }
  for (Rejection const& rejection : plan.rejections) {
    text += &rejection == by_batch ? "" : rejected(rejection);
  }
  return text;
}

std::string describe_refusal(Plan const& plan, Machines const& machines) {
  std::string text = fmt::format("no layout of {} fits", counted(machines.ranks(), "rank"));
  char const* separator = ": ";
  for (Rejection const& rejection : plan.rejections) {
    if (rejection.limit == batch_limit) {
      text += separator + rejection.example;
    } else if (rejection.limit == memory_limit) {
      text += fmt::format(
          "{}a node has too little memory for {}; more nodes (--nodes), nodes with more memory (--memory), a smaller "
          "model (model.d_model, model.d_ff, fewer layers) or a lower train.micro_batch_tokens help",
          separator, rejection.example);
    } else {
      continue;
    }
    separator = "; ";
  }
  return text;
}

std::string describe_nodes(std::vector<NodesPlan> const& plans, std::int64_t batch_tokens, std::int64_t steps) {
  std::string text = fmt::format("{:>7} {:>12} {:>11} {:>10} {:>12}  layout\n", "nodes", "tokens/s", "efficiency",
                                 "hours", "node-hours");
  double of_a_node = 0;  // tokens per second, on the fewest nodes
  for (auto const& [nodes, best] : plans) {
    if (!best) {
      text += fmt::format("{:>7} {:>12}\n", readable_count(nodes), "none fits");
      continue;
    }
    double const speed = static_cast<double>(batch_tokens) / best->step_seconds;
    of_a_node = of_a_node > 0 ? of_a_node : speed / nodes;
    double const hours = static_cast<double>(steps) * best->step_seconds / 3600;
    text += fmt::format("{:>7} {:>12} {:>9.0f} % {:>10} {:>12}  {}\n", readable_count(nodes), readable_count(speed),
                        100 * speed / (nodes * of_a_node), readable_decimal(hours, hours < 10 ? 2 : 1),
                        readable_decimal(nodes * hours, nodes * hours < 10 ? 2 : 1), describe(best->layout));
  }
  return text;
}

std::string describe_prediction(std::vector<MemoryReport> const& ranks) {
  std::string text = row("memory, MiB", "", memory_heads) + "\n";
  for (RankLine const& line : lines_of(ranks)) {
    text += row(line.label, "predicted", memory_numbers(line.report.predicted)) + "\n";
  }
  return text;
}

std::string describe_memory(std::vector<MemoryReport> const& ranks) {
  std::string text = row("memory, MiB", "", memory_heads) + "   resident\n";
  for (RankLine const& line : lines_of(ranks)) {
    text += row(line.label, "predicted", memory_numbers(line.report.predicted)) + "\n";
    text += row("", "measured", memory_numbers(line.report.measured)) +
            (line.report.resident > 0 ? fmt::format(" {:>10}\n", mebibytes(line.report.resident)) : "\n");
  }
  return text;
}

}  // namespace heddle
