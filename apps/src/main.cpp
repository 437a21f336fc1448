#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <exception>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/spelling.hpp>
#include <heddle/dist/mpi/mpi.hpp>
#include <iostream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "command_line/options.hpp"
#include "command_line/terminal.hpp"
#include "commands/commands.hpp"
#include "run/directory/warning.hpp"

namespace heddle {
namespace {

/// How many processes may run a command under a launcher.
enum class Processes {
  several,  ///< as ranks that work together, or each for its own host
  one       ///< several would each do all the work and write the same output
};

struct Command {
  char const* name;
  char const* help;
  ExitCode (*run)(Arguments const&);
  Processes processes;
  char const* group;  ///< in the list of commands, adjacent to others of it
};

constexpr std::array commands = {
    Command{"demo-data", "write a small real task: English number words and their German ones", run_demo_data,
            Processes::one, "Data"},
    Command{"clean", "drop lines of a corpus that are not worth training on, by rules", run_clean, Processes::one,
            "Data"},
    Command{"prepare", "turn parallel text, or one text, into a vocabulary and datasets", run_prepare,
            Processes::several, "Data"},
    Command{"lexicon", "find the target pieces that translate a source piece, for translate --shortlist", run_lexicon,
            Processes::one, "Data"},
    Command{"align", "link the words of parallel text that translate one another, for prepare --alignments", run_align,
            Processes::one, "Data"},
    Command{"init", "write run.toml and a job script from the answers to a few questions", run_init, Processes::one,
            "Training"},
    Command{"plan", "find the fastest layouts of a run on N nodes", run_plan, Processes::several, "Training"},
    Command{"train", "train a model, by itself or under mpirun; resumes where it was stopped", run_train,
            Processes::several, "Training"},
    Command{"find-rate", "try learning rates in one short run, and propose one", run_find_rate, Processes::several,
            "Training"},
    Command{"run", "train under a launcher, and start again by itself after a lost rank or a hang", run_supervised,
            Processes::several, "Training"},
    Command{"distill", "train a small model on a large one's translations, in three steps", run_distill, Processes::one,
            "Training"},
    Command{"translate", "translate text with a trained model", run_translate, Processes::several, "Using a model"},
    Command{"serve", "translate over HTTP, with a page to try it", run_serve, Processes::one, "Using a model"},
    Command{"score", "score given translations with a trained model", run_score, Processes::several, "Using a model"},
    Command{"generate", "continue text with a trained decoder-only model", run_generate, Processes::several,
            "Using a model"},
    Command{"evaluate", "BLEU, chrF, TER, perplexity and masked accuracy on test sets", run_evaluate,
            Processes::several, "Using a model"},
    Command{"import", "make a run of a model of transformers, Marian or PEFT", run_import, Processes::one,
            "Models: exchange and changes"},
    Command{"export", "write a trained model for inference, or for Hugging Face's transformers", run_export,
            Processes::one, "Models: exchange and changes"},
    Command{"extend-vocabulary", "add pieces to the vocabulary of a trained model", run_extend_vocabulary,
            Processes::one, "Models: exchange and changes"},
    Command{"average", "make a run of the mean of several checkpoints' parameters", run_average, Processes::one,
            "Models: exchange and changes"},
    Command{"inspect", "show what is in a dataset, checkpoint or run, also as a page with charts", run_inspect,
            Processes::one, "Looking"},
    Command{"checkpoint", "list, verify, compare or prune a run's checkpoints", run_checkpoint, Processes::one,
            "Looking"},
    Command{"config", "print, check or explain a configuration", run_config, Processes::one, "Looking"},
    Command{"kernels", "list, check or time kernels and layers", run_kernels, Processes::several, "Looking"},
    Command{"new-plugin", "write a plug-in's project", run_new_plugin, Processes::one, "Tools"},
    Command{"doctor", "check this machine for training: MPI, threads, memory, files, Slurm", run_doctor,
            Processes::several, "Tools"},
    Command{"selftest", "try the installation: data, training, resuming and translation in seconds", run_selftest,
            Processes::one, "Tools"},
};

void print_help() {
  constexpr std::size_t name_columns = 21;
  std::size_t const columns = help_columns();
  std::cout << "Usage: heddle COMMAND [options]\n\n"
            << wrapped("Trains encoder-decoder, decoder-only and encoder-only Transformers on clusters.", columns)
            << '\n';
  std::string_view group;
  for (Command const& command : commands) {
    if (group != command.group) {
      group = command.group;
      std::cout << fmt::format("\n{}:\n", group);
    }
    std::cout << fmt::format("  {:<17}  {}\n", command.name, wrapped(command.help, columns, name_columns));
  }
  std::cout << '\n'
            << wrapped(
                   "`heddle COMMAND --help` and `heddle help COMMAND` show a command's options. `heddle --version` "
                   "prints the version.",
                   columns)
            << '\n';
}

Command const& find_command(std::string const& name) {
  auto const found =
      std::find_if(commands.begin(), commands.end(), [&](Command const& command) { return name == command.name; });
  if (found == commands.end()) {
    std::vector<std::string> names;
    for (Command const& command : commands) {
      names.emplace_back(command.name);
    }
    std::string const meant = nearest_spelling(name, names);
    throw UsageError("there is no command \"{}\"; {}", name,
                     meant.empty() ? fmt::format("expected one of: {}", fmt::join(names, ", "))
                                   : fmt::format("did you mean \"{}\"?", meant));
  }
  return *found;
}

ExitCode dispatch(std::vector<std::string> const& arguments) {
  if (arguments.empty()) {
    throw UsageError("a command is missing; `heddle --help` lists them");
  }
  std::string const& first = arguments.front();
  if (first == "help" && arguments.size() > 1) {
    return dispatch({arguments[1], "--help"});
  }
  if (first == "--help" || first == "-h" || first == "help") {
    print_help();
    return ExitCode::done;
  }
  if (first == "--version") {
    std::cout << "heddle " << HEDDLE_VERSION << '\n';
    return ExitCode::done;
  }
  Command const& command = find_command(first);
  std::vector<std::string> const options(arguments.begin() + 1, arguments.end());
  LaunchedRank const launched = launched_rank();
  if (command.processes == Processes::one && launched.ranks > 1 &&
      std::ranges::find(options, "--help") == options.end()) {
    throw UsageError(
        "{} does not share its work, and a launcher started {} processes of it: start one. For other work in each "
        "process, hide the launcher from it: env -u OMPI_COMM_WORLD_SIZE -u PMI_SIZE -u SLURM_STEP_NUM_TASKS heddle …",
        command.name, launched.ranks);
  }
  try {
    return command.run(options);
  } catch (HelpPrinted const&) {
    return ExitCode::done;
  }
}

/// The exit code must not be 0 if output was lost.
void require_printed() {
  std::cout.flush();
  if (!std::cout) {
    throw Error("the standard output could not be written; what was printed is not complete");
  }
}

}  // namespace
}  // namespace heddle

