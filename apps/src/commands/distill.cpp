#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/algorithm/string/replace.hpp>
#include <boost/json.hpp>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/core/config/config.hpp>
#include <heddle/core/tensor/runtime.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/run.hpp>
#include <span>

#include "command_line/train_options.hpp"
#include "commands.hpp"
#include "run/checkpoints/provenance.hpp"
#include "run/configuration/config_check.hpp"
#include "run/configuration/registration.hpp"
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
  syntax.usage = "RUN.toml --teacher RUN --source TEXT --out DIRECTORY [options] [-- LAUNCHER [ARGUMENT]...]";
  syntax.summary = R"(Sequence-level distillation (Kim & Rush 2016): translates TEXT with the teacher, prepares the
sources with their translations as data, and trains the student of RUN.toml on them. With a LAUNCHER, such as
mpirun -np 8, it starts the translation, and the training as `heddle run` does. Repeated after an interruption, it
continues where it was.)";
  add_config_options(syntax, options.student, true);
  syntax.options.add_options()  //
      ("teacher", po::value(&options.teachers)->value_name("RUN"),
       "a run or a checkpoint that translates; repeat it for an ensemble")  //
      ("source", without_default(options.source, "TEXT"),
       "sentences of the source's language, with or without known translations")  //
      ("out", without_default(options.out, "DIRECTORY"),
       "a directory for translations, data and, whatever RUN.toml says, the student's run")  //
      ("beam", with_default(options.beam, "N"), "hypotheses of the teacher's beam search")   //
      ("vocab-size", with_default(options.vocab_size, "N"),
       "learn a vocabulary of N pieces for the student; 0: use the teacher's")  //
      ("valid-source", without_default(options.valid_source, "TEXT"),
       "sources of a validation set for the student, in place of its data.valid")  //
      ("valid-target", without_default(options.valid_target, "TEXT"), "their references");
  return syntax;
}

