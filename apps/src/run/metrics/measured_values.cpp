#include "measured_values.hpp"

#include <boost/json.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <sstream>
#include <utility>

#include "run/directory/json_text.hpp"
#include "run/directory/run_progress.hpp"

namespace heddle {

std::string valid_dataset_of(boost::json::object const& line, std::string const& set) {
  return std::string(text_of(line, validation_key("dataset", set)));
}

std::map<std::int64_t, double> measured_values(std::filesystem::path const& metrics, Measure const& measure,
                                               std::optional<std::string> const& digest) {
  std::map<std::int64_t, std::pair<double, std::string>> found;
  std::istringstream file(read_regular(metrics).value_or(""));
  for (std::string line; std::getline(file, line);) {
    auto const object = parse_metrics_line(line);
    std::int64_t const step = step_of(object);
    auto const* const value = step < 0 ? nullptr : object->if_contains(measure.key());
    if (value != nullptr && value->is_number()) {
      found[step] = {value->to_number<double>(), valid_dataset_of(*object, measure.set)};
    }
  }
  std::map<std::int64_t, double> values;
  for (auto const& [step, each] : found) {
    if (each.second == digest.value_or(found.rbegin()->second.second)) {
      values[step] = each.first;
    }
  }
  return values;
}

}  // namespace heddle