namespace {

/// Ends a process with an error's exit code. A command line is wrong in all processes that a launcher started: rank 0
/// prints that.
int end_with(heddle::Error const& error) {
  if (error.code() == heddle::ExitCode::usage && heddle::launched_rank().rank > 0) {
    // A launcher that sees the first code ends the others, and rank 0 has to print before that.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  } else {
    heddle::report_on_stderr(error.what());
  }
  return static_cast<int>(error.code());
}

/// Opens /dev/null for the standard descriptors that are closed: otherwise the files that are opened next got their
/// numbers, and messages were written into them. Writing to the standard output still fails, as into a closed one.
void open_standard_descriptors() {
  int descriptor = 0;
  do {
    descriptor = ::open("/dev/null", O_RDONLY);  // the lowest number that is free
  } while (descriptor >= 0 && descriptor <= STDERR_FILENO);
  ::close(descriptor);
}

}  // namespace

int main(int argument_count, char** argument_values) {
  open_standard_descriptors();
  // Beyond the limit of a file's size (ulimit -f) a write is to fail with a message, not to end the process.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    heddle::ExitCode const code = heddle::dispatch({argument_values + 1, argument_values + argument_count});
    if (code == heddle::ExitCode::done) {
      heddle::require_printed();
    }
    return static_cast<int>(code);
  } catch (heddle::Error const& error) {
    return end_with(error);
  } catch (std::exception const& error) {
    heddle::report_on_stderr(heddle::describe(error));
    return static_cast<int>(heddle::ExitCode::failure);
  }
}
