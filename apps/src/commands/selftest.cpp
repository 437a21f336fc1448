#include <fmt/format.h>
#include <stdlib.h>

#include <boost/json.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <iostream>

#include "command_line/options.hpp"
#include "commands/commands.hpp"
#include "run/processes/child_process.hpp"

namespace heddle {
namespace {

namespace fs = std::filesystem;

/// A command of the test, without the program's name, and what must hold after it: "" or what is wrong.
struct SelfTestStep {
  std::string title;
  std::vector<std::string> command;
  std::function<std::string()> problem = [] { return std::string(); };
};

std::vector<std::string> lines_of(fs::path const& file) {
  std::ifstream stream(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

/// The step and the loss of the newest line of metrics.jsonl must be what a model that learns has.
std::string learning_problem(fs::path const& run, std::int64_t step, double max_loss) {
  std::vector<std::string> const lines = lines_of(run / "metrics.jsonl");
  if (lines.empty()) {
    return "metrics.jsonl has no line";
  }
  boost::json::value const last = boost::json::parse(lines.back());
  double const loss = last.at("train_loss").to_number<double>();
  if (last.at("step").to_number<std::int64_t>() != step) {
    return fmt::format("training ended at step {}, not {}", last.at("step").to_number<std::int64_t>(), step);
  }
  return loss < max_loss ? "" : fmt::format("the loss is {:.3f}, not below {}", loss, max_loss);
}

/// A model so small that it learns something in a second.
std::string configuration(fs::path const& directory) {
  return fmt::format(R"([run]
directory = "{0}/run"

[data]
train = "{0}/data/train.h5"
valid = "{0}/data/valid.h5"

[model]
encoder_layers = 1
decoder_layers = 1
d_model = 64
d_ff = 128
heads = 4
dropout = 0.0
max_length = 64

[train]
steps = 80
batch_tokens = 1024
micro_batch_tokens = 1024

[optimizer]
learning_rate = 0.004
warmup_steps = 20

[checkpoint]
every_steps = 20
)",
                     directory.string());
}

std::vector<SelfTestStep> steps_in(fs::path const& directory) {
  fs::path const data = directory / "data";
  fs::path const run = directory / "run";
  fs::path const translation = directory / "translation";
  std::string const config = (directory / "run.toml").string();
  auto const text = [&](char const* name) { return (data / name).string(); };
  return {{"write a small task", {"demo-data", "--train", "4000", "--test", "20", "--out", data.string()}},
          {"make a vocabulary and datasets",
           {"prepare", "--source", text("train.en"), "--target", text("train.de"), "--valid-source", text("valid.en"),
            "--valid-target", text("valid.de"), "--vocab-size", "256", "--out", data.string()}},
          {"train", {"train", config, "--set", "train.steps=40"}, [run] { return learning_problem(run, 40, 4.5); }},
          {"resume from the checkpoint", {"train", config}, [run] { return learning_problem(run, 80, 3.0); }},
          {"verify the checkpoints", {"checkpoint", "verify", run.string()}},
          {"translate",
           {"translate", "--checkpoint", run.string(), "--threads", "1", "--beam", "2", "--input", text("test.en"),
            "--output", translation.string()},
           [translation] {
             std::size_t const lines = lines_of(translation).size();
             return lines == 20 ? std::string() : fmt::format("20 lines have {} translations", lines);
           }}};
}

/// A new directory, which nobody else can have made.
fs::path temporary_directory() {
  std::error_code failure;
  fs::path const place = fs::temp_directory_path(failure);
  std::string name = (place / "heddle-selftest-XXXXXX").string();
  if (failure) {
    char const* const given = std::getenv("TMPDIR");
    throw Error("TMPDIR={}: {}; set it to a directory", given == nullptr ? "" : given, failure.message());
  }
  if (::mkdtemp(name.data()) == nullptr) {
    throw Error("{} cannot be made: {}; set TMPDIR to another place", name, std::strerror(errno));
  }
  return name;
}

/// Runs the command without its output. Returns what is wrong, or "".
std::string run_step(std::string const& program, SelfTestStep const& step) {
  std::vector<std::string> command{program};
  command.insert(command.end(), step.command.begin(), step.command.end());
  BlockedSignals const signals;  // first, so that the end of the process is one of them
  ChildProcess child(command, ChildProcess::Output::discarded);
  std::optional<ProcessEnd> end;
  while (!(end = child.ended())) {
    std::optional<int> const signal = signals.wait(std::chrono::milliseconds(100));
    if (signal && *signal != SIGCHLD) {
      return "interrupted";
    }
  }
  return end->code == 0 ? step.problem() : fmt::format("ended with code {}: {}", end->code, fmt::join(command, " "));
}

}  // namespace

ExitCode run_selftest(Arguments const& arguments) {
  CommandSyntax syntax;
  syntax.name = "selftest";
  syntax.usage = "";
  syntax.summary =
      R"(Tries an installation in less than half a minute, without network or other programs: makes data, trains a tiny
model, resumes it, verifies its checkpoints and translates, in a temporary directory.

Exit codes: 0 everything works; 1 something does not, and the directory stays.)";
  parse_options(syntax, arguments);
  std::string const program = fs::read_symlink("/proc/self/exe").string();
  fs::path const directory = temporary_directory();
  replace_file(directory / "run.toml", configuration(directory));
  for (SelfTestStep const& step : steps_in(directory)) {
    auto const start = std::chrono::steady_clock::now();
    std::string const problem = run_step(program, step);
    std::chrono::duration<double> const seconds = std::chrono::steady_clock::now() - start;
    std::cout << fmt::format("{:<32} {}\n", step.title,
                             problem.empty() ? fmt::format("ok, {:.1f} s", seconds.count()) : "FAILED: " + problem)
              << std::flush;
    if (!problem.empty()) {
      std::cout << "what it made is in " << directory.string() << '\n';
      return ExitCode::failure;
    }
  }
  fs::remove_all(directory);
  std::cout << "everything works\n";
  return ExitCode::done;
}

}  // namespace heddle
