#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/core/config/config.hpp>

#include "command_line/train_options.hpp"
#include "commands.hpp"
#include "supervision/supervisor.hpp"

namespace heddle {
namespace {

namespace po = boost::program_options;

struct RunOptions {
  TrainOptions train;
  std::string ranks;
  std::string hosts;
  double launcher_ends_within = 30;
  double start_within = 600;
  double pause = 10;
};

CommandSyntax run_syntax(RunOptions& options) {
  CommandSyntax syntax;
  syntax.name = "run";
  syntax.usage = "RUN.toml [options of train] [--hosts HOST:SLOTS,...] [--ranks N,...] -- LAUNCHER [ARGUMENT]...";
  syntax.summary =
      "Starts `LAUNCHER ARGUMENT... heddle train RUN.toml ...` and restarts it after a lost rank, launcher or node\n"
      "or a hang: training resumes from the newest checkpoint. Gives up after three restarts without a new step.\n"
      "--resume-from and --trace hold until a start has begun to train. Ends with the launcher's code, unless the\n"
      "run's report says more; after a signal with 75.";
  add_train_options(syntax, options.train);
  auto const seconds = [](double& value) { return po::value(&value)->value_name("SECONDS")->default_value(value); };
  syntax.options.add_options()  //
      ("ranks", po::value(&options.ranks)->value_name("N,..."),
       "numbers of ranks for {ranks} in the launcher's arguments, largest first: "
       "a start that makes no step moves on to the next")  //
      ("hosts", po::value(&options.hosts)->value_name("HOST:SLOTS,..."),
       "hosts for {hosts} in the launcher's arguments: a start uses the first on which the launcher can start a "
       "program, as many as {ranks} need; the others are spare")  //
      ("launcher-ends-within", seconds(options.launcher_ends_within),
       "a launcher that waits longer after its ranks have ended is ended")  //
      ("start-within", seconds(options.start_within),
       "if no rank starts to train within this time, the launcher is ended")  //
      ("pause", seconds(options.pause),
       "before the second restart without a new step; before the third it is three times as long");
  return syntax;
}

/// "8,6,4" as numbers.
std::vector<int> parse_ranks(std::string const& text) {
  std::vector<int> ranks;
  char const* const end = text.data() + text.size();
  for (char const* place = text.data(); place < end;) {
    int number = 0;
    auto const [next, problem] = std::from_chars(place, end, number);
    if (problem != std::errc() || number < 1 || (next != end && *next != ',') || next + 1 == end) {
      throw UsageError(fmt::format("run: --ranks \"{}\" is not a list of numbers; expected for example 8,6,4", text));
    }
    ranks.push_back(number);
    place = next == end ? end : next + 1;
  }
  return ranks;
}

/// Leaves out the numbers of ranks that all hosts together could not run. Throws UsageError if none is left.
void require_slots(Supervision& supervision, RunOptions const& options) {
  if (supervision.ranks.empty() || supervision.hosts.empty()) {
    return;
  }
  int const slots = slots_of(supervision.hosts);
  int const min = std::ranges::min(supervision.ranks);
  if (min > slots) {
    throw UsageError(fmt::format("run: --hosts {} has {} slots together, and --ranks {} needs at least {}",
                                 options.hosts, slots, options.ranks, min));
  }
  std::erase_if(supervision.ranks, [&](int ranks) { return ranks > slots; });
}

/// Example arguments of a launcher, for an error message.
std::string example_arguments(Supervision const& supervision) {
  return supervision.hosts.empty()   ? fmt::format("mpirun -np {}", ranks_place)
         : supervision.ranks.empty() ? fmt::format("mpirun --host {}", hosts_place)
                                     : fmt::format("mpirun --host {} -np {}", hosts_place, ranks_place);
}

/// Throws UsageError unless an option and its place are both given or both not.
void require_both(Supervision const& supervision, std::string_view place, std::string_view option, bool given) {
  bool const has_place = std::ranges::any_of(
      supervision.launcher, [&](std::string const& word) { return word.find(place) != std::string::npos; });
  if (has_place != given) {
    throw UsageError(has_place ? fmt::format("run: {} in the launcher's arguments needs {}", place, option)
                               : fmt::format("run: {} needs {} in the launcher's arguments: {}", option, place,
                                             example_arguments(supervision)));
  }
}

std::chrono::milliseconds milliseconds_of(double seconds, std::string_view option) {
  if (!(seconds > 0 && seconds < 1e6)) {
    throw UsageError(fmt::format("run: {} takes a positive number of seconds", option));
  }
  return std::chrono::milliseconds(static_cast<std::int64_t>(1000 * seconds));
}

/// Whether Slurm has requeued the job, which starts it with the same command line: to go back once more would lose the
/// steps since then.
bool requeued() {
  char const* const restarts = std::getenv("SLURM_RESTART_COUNT");
  return restarts != nullptr && std::string_view(restarts) != "0";
}

/// Sets the options that hold for the first start only: going back to a checkpoint, and the trace.
void set_first_start(Supervision& supervision, TrainOptions const& options) {
  if (options.resume_from && requeued()) {
    fmt::print(stderr,
               "heddle run: the job was requeued: it resumes from its newest checkpoint, not --resume-from {}\n",
               *options.resume_from);
  } else if (options.resume_from) {
    supervision.resume_from = options.resume_from;
    supervision.at_first.insert(supervision.at_first.end(), {"--resume-from", std::to_string(*options.resume_from)});
  }
  if (options.trace > 0) {
    supervision.at_first.insert(supervision.at_first.end(), {"--trace", std::to_string(options.trace)});
  }
}

/// The command that the launcher starts.
std::vector<std::string> training_command(TrainOptions const& options, std::filesystem::path const& directory) {
  std::vector<std::string> words{std::filesystem::read_symlink("/proc/self/exe").string(), "train"};
  std::vector<std::string> const arguments = arguments_to_resume(options, directory);
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

}  // namespace

int run_supervised(Arguments const& arguments) {
  auto const separator = std::ranges::find(arguments, "--");
  RunOptions options;
  if (!parse_options(run_syntax(options), {arguments.begin(), separator})) {
    return static_cast<int>(ExitCode::done);
  }
  Supervision supervision;
  if (separator != arguments.end()) {
    supervision.launcher.assign(separator + 1, arguments.end());
  }
  if (supervision.launcher.empty()) {
    throw UsageError("run: no launcher; expected for example `heddle run RUN.toml -- mpirun -np 8`");
  }
  supervision.ranks = parse_ranks(options.ranks);
  supervision.hosts = parse_hosts(options.hosts);
  require_both(supervision, hosts_place, "--hosts n1:4,n2:4", !supervision.hosts.empty());
  if (supervision.hosts.empty() || !supervision.ranks.empty()) {
    require_both(supervision, ranks_place, "--ranks 8,6,4", !supervision.ranks.empty());
  }
  require_slots(supervision, options);
  require_valid(options.train, "run");
  set_first_start(supervision, options.train);
  supervision.launcher_ends_within = milliseconds_of(options.launcher_ends_within, "--launcher-ends-within");
  supervision.start_within = milliseconds_of(options.start_within, "--start-within");
  supervision.pause = milliseconds_of(options.pause, "--pause");
  Config const config = load_config(options.train.config, options.train.overrides);
  require_supported(config);
  supervision.directory = run_directory_for(config.run.directory, options.train.fresh);
  supervision.training = training_command(options.train, supervision.directory);
  return supervise(supervision);
}

}  // namespace heddle
