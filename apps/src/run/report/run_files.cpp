#include "run_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/parse_number.hpp>
#include <heddle/core/base/paths.hpp>
#include <map>

#include "run/directory/json_text.hpp"
#include "run/processes/program_answer.hpp"
#include "run/report/run_text.hpp"

namespace heddle {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

/// A rank's events in its lane of work.
struct Lane {
  std::string name;
  json::object const* step = nullptr;  ///< the last one
  std::vector<json::object const*> events = {};
};

double start_of(json::object const& event) {
  return number_of(event, "ts");
}

double end_of(json::object const& event) {
  return number_of(event, "ts") + number_of(event, "dur");
}

std::map<std::int64_t, Lane> lanes_of(json::array const& events) {
  std::map<std::int64_t, Lane> lanes;
  for (json::value const& each : events) {
    json::object const* const event = each.if_object();
    if (event == nullptr) {
      continue;
    }
    auto const rank = static_cast<std::int64_t>(number_of(*event, "pid"));
    std::string_view const kind = text_of(*event, "cat");
    bool const work = text_of(*event, "ph") == "X" && number_of(*event, "tid") == 0;
    if (text_of(*event, "name") == "process_name") {
      lanes[rank].name = text_of(object_of(*event, "args"), "name");
    } else if (work && kind == "step") {
      Lane& lane = lanes[rank];
      lane.step = lane.step != nullptr && start_of(*lane.step) > start_of(*event) ? lane.step : event;
    } else if (work && kind != "layer" && kind != "kernel") {
      lanes[rank].events.push_back(event);
    }
  }
  std::erase_if(lanes, [](auto const& lane) { return lane.second.step == nullptr; });
  return lanes;
}

/// The events inside the lane's step; of communication that is nested in other communication only the outermost.
json::array events_of(Lane& lane, double origin) {
  std::ranges::stable_sort(lane.events, [](json::object const* a, json::object const* b) {
    return std::pair(start_of(*a), -end_of(*a)) < std::pair(start_of(*b), -end_of(*b));
  });
  json::array events;
  double communicating_until = 0;
  for (json::object const* event : lane.events) {
    std::string_view const kind = text_of(*event, "cat");
    bool const communicates = kind == "communication" || kind == "waiting";
    if (start_of(*event) < start_of(*lane.step) || start_of(*event) >= end_of(*lane.step) ||
        (communicates && start_of(*event) < communicating_until)) {
      continue;
    }
    communicating_until = communicates ? end_of(*event) : communicating_until;
    json::object entry = object_of(*event, "args");
    entry["kind"] = kind;
    entry["name"] = text_of(*event, "name");
    entry["begin"] = start_of(*event) - origin;
    entry["duration"] = number_of(*event, "dur");
    events.push_back(std::move(entry));
  }
  return events;
}

/// The energy of a step, or the reason why it is not known.
struct Answer {
  std::int64_t joules = 0;  ///< 0: not known
  std::string reason = {};
};

/// Asks Slurm's accounting. `step` has no character that is special to the shell.
Answer ask_slurm(std::string const& step, std::chrono::milliseconds timeout) {
  auto const [end, output] =
      ask_program(fmt::format("sacct -j {} --format=ConsumedEnergyRaw --noheader --parsable2", step), timeout);
  switch (end) {
    case ProgramAnswer::End::not_found:
      return {.reason = "sacct is not in PATH"};
    case ProgramAnswer::End::late:
      return {.reason = fmt::format("sacct did not answer in {:g} s", std::chrono::duration<double>(timeout).count())};
    case ProgramAnswer::End::failed:
      return {.reason = "sacct failed"};
    case ProgramAnswer::End::done:
      break;
  }
  std::int64_t const joules = parse_number<std::int64_t>(output.substr(0, output.find('\n'))).value_or(0);
  if (joules <= 0) {
    return {.reason = fmt::format("sacct knows no energy of step {}", step)};
  }
  return {.joules = joules};
}

}  // namespace

std::optional<json::object> read_run_file(fs::path const& path, std::string const& fix,
                                          std::vector<std::string>& notes) {
  FileText const file = read_file_text(path, std::uintmax_t{512} << 20);  // larger than a page can use
  if (!file.problem.empty()) {
    notes.push_back(fmt::format("{}; {}", file.problem, fix));
    return std::nullopt;
  }
  boost::system::error_code error;
  json::value value = json::parse(file.text, error);
  if (error || !value.is_object()) {
    notes.push_back(fmt::format("{}: is not a JSON object; {}", path.string(), fix));
    return std::nullopt;
  }
  return std::move(value.get_object());
}

std::optional<json::object> schedule_to_json(json::object const& trace) {
  auto const* const events = trace.if_contains("traceEvents");
  auto lanes =
      events == nullptr || !events->is_array() ? std::map<std::int64_t, Lane>() : lanes_of(events->get_array());
  if (lanes.empty()) {
    return std::nullopt;
  }
  double origin = start_of(*lanes.begin()->second.step);
  double end = 0;
  for (auto const& [rank, lane] : lanes) {
    origin = std::min(origin, start_of(*lane.step));
    end = std::max(end, end_of(*lane.step));
  }
  json::array entries;
  for (auto& [rank, lane] : lanes) {
    entries.push_back({{"rank", rank},
                       {"name", lane.name.empty() ? fmt::format("rank {}", rank) : lane.name},
                       {"events", events_of(lane, origin)}});
  }
  return json::object{{"step", text_of(*lanes.begin()->second.step, "name")},
                      {"duration", end - origin},
                      {"lanes", std::move(entries)}};
}

void add_slurm_energy(json::object& report, std::chrono::milliseconds timeout) {
  json::object const& slurm = object_of(report, "slurm");
  json::object const& before = object_of(report, "energy");
  if (slurm.empty() || number_of(before, "joules") > 0) {
    return;
  }
  std::string const step = fmt::format("{}.{}", text_of(slurm, "job"), text_of(slurm, "step"));
  bool const valid = !text_of(slurm, "job").empty() && !text_of(slurm, "step").empty() &&
                     step.find_first_not_of("0123456789.") == std::string::npos;
  Answer const answer =
      valid ? ask_slurm(step, timeout) : Answer{.reason = "the run was not started by srun, as a step of its own"};
  std::string_view const reason = text_of(before, "reason");
  report["energy"] =
      energy_object(static_cast<double>(answer.joules), number_of(object_of(report, "training"), "tokens"),
                    fmt::format("Slurm's accounting of step {}", step),
                    answer.joules > 0 ? "" : fmt::format("{}{}{}", reason, reason.empty() ? "" : "; ", answer.reason));
}

}  // namespace heddle
