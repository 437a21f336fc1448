#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <iostream>

#include "commands.hpp"
#include "options.hpp"

namespace heddle {

namespace {

void print(CheckpointEntry const& entry, char const* sound) {
  double const mebibytes = static_cast<double>(entry.bytes) / (1 << 20);
  std::cout << fmt::format("{}  {:>9.1f} MiB  {}{}\n", entry.directory.filename().string(), mebibytes,
                           entry.problem.empty() ? sound : "rejected: " + entry.problem, entry.best ? "  (best)" : "");
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
      "list shows a run's checkpoints, oldest first, and whether their files are all there; it reads no data.\n"
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
  for (CheckpointEntry const& entry : entries) {
    print(entry, verify ? "verified" : "whole");
    all_verify = all_verify && entry.problem.empty();
  }
  if (entries.empty()) {
    std::cout << fmt::format("{}: holds no checkpoints\n", directory);
  }
  return static_cast<int>(verify && !all_verify ? ExitCode::bad_data : ExitCode::done);
}

}  // namespace heddle