void require_valid(DistillOptions const& options) {
  if (options.teachers.empty() || options.source.empty() || options.out.empty()) {
    throw UsageError("distill: expected --teacher RUN, --source TEXT and --out DIRECTORY");
  }
  if (options.vocab_size < 0 || options.beam < 1) {
    throw UsageError("distill: --vocab-size {} and --beam {}: expected at least 0 and 1", options.vocab_size,
                     options.beam);
  }
  if (!fs::exists(options.source)) {
    throw UsageError("distill: --source {}: does not exist", options.source);
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

/// Prints a command as a shell takes it.
void show(Command const& command) {
  fmt::print("$");
  for (std::string const& word : command) {
    bool const plain = word.find_first_of(" \t\"'\\$&;()<>|*?[]#~`") == word.npos && !word.empty();
    fmt::print(" {}", plain ? word : "'" + boost::replace_all_copy(word, "'", "'\\''") + "'");
  }
  fmt::print("\n");
  std::fflush(stdout);
}

/// Runs a command to its end. Signals go to it, too; it decides what they mean.
ExitCode run_to_end(Command const& command) {
  show(command);
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
  /// Opens the teachers and checks the student's configuration, before hours of translation. Throws as that does.
  explicit Distillation(DistillOptions const& options)
      : options_(options),
        out_(options.out),
        self_(fs::read_symlink("/proc/self/exe").string()),
        source_(fs::absolute(options.source).lexically_normal().string()),
        digest_(fs::is_regular_file(source_) ? digest_of_file(source_) : ""),
        translations_((out_ / "translations.txt").string()),
        data_((out_ / "data").string()) {
    for (std::string const& teacher : options.teachers) {
      Checkpoint const checkpoint = std::move(
          open_checkpoints({.checkpoint = teacher}, {value_key}, Communicator::self(), Verification::at_reading)
              .checkpoints.front());
      teachers_.push_back(fs::weakly_canonical(checkpoint.directory()).string());
    }
    for (auto const& [key, value] : settings()) {
      student_.overrides.push_back(fmt::format("{}={}", key, boost::json::serialize(boost::json::string(value))));
    }
    check_student();
  }

  ExitCode run() {
    if (fs::exists(out_) && (!fs::is_directory(out_) || fs::exists(out_ / "checkpoints"))) {
      throw UsageError("distill: --out {}: is {}; expected a directory of this distillation alone", out_.string(),
                       fs::is_directory(out_) ? "a run" : "a file");
    }
    fs::create_directories(out_);
    ExitCode code = make("translate", options_.launcher, translate());
    if (code == ExitCode::done) {
      code = make("prepare", {}, prepare());
    }
    return code == ExitCode::done ? train() : code;
  }

 private:
  /// The keys of the student that its files and the step before it decide.
  std::vector<std::pair<std::string, std::string>> settings() const {
    std::vector<std::pair<std::string, std::string>> settings{{"data.train", data_ + "/train.h5"}};
    if (!options_.valid_source.empty()) {
      settings.emplace_back("data.valid", data_ + "/valid.h5");
    }
    auto const named = [](std::string const& change) { return change.starts_with("run.directory"); };
    if (std::ranges::none_of(options_.student.overrides, named)) {
      settings.emplace_back("run.directory", (out_ / "student").string());
    }
    return settings;
  }

  void check_student() {
    student_.config = options_.student.config;
    student_.plugins = options_.student.plugins;
    student_.overrides.insert(student_.overrides.begin(), options_.student.overrides.begin(),
                              options_.student.overrides.end());
    Config const config = read_config(student_);
    require_supported(config);
    Runtime runtime;
    Registries registries;
    register_everything({.plugins = read_plugins(config.plugins)}, registries, runtime.execution());
    check_config(config, registries);
  }

  /// Runs a step under the launcher unless it is done. Throws UsageError where it was done with something else.
  ExitCode make(std::string const& step, Command const& launcher, Command const& words) const {
    fs::path const record = out_ / (step + ".txt");
    // Neither the program's place nor the directory's decides what is made.
    std::string facts = fmt::format("{}\n", fmt::join(std::span(words).subspan(1), "\n"));
    boost::replace_all(facts, "\n" + out_.string() + "/", "\nOUT/");
    facts += fmt::format("source {}\n", digest_);
    if (auto const before = read_regular(record)) {
      if (*before != facts) {
        throw UsageError(
            "distill: {} was made by other options, another teacher or another source, which {} tells; "
            "expected another --out",
            out_.string(), record.string());
      }
      return ExitCode::done;
    }
    ExitCode const code = run_to_end(joined(launcher, words));
    if (code == ExitCode::done) {
      replace_file(record, facts);
    }
    return code;
  }

  Command translate() const {
    Command words{self_, "translate"};
    for (std::string const& teacher : teachers_) {
      words = joined(std::move(words), {"--checkpoint", teacher});
    }
    for (std::string const& plugin : options_.student.plugins) {
      words = joined(std::move(words), {"--plugin", plugin});
    }
    return joined(std::move(words),
                  {"--input", source_, "--output", translations_, "--beam", std::to_string(options_.beam)});
  }

  Command prepare() const {
    Command words{self_, "prepare", "--source", source_, "--target", translations_, "--out", data_, "--overwrite"};
    if (!options_.valid_source.empty()) {
      words =
          joined(std::move(words), {"--valid-source", options_.valid_source, "--valid-target", options_.valid_target});
    }
    return joined(std::move(words), options_.vocab_size > 0
                                        ? Command{"--vocab-size", std::to_string(options_.vocab_size)}
                                        : Command{"--vocab-model", teachers_.front()});
  }

  /// Becomes `heddle train` or, with a launcher, `heddle run`.
  [[noreturn]] ExitCode train() const {
    Command words = joined({self_, options_.launcher.empty() ? "train" : "run"}, arguments_to_resume(student_, out_));
    if (!options_.launcher.empty()) {
      words = joined(joined(std::move(words), {"--"}), options_.launcher);
    }
    show(words);
    std::vector<char*> arguments;
    std::ranges::transform(words, std::back_inserter(arguments), [](std::string& word) { return word.data(); });
    arguments.push_back(nullptr);
    execv(self_.c_str(), arguments.data());
    throw Error("{}: cannot be started: {}", self_, std::strerror(errno));
  }

  DistillOptions const& options_;
  fs::path out_;
  std::string self_;
  std::string source_;
  std::string digest_;  ///< of the source's bytes, if it is a file
  std::string translations_;
  std::string data_;
  std::vector<std::string> teachers_;  ///< the checkpoints that were chosen
  TrainOptions student_;
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
  return Distillation(options).run();
}

}  // namespace heddle
