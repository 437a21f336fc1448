#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>

namespace heddle {

/// The object of a line of metrics.jsonl; nothing where the line is not whole. Numbers that are not finite are null,
/// also those that earlier versions wrote as Infinity and NaN.
std::optional<boost::json::object> parse_metrics_line(std::string line);

/// The line's step; -1 where it has none.
std::int64_t step_of(std::optional<boost::json::object> const& line);

}  // namespace heddle
