#pragma once

#include <boost/json.hpp>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

/// The JSON object in a file of a run's directory (docs/run-directory.md). Nothing, with a line added to `notes`, where
/// the file is absent, not regular, larger than a page can use, or holds no JSON object. `remedy` says in that line how
/// to get the file.
std::optional<boost::json::object> read_run_file(std::filesystem::path const& path, std::string const& remedy,
                                                 std::vector<std::string>& notes);

/// The schedule of the last whole step in a trace.json: {"step", "duration", "lanes": [{"rank", "name", "events":
/// [{"kind", "name", "begin", "duration", and its args: "micro_batch", "part", "group", "bytes", "peer"}]}]}, in
/// microseconds since the start of the step on the first rank. Kinds are pass, communication, waiting and data; of
/// nested communication only the outermost. Nothing for a trace without steps.
std::optional<boost::json::object> schedule_to_json(boost::json::object const& trace);

}  // namespace heddle
