#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <ctime>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <iostream>
#include <optional>
#include <utility>

#include "command_line/options.hpp"
#include "commands/commands.hpp"
#include "inspection/run/metrics.hpp"
#include "inspection/run/run_view.hpp"
#include "run_directory/run_progress.hpp"

namespace heddle {

namespace {

/// "  loss 2.1234  validation 2.5678": the losses after a step that the metrics have.
std::string losses_of(RunMetrics const& metrics, std::int64_t step) {
  std::string text;
  for (auto const& [key, name] : {std::pair{"train_loss", "loss"}, std::pair{"valid_loss", "validation"}}) {
    auto const series = metrics.series.find(key);
    if (auto const loss = series == metrics.series.end() ? std::nullopt : series->second.at(step)) {
      text += fmt::format("  {} {:.4f}", name, *loss);
    }
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

void print(CheckpointEntry const& entry, char const* sound, RunMetrics const& metrics) {
  double const mebibytes = static_cast<double>(entry.bytes) / (1 << 20);
  std::cout << fmt::format("{}  {:>9} MiB{}  {}{}{}\n", entry.directory.filename().string(),
                           readable_decimal(mebibytes, 1), date_of(entry.directory),
                           entry.problem.empty() ? sound : "rejected: " + entry.problem, losses_of(metrics, entry.step),
                           entry.best ? "  (best)" : "");
}

}  // namespace

ExitCode run_checkpoint(Arguments const& arguments) {
  namespace po = boost::program_options;
  std::string action;
  std::string directory;
  CommandSyntax syntax;
  syntax.name = "checkpoint";
  syntax.usage = "list|verify DIRECTORY";
  syntax.summary = R"(list shows a run's checkpoints, oldest first: size, date, whether the files are all there, and
losses from the run's metrics; it reads no tensors. verify reads every byte and compares it with the
checkpoint's manifest; it exits with code 65 if a checkpoint does not verify or there is none.)";
  syntax.options.add_options()                                                             //
      ("action", po::value(&action)->required()->value_name("list|verify"), "what to do")  //
      ("directory", po::value(&directory)->required()->value_name("DIRECTORY"),            //
       "a run's directory, its checkpoints directory, or one checkpoint's");
  syntax.positional.add("action", 1).add("directory", 1);
  parse_options(syntax, arguments);
  bool const verify = action == "verify";
  auto const entries =
      list_checkpoints(directory, verify ? CheckpointStore::Check::all_bytes : CheckpointStore::Check::sizes);
  bool all_verify = !entries.empty();
  auto const run = entries.empty() ? std::filesystem::path() : run_directory_of(entries.front().directory);
  std::error_code problem;
  bool const measured = !run.empty() && std::filesystem::is_regular_file(run / metrics_name, problem);
  RunMetrics const metrics = measured ? read_metrics(run / metrics_name) : RunMetrics();
  for (CheckpointEntry const& entry : entries) {
    print(entry, verify ? "verified" : "complete", metrics);
    all_verify = all_verify && entry.problem.empty();
  }
  if (entries.empty()) {
    std::cout << fmt::format("{}: holds no checkpoints\n", directory);
  }
  return verify && !all_verify ? ExitCode::bad_data : ExitCode::done;
}

}  // namespace heddle
