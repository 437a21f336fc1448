#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <boost/json.hpp>
#include <ctime>
#include <fstream>
#include <heddle/core/base/error.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <iostream>
#include <map>
#include <utility>

#include "commands.hpp"
#include "options.hpp"

namespace heddle {

namespace {

/// Losses after steps, as texts.
using Losses = std::map<std::int64_t, std::string>;

/// From the metrics of the run that a checkpoint belongs to; empty if there are none.
Losses read_losses(std::filesystem::path const& checkpoint) {
  std::ifstream metrics(std::filesystem::absolute(checkpoint).parent_path().parent_path() / "metrics.jsonl");
  Losses losses;
  for (std::string line; std::getline(metrics, line);) {
    boost::system::error_code error;
    boost::json::value const value = boost::json::parse(line, error);
    auto const* const entry = error ? nullptr : value.if_object();
    if (entry == nullptr || !entry->contains("step") || !entry->at("step").is_int64()) {
      continue;
    }
    std::string& text = losses[entry->at("step").as_int64()];
    for (auto const& [key, name] : {std::pair{"train_loss", "loss"}, std::pair{"valid_loss", "validation"}}) {
      if (entry->contains(key) && entry->at(key).is_number()) {
        text += fmt::format("  {} {:.4f}", name, entry->at(key).to_number<double>());
      }
    }
  }
  return losses;
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

void print(CheckpointEntry const& entry, char const* sound, Losses const& losses) {
  double const mebibytes = static_cast<double>(entry.bytes) / (1 << 20);
  auto const loss = losses.find(entry.step);
  std::cout << fmt::format("{}  {:>9.1f} MiB{}  {}{}{}\n", entry.directory.filename().string(), mebibytes,
                           date_of(entry.directory), entry.problem.empty() ? sound : "rejected: " + entry.problem,
                           loss == losses.end() ? "" : loss->second, entry.best ? "  (best)" : "");
}

}  // namespace

int run_checkpoint(Arguments const& arguments) {
  namespace po = boost::program_options;
  std::string action;
  std::string directory;
  CommandSyntax syntax;
  syntax.name = "checkpoint";
  syntax.usage = "list|verify DIRECTORY";
  syntax.summary =
      "list shows a run's checkpoints, oldest first: size, date, whether the files are all there, and losses from the\n"
      "run's metrics; it reads no tensors.\n"
      "verify reads every byte and compares it with the checkpoint's manifest; it answers with exit code 65\n"
      "where a checkpoint does not verify or there is none.";
  syntax.options.add_options()                                                             //
      ("action", po::value(&action)->required()->value_name("list|verify"), "what to do")  //
      ("directory", po::value(&directory)->required()->value_name("DIRECTORY"),            //
       "a run's directory, its checkpoints directory, or one checkpoint's");
  syntax.positional.add("action", 1).add("directory", 1);
  if (!parse_options(syntax, arguments)) {
    return static_cast<int>(ExitCode::done);
  }
  if (action != "list" && action != "verify") {
    throw UsageError(fmt::format("checkpoint: \"{}\" is not an action; expected list or verify", action));
  }
  bool const verify = action == "verify";
  auto const entries =
      list_checkpoints(directory, verify ? CheckpointStore::Check::all_bytes : CheckpointStore::Check::sizes);
  bool all_verify = !entries.empty();
  Losses const losses = entries.empty() ? Losses() : read_losses(entries.front().directory);
  for (CheckpointEntry const& entry : entries) {
    print(entry, verify ? "verified" : "whole", losses);
    all_verify = all_verify && entry.problem.empty();
  }
  if (entries.empty()) {
    std::cout << fmt::format("{}: holds no checkpoints\n", directory);
  }
  return static_cast<int>(verify && !all_verify ? ExitCode::bad_data : ExitCode::done);
}

}  // namespace heddle
