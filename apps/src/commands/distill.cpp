#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/core/config/config.hpp>
#include <heddle/io/files/regular_file.hpp>

#include "command_line/train_options.hpp"
#include "commands.hpp"
#include "run/processes/child_process.hpp"

namespace heddle {
namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;
using Command = ChildProcess::Command;

struct DistillOptions {
  TrainOptions student;
  std::vector<std::string> teachers;
  std::string source, out, valid_source, valid_target;
  std::int64_t beam = 5;
  std::int64_t vocab_size = 0;
  Command launcher = {};
};

CommandSyntax distill_syntax(DistillOptions& options) {
  CommandSyntax syntax;
  syntax.name = "distill";
  syntax.usage = "STUDENT.toml --teacher RUN --source TEXT --out DIRECTORY [options] [-- LAUNCHER [ARGUMENT]...]";
  syntax.summary = R"(Sequence-level distillation (Kim & Rush 2016): translates TEXT with the teacher, prepares the
sources with their translations as data, and trains the model of STUDENT.toml on them, each step under LAUNCHER, such
as mpirun -np 8, if there is one. Repeated after an interruption, it continues where it was.)";
  add_config_options(syntax, options.student, true);
  syntax.options.add_options()  //
      ("teacher", po::value(&options.teachers)->value_name("RUN"),
       "a run or a checkpoint that translates; of several an ensemble does")  //
      ("source", without_default(options.source, "TEXT"),
       "sentences of the source's language, with or without known "
       "translations")  //
      ("out", without_default(options.out, "DIRECTORY"),
       "a directory for translations, data and, unless STUDENT.toml names another, the student's run")  //
      ("beam", with_default(options.beam, "N"), "hypotheses of the teacher's beam search")              //
      ("vocab-size", with_default(options.vocab_size, "N"),
       "learn a vocabulary of N pieces for the student; 0: it has the teacher's")  //
      ("valid-source", without_default(options.valid_source, "TEXT"),
       "sources of a validation set for the student, in place of its data.valid")  //
      ("valid-target", without_default(options.valid_target, "TEXT"), "their references");
  return syntax;
}

void require_valid(DistillOptions const& options) {
  if (options.teachers.empty() || options.source.empty() || options.out.empty()) {
    throw UsageError("distill: expected --teacher RUN, --source TEXT and --out DIRECTORY");
  }
  if (options.valid_source.empty() != options.valid_target.empty()) {
    throw UsageError("distill: expected both --valid-source and --valid-target, or neither");
  }
  if (options.vocab_size != 0 && options.valid_source.empty()) {
    throw UsageError(
        "distill: --vocab-size {} makes a vocabulary that no other data have: expected --valid-source and "
        "--valid-target, too",
        options.vocab_size);
  }
}

Command joined(Command words, Command const& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// Runs a command to its end. Signals go to it, too; it decides what they mean.
ExitCode run_to_end(Command const& command) {
  fmt::print("$ {}\n", fmt::join(command, " "));
  std::fflush(stdout);
  BlockedSignals const signals;
  ChildProcess child(command);
  std::optional<ProcessEnd> end;
  while (!(end = child.ended())) {
    if (auto const signal = signals.wait(std::chrono::seconds(1)); signal && *signal != SIGCHLD) {
      child.send(*signal);
    }
  }
  return static_cast<ExitCode>(end->code);
}

/// The steps of a distillation, each with what it leaves in the directory.
class Distillation {
 public:
  explicit Distillation(DistillOptions const& options)
      : options_(options),
        out_(options.out),
        self_(fs::read_symlink("/proc/self/exe").string()),
        translations_((out_ / "translations.txt").string()),
        data_((out_ / "data").string()) {}

  ExitCode run() {
    fs::create_directories(out_);
    require_same_teacher();
    if (!fs::exists(translations_)) {
      ExitCode const code = run_to_end(joined(options_.launcher, translate()));
      if (code != ExitCode::done) {
        return code;
      }
    }
    if (!fs::exists(fs::path(data_) / "train.h5")) {
      ExitCode const code = run_to_end(prepare());
      if (code != ExitCode::done) {
        return code;
      }
    }
    train();
  }

 private:
  /// Throws UsageError where the directory has another distillation's translations.
  void require_same_teacher() const {
    fs::path const record = out_ / "translate.txt";
    std::string const words = fmt::format("{}\n", fmt::join(translate(), "\n"));
    if (FileText const before = read_file_text(record.string()); before.problem.empty() && before.text != words) {
      throw UsageError(
          "distill: {} has the translations of another teacher, source or beam, which {} tells; expected another --out",
          out_.string(), record.string());
    }
    replace_file(record, words);
  }

  Command translate() const {
    Command words{self_, "translate"};
    for (std::string const& teacher : options_.teachers) {
      words = joined(std::move(words), {"--checkpoint", teacher});
    }
    return joined(std::move(words),
                  {"--input", options_.source, "--output", translations_, "--beam", std::to_string(options_.beam)});
  }

  Command prepare() const {
    Command words{self_, "prepare", "--source", options_.source, "--target", translations_, "--out", data_};
    if (!options_.valid_source.empty()) {
      words =
          joined(std::move(words), {"--valid-source", options_.valid_source, "--valid-target", options_.valid_target});
    }
    return joined(std::move(words), options_.vocab_size > 0
                                        ? Command{"--vocab-size", std::to_string(options_.vocab_size)}
                                        : Command{"--vocab-model", options_.teachers.front()});
  }

  /// Becomes `heddle train` or, with a launcher, `heddle run`.
  [[noreturn]] void train() const {
    Command words = joined({self_, options_.launcher.empty() ? "train" : "run"},
                           arguments_to_resume(options_.student, out_ / "student"));
    words = joined(std::move(words), {"--set", fmt::format("data.train={}/train.h5", data_)});
    if (!options_.valid_source.empty()) {
      words = joined(std::move(words), {"--set", fmt::format("data.valid={}/valid.h5", data_)});
    }
    if (load_config(options_.student.config, options_.student.overrides).run.directory.empty()) {
      words = joined(std::move(words), {"--set", fmt::format("run.directory={}", (out_ / "student").string())});
    }
    if (!options_.launcher.empty()) {
      words = joined(joined(std::move(words), {"--"}), options_.launcher);
    }
    fmt::print("$ {}\n", fmt::join(words, " "));
    std::fflush(stdout);
    std::vector<char*> arguments;
    std::ranges::transform(words, std::back_inserter(arguments), [](std::string& word) { return word.data(); });
    arguments.push_back(nullptr);
    execv(self_.c_str(), arguments.data());
    throw Error("{}: cannot be started: {}", self_, std::strerror(errno));
  }

  DistillOptions const& options_;
  fs::path out_;
  std::string self_;
  std::string translations_;
  std::string data_;
};

}  // namespace

ExitCode run_distill(Arguments const& arguments) {
  auto const separator = std::ranges::find(arguments, "--");
  DistillOptions options;
  parse_options(distill_syntax(options), {arguments.begin(), separator});
  if (separator != arguments.end()) {
    options.launcher.assign(separator + 1, arguments.end());
  }
  require_valid(options);
  static_cast<void>(load_config(options.student.config, options.student.overrides));  // before hours of translation
  return Distillation(options).run();
}

}  // namespace heddle
