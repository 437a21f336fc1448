#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/run.hpp>
#include <iostream>
#include <utility>

#include "command_line/options.hpp"
#include "commands/commands.hpp"
#include "inspection/run/run_view.hpp"
#include "run/checkpoints/best_checkpoints.hpp"
#include "run/checkpoints/comparison.hpp"
#include "run/checkpoints/pruning.hpp"
#include "run/directory/run_progress.hpp"
#include "run/directory/warning.hpp"
#include "run/metrics/metrics.hpp"

namespace heddle {

namespace {

/// The part of a run that a list of its checkpoints shows.
struct Measured {
  RunMetrics metrics = {};
  Measure deciding = {};  ///< which chose the best one
};

/// "  loss 2.1234  validation 2.5678  BLEU 38.21": what the metrics have of a step, with the measure that decides.
std::string values_of(Measured const& run, std::int64_t step) {
  std::string text;
  auto const& [metrics, deciding] = run;
  for (auto const& [key, name] : {std::pair{"train_loss", "loss"}, std::pair{"valid_loss", "validation"}}) {
    if (auto const loss = metrics.at(key, step)) {
      text += fmt::format("  {} {:.4f}", name, *loss);
    }
  }
  if (auto const value = metrics.at(deciding.key(), step); value && deciding.metric != "loss") {
    text += fmt::format("  {} {}", deciding.name(), deciding.number(*value));
  }
  return text;
}

/// Local date and time at which the checkpoint's directory was last changed, "" if that is unknown.
std::string date_of(std::filesystem::path const& directory) {
  struct stat status {};
  std::tm local{};
  if (::stat(directory.c_str(), &status) != 0 || ::localtime_r(&status.st_mtime, &local) == nullptr) {
    return "";
  }
  return fmt::format("  {:%Y-%m-%d %H:%M}", local);
}

void print(CheckpointEntry const& entry, char const* sound, Measured const& run) {
  double const mebibytes = static_cast<double>(entry.bytes) / (1 << 20);
  std::cout << fmt::format("{}  {:>9} MiB{}  {}{}{}\n", entry.directory.filename().string(),
                           readable_decimal(mebibytes, 1), date_of(entry.directory),
                           entry.problem.empty() ? sound : "rejected: " + entry.problem, values_of(run, entry.step),
                           entry.best ? "  (best)" : "");
}

struct CheckpointOptions {
  std::string action;
  std::vector<std::string> places;
  PruningRule rule;
  bool dry_run = false;
};

CommandSyntax checkpoint_syntax(CheckpointOptions& options) {
  namespace po = boost::program_options;
  CommandSyntax syntax;
  syntax.name = "checkpoint";
  syntax.usage =
      "list|verify DIRECTORY\n"
      "   or: heddle checkpoint prune RUN --keep N [--keep-every STEPS] [--dry-run]\n"
      "   or: heddle checkpoint diff CHECKPOINT CHECKPOINT";
  syntax.summary = R"(list shows a run's checkpoints, oldest first: size, date, whether the files are all there, and
losses and the value of train.best_metric from the run's metrics; it reads no tensors. verify reads every byte and
compares it with the checkpoint's manifest; it exits with code 65 if a checkpoint does not verify or there is none.

prune removes checkpoints of a run in which nothing trains, except for the N newest and the best, after it has
read every byte of those. Checkpoints that do not verify are left, and not counted.

diff compares two checkpoints: keys of the configuration, vocabularies, and the values of tensors, which are
read in blocks. It exits with code 0 if there is no difference, else with 1.)";
  syntax.options.add_options()                                                                                //
      ("action", po::value(&options.action)->required()->value_name("list|verify|prune|diff"), "what to do")  //
      ("directory", po::value(&options.places)->required()->composing()->value_name("DIRECTORY"),
       "a run's directory, its checkpoints directory (not for prune), or one checkpoint's (not for prune)")  //
      ("keep", po::value(&options.rule.keep)->value_name("N"),
       "prune: the number of newest checkpoints that remain")  //
      ("keep-every", po::value(&options.rule.keep_every)->value_name("STEPS"),
       "prune: also leave checkpoints whose step is a multiple of this")  //
      ("dry-run", po::bool_switch(&options.dry_run), "prune: print what would be removed, remove nothing");
  syntax.positional.add("action", 1).add("directory", 2);
  return syntax;
}

void require_possible(CheckpointOptions const& options, boost::program_options::variables_map const& values) {
  bool const prune = options.action == "prune";
  if (options.places.size() != (options.action == "diff" ? 2U : 1U)) {
    throw UsageError("checkpoint {}: expected {}", options.action,
                     options.action == "diff" ? "two checkpoints or runs" : "one directory");
  }
  if (prune != (values.count("keep") > 0) || (!prune && (values.count("keep-every") > 0 || options.dry_run))) {
    throw UsageError(prune ? "checkpoint prune: --keep is missing: how many of the newest checkpoints remain"
                           : "checkpoint: --keep, --keep-every and --dry-run are for prune");
  }
  if (options.rule.keep < 1 || options.rule.keep_every < 0 ||
      (values.count("keep-every") > 0 && options.rule.keep_every == 0)) {
    throw UsageError("checkpoint prune: --keep and --keep-every take numbers of at least 1");
  }
}

ExitCode list_or_verify(std::string const& directory, bool verify) {
  auto const entries =
      list_checkpoints(directory, verify ? CheckpointStore::Check::all_bytes : CheckpointStore::Check::sizes);
  bool all_verify = !entries.empty();
  auto const run = entries.empty() ? std::filesystem::path() : run_directory_of(entries.front().directory);
  std::error_code problem;
  bool const measured = !run.empty() && std::filesystem::is_regular_file(run / metrics_name, problem);
  Measured const values = measured ? Measured{read_metrics(run / metrics_name), deciding_measure(run)} : Measured();
  for (CheckpointEntry const& entry : entries) {
    print(entry, verify ? "verified" : "complete", values);
    all_verify = all_verify && entry.problem.empty();
  }
  if (entries.empty()) {
    std::cout << fmt::format("{}: holds no checkpoints\n", directory);
  }
  return verify && !all_verify ? ExitCode::bad_data : ExitCode::done;
}

ExitCode prune(CheckpointOptions const& options) {
  PrunedCheckpoints const pruned = prune_checkpoints(options.places.front(), options.rule, options.dry_run);
  std::ranges::for_each(pruned.notes, report_on_stderr);
  std::int64_t bytes = 0;
  for (CheckpointEntry const& entry : pruned.removed) {
    std::cout << fmt::format("{} {}\n", options.dry_run ? "would remove" : "removed", entry.directory.string());
    bytes += entry.bytes;
  }
  std::cout << fmt::format("{} {}removed, {} MiB; {} kept\n", counted(pruned.removed.size(), "checkpoint"),
                           options.dry_run ? "would be " : "",
                           readable_decimal(static_cast<double>(bytes) / (1 << 20), 1), pruned.kept.size());
  return ExitCode::done;
}

Checkpoint open_one(std::string const& place) {
  OpenedCheckpoints opened =
      open_checkpoints({.checkpoint = place}, {value_key, average_key}, Communicator::self(), Verification::at_reading);
  std::ranges::for_each(opened.skipped, report_on_stderr);
  return std::move(opened.checkpoints.front());
}

ExitCode diff(CheckpointOptions const& options) {
  Checkpoint const a = open_one(options.places.front());
  Checkpoint const b = open_one(options.places.back());
  for (Checkpoint const* const each : {&a, &b}) {
    std::cout << fmt::format("{} {}: step {}, {} tokens\n", each == &a ? "a" : "b", each->directory().string(),
                             readable_count(each->state().step), readable_count(each->state().tokens));
  }
  CheckpointDifference const difference = compare(a, b);
  std::cout << describe(difference);
  return difference.none() ? ExitCode::done : ExitCode::failure;
}

}  // namespace

ExitCode run_checkpoint(Arguments const& arguments) {
  CheckpointOptions options;
  auto const values = parse_options(checkpoint_syntax(options), arguments);
  require_possible(options, values);
  if (options.action == "prune") {
    return prune(options);
  }
  return options.action == "diff" ? diff(options) : list_or_verify(options.places.front(), options.action == "verify");
}

}  // namespace heddle
