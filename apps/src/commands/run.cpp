#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/core/config/config.hpp>
#include <heddle/io/samples/sample_source.hpp>

#include "command_line/train_options.hpp"
#include "commands.hpp"
#include "training/supervision/earlier_starts.hpp"
#include "training/supervision/supervisor.hpp"

namespace heddle {
namespace {

namespace po = boost::program_options;

struct RunOptions {
  TrainOptions train;
  Supervision supervision;
};

/// An option of a positive number of seconds.
auto* seconds(std::chrono::milliseconds& value, std::string const& name) {
  auto const take = [&value, name](double given) {
    if (!(given > 0 && given < 1e6)) {
      throw UsageError("--{} takes a positive number of seconds", name);
    }
    value = std::chrono::milliseconds(static_cast<std::int64_t>(1000 * given));
  };
  return po::value<double>()
      ->value_name("SECONDS")
      ->default_value(static_cast<double>(value.count()) / 1000)
      ->notifier(take);
}

CommandSyntax run_syntax(RunOptions& options) {
  CommandSyntax syntax;
  syntax.name = "run";
  syntax.usage = "RUN.toml [options of train] [--hosts HOST:SLOTS,...] [--ranks N,...] -- LAUNCHER [ARGUMENT]...";
  syntax.summary = R"(Starts `LAUNCHER ARGUMENT... heddle train RUN.toml ...` and restarts it after a lost rank,
launcher or node or a hang: training resumes from the newest checkpoint. Gives up after three restarts
without a new step. --resume-from and --trace hold until a start has begun to train. Ends with the
launcher's code, unless the run's report says more; after a signal with 75.)";
  add_train_options(syntax, options.train);
  Supervision& supervision = options.supervision;
  syntax.options.add_options()  //
      ("ranks", po::value<std::string>()->value_name("N,...")->notifier([&](std::string const& text) {
        supervision.ranks = parse_ranks(text);
      }),
       "numbers of ranks for {ranks} in the launcher's arguments, largest first: "
       "a start that makes no step moves on to the next")  //
      ("hosts", po::value<std::string>()->value_name("HOST:SLOTS,...")->notifier([&](std::string const& text) {
        supervision.hosts = parse_hosts(text);
      }),
       "hosts for {hosts} in the launcher's arguments: a start uses the first on which the launcher can start a "
       "program, as many as {ranks} need; the others are spare")  //
      ("launcher-ends-within", seconds(supervision.launcher_ends_within, "launcher-ends-within"),
       "kill the launcher if it still runs this long after its ranks have ended")  //
      ("start-within", seconds(supervision.start_within, "start-within"),
       "kill the launcher if no rank starts to train within this time")  //
      ("pause", seconds(supervision.pause, "pause"),
       "wait this long before the second restart without a new step, and three times as long before the third");
  return syntax;
}

/// Leaves out the numbers of ranks that all hosts together could not run. Throws UsageError if none is left.
void require_slots(Supervision& supervision) {
  if (supervision.ranks.empty() || supervision.hosts.empty()) {
    return;
  }
  int const slots = slots_of(supervision.hosts);
  int const min = std::ranges::min(supervision.ranks);
  if (min > slots) {
    throw UsageError("run: --hosts {} has {} slots together, and --ranks {} needs at least {}",
                     to_string(supervision.hosts), slots, fmt::join(supervision.ranks, ","), min);
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

/// Sets the options that hold for the first start only: going back to a checkpoint, and the trace. In a job that Slurm
/// has requeued, to go back once more would lose the steps since then.
void set_first_start(Supervision& supervision, TrainOptions const& options) {
  if (options.resume_from && slurm_requeues() > 0) {
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

ExitCode run_supervised(Arguments const& arguments) {
  auto const separator = std::ranges::find(arguments, "--");
  RunOptions options;
  parse_options(run_syntax(options), {arguments.begin(), separator});
  Supervision& supervision = options.supervision;
  if (separator != arguments.end()) {
    supervision.launcher.assign(separator + 1, arguments.end());
  }
  if (supervision.launcher.empty()) {
    throw UsageError("run: no launcher; expected for example `heddle run RUN.toml -- mpirun -np 8`");
  }
  require_both(supervision, hosts_place, "--hosts n1:4,n2:4", !supervision.hosts.empty());
  if (supervision.hosts.empty() || !supervision.ranks.empty()) {
    require_both(supervision, ranks_place, "--ranks 8,6,4", !supervision.ranks.empty());
  }
  require_slots(supervision);
  require_valid(options.train, "run");
  set_first_start(supervision, options.train);
  Config const config = load_config(options.train.config, options.train.overrides);
  require_supported(config);
  if (is_stream(config.data)) {
    throw UsageError(
        "run: {} = \"-\" is the standard input, which a restart could not read again; expected a file, or "
        "`heddle train` in a script that sends the lines again",
        config.data.places.of("train"));
  }
  supervision.directory = run_directory_for(config.run.directory, options.train.fresh);
  supervision.training = training_command(options.train, supervision.directory);
  return static_cast<ExitCode>(supervise(supervision));
}

}  // namespace heddle
