#include "plan_files.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <boost/system/system_error.hpp>
#include <fstream>
#include <heddle/core/base/error.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <sstream>
#include <stdexcept>

#include "kernels/cache.hpp"
#include "report/json_text.hpp"

namespace heddle {

namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

constexpr std::string_view network_format = "heddle network, version 2";
constexpr std::string_view times_format = "heddle times of kernels' calls, version 2";
/// Its times have no spread, date and load; they may stand beside those of version 2.
constexpr std::string_view dateless_times_format = "heddle times of kernels' calls, version 1";

json::object to_json(NetworkModel::Links const& of) {
  json::object object;
  for (auto const& [name, link] : named_links()) {
    object[name] = json::array{(of.*link).latency, (of.*link).seconds_per_byte};
  }
  return object;
}

double number_of(json::value const& value) {
  double const number = value.to_number<double>();
  if (!(number >= 0) || number > 1e18) {
    throw std::out_of_range("a number below 0 or not finite");
  }
  return number;
}

NetworkModel::Links links_of(json::value const& value) {
  NetworkModel::Links of;
  for (auto const& [name, link] : named_links()) {
    json::array const& numbers = value.at(name).as_array();
    of.*link = {number_of(numbers.at(0)), number_of(numbers.at(1))};
  }
  return of;
}

/// The words of an error, without the places in Boost's sources.
std::string words_of(std::exception const& error) {
  auto const* const of_boost = dynamic_cast<boost::system::system_error const*>(&error);
  return of_boost != nullptr ? of_boost->code().message() : error.what();
}

/// The file's value; nothing if there is no such file.
std::optional<json::value> read_json(fs::path const& path, std::string_view format, std::string_view older = "") {
  std::error_code problem;
  if (path.empty() || !fs::exists(path, problem)) {
    return std::nullopt;
  }
  try {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    json::value value = json::parse(text.str());
    json::string const& found = value.at("format").as_string();
    if (found != format && (older.empty() || found != older)) {
      throw std::invalid_argument("it has another format");
    }
    return value;
  } catch (std::exception const& error) {
    throw DataError(fmt::format("{}: is not a file of \"{}\" ({}); remove it, and measure again", path.string(), format,
                                words_of(error)));
  }
}

void write_json(fs::path const& path, json::value const& value) {
  if (path.has_parent_path()) {
    make_directory(path.parent_path());
  }
  replace_file(path, json_text(value) + "\n");
}

KernelTimes times_of(json::value const& value) {
  KernelTimes times;
  for (auto const& [kind, works] : value.at("kinds").as_object()) {
    for (json::value const& each : works.as_array()) {
      json::array const& numbers = each.as_array();
      auto const later = [&](std::size_t index) { return numbers.size() > index ? number_of(numbers[index]) : 0; };
      times.add(std::string(kind), {.cost = {number_of(numbers.at(0)), number_of(numbers.at(1))},
                                    .seconds = number_of(numbers.at(2)),
                                    .first_seconds = number_of(numbers.at(3)),
                                    .spread = later(4),
                                    .measured_at = later(5),
                                    .load = later(6)});
    }
  }
  return times;
}

json::object to_json(KernelTimes const& times) {
  json::object kinds;
  for (auto const& [kind, works] : times.all()) {
    json::array array;
    for (TimedWork const& work : works) {
      array.push_back(json::array{work.cost.operations, work.cost.bytes, work.seconds, work.first_seconds, work.spread,
                                  work.measured_at, work.load});
    }
    kinds[kind] = std::move(array);
  }
  return {{"kinds", std::move(kinds)}};
}

template <class Read>
auto understood(fs::path const& path, Read const& read) {
  try {
    return read();
  } catch (DataError const&) {
    throw;
  } catch (std::exception const& error) {
    throw DataError(fmt::format("{}: holds something else than measurements ({}); remove it, and measure again",
                                path.string(), words_of(error)));
  }
}

}  // namespace

fs::path plan_file(std::string const& kernel_cache, char const* name) {
  fs::path const cache = kernel_cache_path(kernel_cache);
  return cache.empty() ? fs::path() : cache.parent_path() / name;
}

void write_network(fs::path const& path, NetworkModel const& network) {
  write_json(path, json::object{{"format", network_format},
                                {"source", network.source},
                                {"inside_node", to_json(network.inside_node)},
                                {"between_nodes", to_json(network.between_nodes)}});
}

std::optional<NetworkModel> read_network(fs::path const& path) {
  return understood(path, [&]() -> std::optional<NetworkModel> {
    auto const value = read_json(path, network_format);
    if (!value) {
      return std::nullopt;
    }
    return NetworkModel{links_of(value->at("inside_node")), links_of(value->at("between_nodes")),
                        std::string(value->at("source").as_string())};
  });
}

KernelTimes read_call_times(fs::path const& path, std::string const& circumstances) {
  return understood(path, [&] {
    auto const value = read_json(path, times_format, dateless_times_format);
    if (!value) {
      return KernelTimes();
    }
    auto const* const own = value->at("circumstances").as_object().if_contains(circumstances);
    return own == nullptr ? KernelTimes() : times_of(*own);
  });
}

void write_call_times(fs::path const& path, std::string const& circumstances, KernelTimes const& times) {
  json::object all;
  if (auto const value = read_json(path, times_format, dateless_times_format)) {
    all = value->at("circumstances").as_object();
  }
  all[circumstances] = to_json(times);
  write_json(path, json::object{{"format", times_format}, {"circumstances", std::move(all)}});
}

}  // namespace heddle
