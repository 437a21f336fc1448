#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/io/files/measured_times.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <limits>
#include <vector>

namespace heddle {

namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

constexpr std::string_view format_name = "heddle kernel times, version 1";
constexpr std::int64_t max_bytes = std::int64_t{64} << 20;
constexpr double max_number = 1e18;

/// The calls' numbers, in the order of TimedWork.
using CallNumbers = std::map<std::string, std::map<std::string, std::vector<std::array<double, 7>>>>;

/// An object of objects or arrays has a line for each value.
std::string lines_of(json::value const& value, std::string const& indent) {
  json::object const* const object = value.if_object();
  if (object == nullptr ||
      std::ranges::none_of(*object, [](auto const& each) { return each.value().is_structured(); })) {
    return json::serialize(value);
  }
  std::string text;
  for (auto const& [name, each] : *object) {
    text += fmt::format("{}\n{}  {}: {}", text.empty() ? "" : ",", indent, json::serialize(json::string(name)),
                        lines_of(each, indent + "  "));
  }
  return fmt::format("{{{}\n{}}}", text, indent);
}

/// Throws for numbers that no measurement gives: below `min` or not finite.
void require_numbers(double number, double min) {
  if (!(number >= min && number <= max_number)) {
    throw std::out_of_range("a number that is not a measurement");
  }
}

template <class Range>
void require_numbers(Range const& range, double min) {
  for (auto const& each : range) {
    if constexpr (requires { each.second; }) {
      require_numbers(each.second, min);
    } else {
      require_numbers(each, min);
    }
  }
}

/// The value of a member of `object`; an empty one if there is none.
template <class Value>
Value member(json::value const& object, char const* name, double min) {
  json::value const* const found = object.as_object().if_contains(name);
  Value value = found == nullptr ? Value() : json::value_to<Value>(*found);
  require_numbers(value, min);
  return value;
}

CallNumbers numbers_of(std::map<std::string, TimedCalls> const& calls) {
  CallNumbers numbers;
  for (auto const& [circumstances, kinds] : calls) {
    for (auto const& [kind, works] : kinds) {
      for (TimedWork const& work : works) {
        numbers[circumstances][kind].push_back({work.cost.operations, work.cost.bytes, work.seconds, work.first_seconds,
                                                work.spread, work.measured_at, work.load});
      }
    }
  }
  return numbers;
}

std::map<std::string, TimedCalls> calls_of(CallNumbers const& numbers) {
  std::map<std::string, TimedCalls> calls;
  for (auto const& [circumstances, kinds] : numbers) {
    for (auto const& [kind, works] : kinds) {
      for (auto const& [operations, bytes, seconds, first_seconds, spread, measured_at, load] : works) {
        calls[circumstances][kind].push_back({{operations, bytes}, seconds, first_seconds, spread, measured_at, load});
      }
    }
  }
  return calls;
}

}  // namespace

std::string to_json(MeasuredTimes const& times) {
  json::object whole{{"format", format_name}, {"machines", json::value_from(times.kernels)}};
  if (!times.calls.empty()) {
    whole["calls"] = json::value_from(numbers_of(times.calls));
  }
  if (!times.network.source.empty()) {
    whole["network"] = json::object{{"source", times.network.source}, {"links", json::value_from(times.network.links)}};
  }
  return lines_of(whole, "") + "\n";
}

MeasuredTimes parse_measured_times(std::string_view text, std::string const& source) {
  try {
    json::value const whole = json::parse(text);
    if (whole.at("format").as_string() != format_name) {
      throw std::invalid_argument("another format");
    }
    static_cast<void>(whole.at("machines"));  // throws where it is missing: all except the kernels' times is optional
    constexpr double above_zero = std::numeric_limits<double>::min();
    MeasuredTimes times{.kernels = member<decltype(times.kernels)>(whole, "machines", above_zero),
                        .calls = calls_of(member<CallNumbers>(whole, "calls", 0))};
    if (json::value const* const network = whole.as_object().if_contains("network")) {
      static_cast<void>(network->at("links"));
      times.network = {std::string(network->at("source").as_string()),
                       member<decltype(times.network.links)>(*network, "links", 0)};
    }
    return times;
  } catch (std::exception const& problem) {
    throw DataError("{}: is not a file of measured times of `heddle kernels` and `heddle plan` ({})", source,
                    problem.what());
  }
}

MeasuredTimes read_measured_times(fs::path const& path) {
  auto const text = read_regular(path, max_bytes);
  return text ? parse_measured_times(*text, path.string()) : MeasuredTimes();
}

void add_measured_times(fs::path const& path, MeasuredTimes const& times) {
  MeasuredTimes all = read_measured_times(path);
  for (auto const& [machine, operations] : times.kernels) {
    KernelTimings& known = all.kernels[machine];
    for (auto const& [operation, problems] : operations) {
      for (auto const& [problem, by_name] : problems) {
        known[operation][problem] = by_name;
      }
    }
  }
  for (auto const& [circumstances, calls] : times.calls) {
    all.calls[circumstances] = calls;
  }
  if (!times.network.source.empty()) {
    all.network = times.network;
  }
  if (path.has_parent_path()) {
    try {
      make_directory(path.parent_path());
    } catch (Error const& error) {
      throw Error("{}: {}", path.string(), error.what());  // the user chose the file, not its directory
    }
  }
  replace_file(path, to_json(all));
}

}  // namespace heddle
