#include "metrics_line.hpp"

#include <boost/json.hpp>
#include <string_view>

namespace heddle {

namespace {

/// Replaces the values that are not JSON; keys and the names of groups have no such text.
std::string with_null(std::string line) {
  for (std::string_view const word : {":Infinity", ":-Infinity", ":NaN", ":-NaN"}) {
    for (std::size_t at = line.find(word); at != std::string::npos; at = line.find(word, at)) {
      line.replace(at, word.size(), ":null");
    }
  }
  return line;
}

}  // namespace

std::optional<boost::json::object> parse_metrics_line(std::string line) {
  boost::json::error_code problem;
  boost::json::value value = boost::json::parse(line, problem);
  if (problem) {
    value = boost::json::parse(with_null(std::move(line)), problem);
  }
  return problem || !value.is_object() ? std::nullopt : std::optional(std::move(value.get_object()));
}

std::int64_t step_of(std::optional<boost::json::object> const& line) {
  auto const* const step = line ? line->if_contains("step") : nullptr;
  auto const* const number = step != nullptr ? step->if_int64() : nullptr;
  return number != nullptr ? *number : -1;
}

}  // namespace heddle
