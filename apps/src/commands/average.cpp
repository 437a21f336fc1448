#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/files/pending_directory.hpp>
#include <heddle/run.hpp>
#include <iostream>
#include <optional>
#include <sstream>

#include "command_line/options.hpp"
#include "commands.hpp"
#include "run/checkpoints/averaging.hpp"
#include "run/checkpoints/new_run.hpp"
#include "run/directory/warning.hpp"

namespace heddle {

namespace {

namespace po = boost::program_options;

struct AverageOptions {
  std::vector<std::string> places;
  std::string run;
  std::string which = "auto";
  std::int64_t last = 1;
  std::optional<std::int64_t> best;
  std::string by = "best";
  std::string weights;
};

std::vector<Checkpoint> open_all(AverageOptions const& options) {
  if (options.last < 1) {
    throw UsageError("average: --last is {}; expected at least 1", options.last);
  }
  if (options.last > 1 && options.which == "best") {
    throw UsageError("average: --last takes the newest checkpoints of a run, and --which best one of them");
  }
  if (options.best && (*options.best < 1 || options.last > 1 || options.which != "auto")) {
    throw UsageError("average: --best takes a number of checkpoints, at least 1, and excludes --last and --which");
  }
  if (!options.best && options.by != "best") {
    throw UsageError("average: --by chooses the checkpoints of --best; give both");
  }
  if (options.by == "newest") {
    throw UsageError("average: --by newest: --best compares values of a validation; --last N takes the newest");
  }
  std::vector<Checkpoint> checkpoints;
  for (std::string const& place : options.places) {
    OpenedCheckpoints opened = open_checkpoints({.checkpoint = place,
                                                 .which = options.which,
                                                 .average = options.best.value_or(options.last),
                                                 .average_by = options.best ? options.by : "newest"});
    std::ranges::for_each(opened.skipped, report_on_stderr);
    std::ranges::move(opened.checkpoints, std::back_inserter(checkpoints));
  }
  return checkpoints;
}

/// The numbers of --weights, one for each checkpoint; all 1 if the option is not given.
std::vector<double> parse_weights(std::string const& text, std::size_t checkpoints) {
  std::vector<double> weights(text.empty() ? checkpoints : 0, 1);
  std::istringstream list(text);
  for (std::string word; std::getline(list, word, ',');) {
    std::istringstream number(word);
    double weight = 0;
    if (!(number >> weight) || !(number >> std::ws).eof() || !std::isfinite(weight) || weight <= 0) {
      throw UsageError("average: --weights has \"{}\"; expected a number above 0", word);
    }
    weights.push_back(weight);
  }
  if (weights.size() != checkpoints) {
    throw UsageError("average: --weights has {} numbers for {} checkpoints; expected one for each", weights.size(),
                     checkpoints);
  }
  return weights;
}

}  // namespace

ExitCode run_average(Arguments const& arguments) {
  AverageOptions options;
  CommandSyntax syntax;
  syntax.name = "average";
  syntax.usage = "CHECKPOINT... --out RUN [options]";
  syntax.summary =
      R"(Makes a run whose parameters are the mean of those of several checkpoints of one model. It has one checkpoint,
of step 0, which `translate`, `evaluate`, `export` and train.initialize_from read. Tensors are read and written in
pieces: no model is in memory. Checkpoints with another model or vocabulary are refused.)";
  syntax.options.add_options()  //
      ("checkpoint", po::value(&options.places)->required()->composing()->value_name("CHECKPOINT"),
       "a run's directory, its checkpoints directory, or one checkpoint's; several of them")                     //
      ("out", po::value(&options.run)->required()->value_name("RUN"), "the run's directory, which must be new")  //
      ("which", with_default(options.which, "auto|best|last"), "the checkpoint of a run")                        //
      ("last", with_default(options.last, "N"), "take the N newest checkpoints of each run, newest first")       //
      ("best", without_default<std::int64_t>(options.best, "N"),
       "take the N best checkpoints of each run by its metrics, best first")  //
      ("by", with_default(options.by, "METRIC"),
       "what --best compares in validation: loss, bleu or another metric; best: the run's train.best_metric")  //
      ("weights", without_default(options.weights, "X,Y,..."),
       "the share of each checkpoint, in their order; default: all count the same");
  syntax.positional.add("checkpoint", 1000);
  parse_options(syntax, arguments);
  PendingDirectory directory(options.run);
  std::vector<Checkpoint> checkpoints = open_all(options);
  std::vector<double> weights = parse_weights(options.weights, checkpoints.size());
  std::string listed;
  for (std::size_t index = 0; index < checkpoints.size(); ++index) {
    listed += fmt::format("{} x {}\n", weights[index], checkpoints[index].directory().string());
  }
  AveragedModel const model(std::move(checkpoints), std::move(weights));
  MadeTensors tensors = averaged_tensors(model);
  auto const written = write_new_run(directory.path(), contents_of_new_run(options.run, model.first()), tensors);
  directory.commit();
  std::cout << fmt::format("{}the mean of {} tensors → {}\n", listed, readable_count(std::ssize(tensors.tensors())),
                           (options.run / written).string());
  return ExitCode::done;
}

}  // namespace heddle
