#pragma once

#include <boost/json.hpp>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

/// The JSON object in a file of a run's directory (docs/reference/run-directory.md). Nothing, with a line added to
/// `notes`, where the file is absent, not regular, larger than a page can use, or holds no JSON object. `fix` says in
/// that line how to get the file.
std::optional<boost::json::object> read_run_file(std::filesystem::path const& path, std::string const& fix,
                                                 std::vector<std::string>& notes);

/// The schedule of the last whole step in a trace.json: {"step", "duration", "lanes": [{"rank", "name", "events":
/// [{"kind", "name", "begin", "duration", and its args: "micro_batch", "part", "group", "bytes", "peer"}]}]}, in
/// microseconds since the start of the step on the first rank. Kinds are pass, communication, waiting and data; of
/// nested communication only the outermost. Nothing for a trace without steps.
std::optional<boost::json::object> schedule_to_json(boost::json::object const& trace);

/// Completes "energy" in the content of a report.json (docs/reference/run-directory.md): where the hosts had no
/// counters, but the run was a step of a Slurm job, asks Slurm's accounting by `sacct`, which gets at most this time. A
/// step of which it knows nothing, or 0 J, leaves the energy unknown, with that in its "reason".
void add_slurm_energy(boost::json::object& report, std::chrono::milliseconds timeout = std::chrono::seconds(10));

}  // namespace heddle
