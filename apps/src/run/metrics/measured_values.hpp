#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "run/metrics/measure.hpp"

namespace heddle {

/// The digest of the validation set by which a line of metrics.jsonl was measured; "" where the line does not name it,
/// as older ones.
std::string valid_dataset_of(boost::json::object const& line, std::string const& set);

/// The finite values of a measure in a metrics.jsonl, by step. Values of different validation sets are not compared:
/// they are those of the set with this digest, or, where none is given, of the set of the newest value.
std::map<std::int64_t, double> measured_values(std::filesystem::path const& metrics, Measure const& measure,
                                               std::optional<std::string> const& digest = std::nullopt);

}  // namespace heddle
