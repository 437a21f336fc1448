#include "train_options.hpp"

#include <fmt/format.h>

#include <heddle/core/base/error.hpp>

namespace heddle {

namespace po = boost::program_options;

void add_train_options(CommandSyntax& syntax, TrainOptions& options) {
  add_config_options(syntax, options, true);
  syntax.options.add_options()  //
      ("trust-plugins", po::bool_switch(&options.trust_plugins),
       "load plug-ins without checking their kernels and layers")  //
      ("fresh", po::bool_switch(&options.fresh),
       "start over in a new directory beside run.directory (which is left as it is)")  //
      ("resume-from", without_default<std::int64_t>(options.resume_from, "STEP"),
       "go back to the checkpoint of this step; newer ones are moved aside to rejected-…")  //
      ("new-data", po::bool_switch(&options.new_data),
       "resume on another dataset than the checkpoint's, from its start")  //
      ("stage-data", without_default<std::string>(options.stage_data, "DIR"),
       "copy the datasets into DIR on each host, such as a disk of the node, and train from the copies")  //
      ("trace", po::value(&options.trace)->value_name("N"),
       "write the first N steps of the first start to trace.json in the run's directory: "
       "docs/reference/run-directory.md");
  add_verbosity(syntax, options.verbosity, "print only warnings and the last lines; log.txt has the rest",
                "print the whole resolved configuration and all tables, too");
}

void require_valid(TrainOptions const& options, std::string_view command) {
  if (options.resume_from && (*options.resume_from < 0 || options.fresh)) {
    throw UsageError("{}: --resume-from takes the step of a checkpoint, at least 0, and excludes --fresh", command);
  }
  if (options.stage_data && options.stage_data->empty()) {
    throw UsageError("{}: --stage-data \"\": expected a directory", command);
  }
  if (options.trace < 0) {
    throw UsageError("{}: --trace {}: expected a number of steps, at least 0", command, options.trace);
  }
  if (options.ranks && !options.dry_run) {
    throw UsageError(
        "{0}: --ranks is an option of --dry-run; to train on {1} ranks: mpirun -np {1} heddle "
        "train …",
        command, *options.ranks);
  }
  if (options.ranks && *options.ranks < 1) {
    throw UsageError("{}: --ranks {}: expected at least 1", command, *options.ranks);
  }
  if (options.dry_run && options.trace > 0) {
    throw UsageError("{}: a dry run makes no step that --trace could record", command);
  }
}

std::vector<std::string> arguments_to_resume(TrainOptions const& options, std::filesystem::path const& directory) {
  std::vector<std::string> words{options.config};
  for (std::string const& override : options.overrides) {
    words.insert(words.end(), {"--set", override});
  }
  for (std::string const& plugin : options.plugins) {
    words.insert(words.end(), {"--plugin", plugin});
  }
  if (options.trust_plugins) {
    words.emplace_back("--trust-plugins");
  }
  if (options.new_data) {
    words.emplace_back("--new-data");
  }
  if (options.stage_data) {
    words.insert(words.end(), {"--stage-data", *options.stage_data});
  }
  if (options.verbosity != Verbosity::normal) {
    words.emplace_back(options.verbosity == Verbosity::quiet ? "-q" : "-v");
  }
  if (options.fresh) {
    words.insert(words.end(), {"--set", fmt::format("run.directory={}", directory.string())});
  }
  return words;
}

std::filesystem::path run_directory_for(std::filesystem::path name, bool fresh) {
  name = name.lexically_normal();
  if (!name.has_filename()) {
    name = name.parent_path();  // a trailing slash
  }
  std::filesystem::path directory = name;
  for (int number = 2; fresh && std::filesystem::exists(directory); ++number) {
    directory = fmt::format("{}-{}", name.string(), number);
  }
  return directory;
}

}  // namespace heddle
