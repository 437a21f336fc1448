#include "breakdown.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/operations/gemm.hpp>
#include <heddle/core/tensor/execution.hpp>

namespace heddle {

namespace {

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

double median_of(std::vector<StepTimes> const& steps, double StepTimes::*member) {
  std::vector<double> values;
  for (StepTimes const& step : steps) {
    values.push_back(step.*member);
  }
  return median(values);
}

void print_line(std::string const& name, PartCost const& cost, double step_seconds) {
  auto const optional = [](bool given, double value) { return given ? fmt::format("{:.1f}", value) : ""; };
  bool const multiplies = cost.operations > 0;
  std::string floor;
  if (cost.floor_seconds > 0) {
    auto const max = std::ranges::max_element(cost.floors, {}, [](auto const& entry) { return entry.second; });
    floor =
        fmt::format("{:>9.3f} {:>8.2f}  {}", 1e3 * cost.floor_seconds, cost.seconds / cost.floor_seconds, max->first);
  }
  fmt::print("{:<42} {:>9.3f} {:>6.1f} {:>7.0f} {:>8} {:>8} {}\n", name, 1e3 * cost.seconds,
             100 * cost.seconds / step_seconds, cost.calls, optional(multiplies, 1e-9 * cost.operations / cost.seconds),
             optional(!multiplies && cost.bytes > 0, 1e-9 * cost.bytes / cost.seconds), floor);
}

PartCost outside(double seconds) {
  PartCost cost;
  cost.seconds = seconds;
  return cost;
}

}  // namespace

PartCost& PartCost::operator+=(PartCost const& other) {
  seconds += other.seconds;
  calls += other.calls;
  operations += other.operations;
  bytes += other.bytes;
  floor_seconds += other.floor_seconds;
  for (auto const& [of, floor] : other.floors) {
    floors[of] += floor;
  }
  return *this;
}

void Breakdown::observe(Execution& execution, KernelCall const& call) {
  if (recording_ && call.problem.type() == typeid(GemmProblem)) {
    products_.push_back(call.make);
  }
  execution.space.fence();
  auto const begin = std::chrono::steady_clock::now();
  call.make();
  execution.space.fence();
  std::chrono::duration<double> const seconds = std::chrono::steady_clock::now() - begin;
  double const computing =
      call.cost.operations > 0 ? call.cost.operations / peaks_.matmul(call.dtype).operations_per_second : 0;
  Bandwidth const& bandwidth = peaks_.bandwidth(call.cost.bytes);
  double const moving = call.cost.bytes / bandwidth.bytes_per_second;
  double const floor = std::max(computing, moving);
  parts_[part_of(call)] += {seconds.count(), 1,     call.cost.operations,
                            call.cost.bytes, floor, {{computing >= moving ? "matmul" : bandwidth.level, floor}}};
}

/// The details leave tokens out: each micro-batch has another number.
Part Breakdown::part_of(KernelCall const& call) const {
  auto const* const gemm = std::any_cast<GemmProblem>(&call.problem);
  if (gemm == nullptr) {
    return {fmt::format("{}: {}", call.operation, call.direction), std::string(call.variant)};
  }
  GemmProblem const& problem = *gemm;
  bool const logits = problem.m == vocabulary_ || problem.n == vocabulary_ || problem.k == vocabulary_;
  std::int64_t const outputs = problem.transpose_a ? problem.m : problem.transpose_b ? problem.n : problem.k;
  std::int64_t const inputs = problem.transpose_b ? problem.k : problem.n;
  return {fmt::format("gemm, {}: {}", logits ? "logits" : "linear", call.direction),
          fmt::format("outputs {}, inputs {}", outputs, inputs)};
}

StepTimes typical(std::vector<StepTimes> const& steps) {
  StepTimes result{median_of(steps, &StepTimes::seconds),
                   median_of(steps, &StepTimes::communication),
                   median_of(steps, &StepTimes::data),
                   {}};
  std::map<Part, std::vector<double>> seconds;
  for (StepTimes const& step : steps) {
    for (auto const& [part, cost] : step.parts) {
      result.parts[part] += cost;
      seconds[part].push_back(cost.seconds);
    }
  }
  double const share = 1 / static_cast<double>(steps.size());
  for (auto& [part, cost] : result.parts) {
    seconds[part].resize(steps.size());  // a step without the part took no time for it
    cost.seconds = median(seconds[part]);
    cost.calls *= share;
    cost.operations *= share;
    cost.bytes *= share;
    cost.floor_seconds *= share;
  }
  return result;
}

PartCost sum_of(Parts const& parts, std::string_view beginning) {
  PartCost sum;
  for (auto const& [part, cost] : parts) {
    if (part.name.starts_with(beginning)) {
      sum += cost;
    }
  }
  return sum;
}

void print(StepTimes const& step, bool details) {
  fmt::print("\n{:<42} {:>9} {:>6} {:>7} {:>8} {:>8} {:>9} {:>8}  {}\n", "a step of one rank", "ms", "%", "calls",
             "GFLOP/s", "GB/s", "floor ms", "x floor", "floor of");
  for (auto part = step.parts.begin(); part != step.parts.end();) {
    std::string const& name = part->first.name;
    auto const end = std::find_if(part, step.parts.end(), [&](auto const& entry) { return entry.first.name != name; });
    PartCost whole;
    std::for_each(part, end, [&](auto const& entry) { whole += entry.second; });
    print_line(name, whole, step.seconds);
    for (auto detail = part; details && detail != end; ++detail) {
      if (!detail->first.detail.empty()) {
        print_line("    " + detail->first.detail, detail->second, step.seconds);
      }
    }
    part = end;
  }
  PartCost const kernels = sum_of(step.parts, "");
  print_line("all kernels", kernels, step.seconds);
  print_line("communication, waiting for other ranks", outside(step.communication), step.seconds);
  print_line("data: reading and packing sentences", outside(step.data), step.seconds);
  print_line("other", outside(step.seconds - kernels.seconds - step.communication - step.data), step.seconds);
  print_line("the step", outside(step.seconds), step.seconds);
}

}  // namespace heddle
