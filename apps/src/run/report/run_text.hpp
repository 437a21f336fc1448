#pragma once

#include <boost/json/object.hpp>
#include <filesystem>
#include <heddle/core/config/config.hpp>
#include <heddle/core/model/description.hpp>
#include <heddle/io/samples/mixture.hpp>
#include <heddle/io/samples/sample_source.hpp>
#include <string>
#include <vector>

#include "run/metrics/training_log.hpp"

namespace heddle {

/// The keys that differ from their defaults, a line for each section: "[train] steps = 50, seed = 2\n".
std::string describe_changes(Config const& config);

/// An argument as a shell takes it: in quotes where it has characters that are special there.
std::string quoted_for_shell(std::string const& argument);

/// The command line that starts `heddle COMMAND ARGUMENTS` again: with the launcher, if there is one, and quoted for a
/// shell.
std::string command_line(std::string const& command, std::vector<std::string> const& arguments, int ranks);

/// How a run ended, for its last lines.
struct Ending {
  std::string state;  ///< "done", "stopped early", "stopped by SIGTERM"
  std::int64_t step = 0;
  std::int64_t steps = 0;   ///< train.steps
  bool data_ended = false;  ///< the data were read as often as the configuration asks
  bool of_stream = false;   ///< they are read once
  std::int64_t tokens = 0;
  double seconds = 0;
  std::int64_t best_step = 0;  ///< 0: nothing was validated
  Measure best_measure = {};   ///< which decides
  double best_value = 0;
  std::vector<BestValue> best_values = {};  ///< of all measures
  std::filesystem::path directory;
  std::filesystem::path checkpoint;  ///< the newest
  std::string command;               ///< the command that resumes; see command_line. Empty: the job queues itself again
  std::vector<std::string> plugins = {};  ///< libraries that the model needs
  bool from_text = false;                 ///< it is trained on lines of text, not on pairs
};

/// A warning where at least 1 % of a dataset's samples are longer than model.max_length and so left out; else "".
/// `key` is the dataset's: "data.train".
std::string left_out_warning(std::string const& key, SampleTotals const& totals, std::int64_t max_length);

/// Its warnings, and left_out_warning of each of its corpora.
std::vector<std::string> warnings_about(Mixture const& mixture, std::int64_t max_length);

/// The "energy" of a report.json (docs/reference/run-directory.md): unknown unless `reason` is empty.
boost::json::object energy_object(double joules, double tokens, std::string_view source, std::string_view reason);

/// The energy in a report.json as text: "1,234 J, 5.6 J per million tokens (RAPL)" or "unknown (…)".
std::string describe_energy(boost::json::object const& report);

/// The rates, efficiencies and energy in the report.json of a run that has ended, in lines of text.
std::string describe_speed(boost::json::object const& report);

/// The last lines of a run: the last step and the reason for stopping, the speed if a `report` is given, the
/// checkpoint, the command that resumes, and the best values of validations.
std::string describe_end(Ending const& ending, ModelDescription const& model, boost::json::object const* report);

/// The last lines of a run that had ended before it was started again.
std::string describe_finished(Ending const& ending, ModelDescription const& model);

}  // namespace heddle
