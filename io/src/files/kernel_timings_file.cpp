#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>
#include <fstream>
#include <heddle/core/base/error.hpp>
#include <heddle/io/files/kernel_timings_file.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <sstream>

namespace heddle {

namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

constexpr std::string_view format_name = "heddle kernel times, version 1";
constexpr std::streamoff max_bytes = std::streamoff{16} << 20;

std::string json_string(std::string_view text) {
  return json::serialize(json::string(text));
}

std::string to_json(TimesByName const& times) {
  std::string text;
  for (auto const& [name, seconds] : times) {
    text += fmt::format("{}{}: {:.9g}", text.empty() ? "" : ", ", json_string(name), seconds);
  }
  return "{" + text + "}";
}

/// An object of `values`, each on its own lines.
template <class Values>
std::string to_json(Values const& values, std::string const& indent) {
  std::string text;
  for (auto const& [name, value] : values) {
    text += fmt::format("{}\n{}  {}: ", text.empty() ? "" : ",", indent, json_string(name));
    if constexpr (std::is_same_v<Values, TimesByProblem>) {
      text += to_json(value);
    } else {
      text += to_json(value, indent + "  ");
    }
  }
  return text.empty() ? "{}" : fmt::format("{{{}\n{}}}", text, indent);
}

double seconds_of(json::value const& value) {
  double const seconds = value.to_number<double>();
  if (!(seconds > 0) || !std::isfinite(seconds)) {
    throw std::out_of_range("a time that is not above 0");
  }
  return seconds;
}

KernelTimings timings_of(json::value const& machine) {
  KernelTimings timings;
  for (auto const& [operation, problems] : machine.as_object()) {
    for (auto const& [problem, times] : problems.as_object()) {
      for (auto const& [name, seconds] : times.as_object()) {
        timings[std::string(operation)][std::string(problem)][std::string(name)] = seconds_of(seconds);
      }
    }
  }
  return timings;
}

}  // namespace

std::string to_json(TimingsByMachine const& timings) {
  return fmt::format("{{\n  \"format\": {},\n  \"machines\": {}\n}}\n", json_string(format_name),
                     to_json(timings, "  "));
}

TimingsByMachine parse_kernel_timings(std::string_view text, std::string const& source) {
  try {
    json::value const whole = json::parse(text);
    if (whole.at("format").as_string() != format_name) {
      throw std::invalid_argument("another format");
    }
    TimingsByMachine timings;
    for (auto const& [name, machine] : whole.at("machines").as_object()) {
      timings[std::string(name)] = timings_of(machine);
    }
    return timings;
  } catch (std::exception const& problem) {
    throw DataError(fmt::format("{}: holds no kernel times as `heddle kernels --benchmark` writes them ({})", source,
                                problem.what()));
  }
}

TimingsByMachine read_kernel_timings(fs::path const& path) {
  std::error_code problem;
  if (!fs::exists(path, problem) && !problem) {
    return {};
  }
  std::ifstream file;
  if (fs::is_regular_file(path, problem)) {  // a FIFO would wait for a writer
    file.open(path, std::ios::binary | std::ios::ate);
  }
  if (!file.is_open() || !file || file.tellg() > max_bytes) {
    throw DataError(fmt::format("{}: cannot be read as a file of kernel times", path.string()));
  }
  file.seekg(0);
  std::ostringstream text;
  text << file.rdbuf();
  return parse_kernel_timings(text.str(), path.string());
}

void add_kernel_timings(fs::path const& path, TimingsByMachine const& timings) {
  TimingsByMachine all = read_kernel_timings(path);
  for (auto const& [machine, operations] : timings) {
    KernelTimings& known = all[machine];
    for (auto const& [operation, problems] : operations) {
      for (auto const& [problem, times] : problems) {
        known[operation][problem] = times;
      }
    }
  }
  if (path.has_parent_path()) {
    try {
      make_directory(path.parent_path());
    } catch (Error const& error) {
      throw Error(fmt::format("{}: {}", path.string(), error.what()));  // the user chose the file, not its directory
    }
  }
  replace_file(path, to_json(all));
}

}  // namespace heddle
