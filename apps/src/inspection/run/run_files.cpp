#include "run_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <string_view>

#include "json_values.hpp"

namespace heddle {
namespace {

namespace fs = std::filesystem;

/// A complete event of a lane of work.
struct WorkEvent {
  std::int64_t rank = 0;
  std::string_view kind;
  std::string_view name;
  double begin = 0;
  double duration = 0;
  boost::json::object const* arguments = nullptr;

  double end() const { return begin + duration; }
};

/// Steps first among those that begin together, so that what is in them follows them.
std::vector<WorkEvent> work_events(boost::json::array const& events) {
  std::vector<WorkEvent> work;
  for (boost::json::value const& each : events) {
    auto const* const event = each.if_object();
    if (event == nullptr || text_of(*event, "ph") != "X" || number_of(*event, "tid") != 0) {
      continue;
    }
    std::string_view const kind = text_of(*event, "cat");
    if (kind != "layer" && kind != "kernel") {
      work.push_back({static_cast<std::int64_t>(number_of(*event, "pid")), kind, text_of(*event, "name"),
                      number_of(*event, "ts"), number_of(*event, "dur"), object_of(*event, "args")});
    }
  }
  std::ranges::stable_sort(work, [](WorkEvent const& a, WorkEvent const& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.duration > b.duration;
  });
  return work;
}

std::map<std::int64_t, std::string> lane_names(boost::json::array const& events) {
  std::map<std::int64_t, std::string> names;
  for (boost::json::value const& each : events) {
    auto const* const event = each.if_object();
    if (event != nullptr && text_of(*event, "name") == "process_name") {
      auto const* const arguments = object_of(*event, "args");
      names[static_cast<std::int64_t>(number_of(*event, "pid"))] =
          arguments == nullptr ? "" : std::string(text_of(*arguments, "name"));
    }
  }
  return names;
}

boost::json::object event_to_json(WorkEvent const& event, double origin) {
  boost::json::object result{
      {"kind", event.kind}, {"name", event.name}, {"begin", event.begin - origin}, {"duration", event.duration}};
  for (char const* const key : {"micro_batch", "part", "group", "bytes", "peer"}) {
    auto const* const value = event.arguments == nullptr ? nullptr : event.arguments->if_contains(key);
    if (value != nullptr && (value->is_number() || value->is_string())) {
      result[key] = *value;
    }
  }
  return result;
}

/// The events of a lane inside its step; of communication that is nested in other communication only the outer.
boost::json::array lane_events(std::vector<WorkEvent> const& work, WorkEvent const& step, double origin) {
  boost::json::array events;
  double communicating_until = 0;
  for (WorkEvent const& event : work) {
    if (event.rank != step.rank || event.kind == "step" || event.begin < step.begin || event.begin >= step.end()) {
      continue;
    }
    if (event.kind == "communication" || event.kind == "waiting") {
      if (event.begin < communicating_until) {
        continue;
      }
      communicating_until = event.end();
    }
    events.push_back(event_to_json(event, origin));
  }
  return events;
}

}  // namespace

std::optional<boost::json::object> read_run_file(fs::path const& path, std::string const& remedy,
                                                 std::vector<std::string>& notes) {
  constexpr std::uintmax_t max_bytes = std::uintmax_t{512} << 20;
  std::error_code problem;
  if (!fs::is_regular_file(path, problem)) {
    notes.push_back(fmt::format("{}: not there; {}", path.string(), remedy));
    return std::nullopt;
  }
  if (fs::file_size(path, problem) > max_bytes) {
    notes.push_back(fmt::format("{}: larger than {} MiB, and not drawn", path.string(), max_bytes >> 20));
    return std::nullopt;
  }
  std::ifstream file(path, std::ios::binary);
  std::string const text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  boost::system::error_code error;
  boost::json::value value = boost::json::parse(text, error);
  if (error || !value.is_object()) {
    notes.push_back(fmt::format("{}: is no JSON object; {}", path.string(), remedy));
    return std::nullopt;
  }
  return std::move(value.get_object());
}

std::optional<boost::json::object> schedule_to_json(boost::json::object const& trace) {
  auto const* const events = trace.if_contains("traceEvents");
  if (events == nullptr || !events->is_array()) {
    return std::nullopt;
  }
  auto const work = work_events(events->get_array());
  std::map<std::int64_t, WorkEvent> steps;  // the last one of each rank
  for (WorkEvent const& event : work) {
    if (event.kind == "step") {
      steps[event.rank] = event;
    }
  }
  if (steps.empty()) {
    return std::nullopt;
  }
  double origin = steps.begin()->second.begin;
  double end = 0;
  for (auto const& [rank, step] : steps) {
    origin = std::min(origin, step.begin);
    end = std::max(end, step.end());
  }
  auto const names = lane_names(events->get_array());
  boost::json::array lanes;
  for (auto const& [rank, step] : steps) {
    auto const name = names.find(rank);
    lanes.push_back({{"rank", rank},
                     {"name", name == names.end() ? fmt::format("rank {}", rank) : name->second},
                     {"events", lane_events(work, step, origin)}});
  }
  return boost::json::object{
      {"step", steps.begin()->second.name}, {"duration", end - origin}, {"lanes", std::move(lanes)}};
}

}  // namespace heddle
