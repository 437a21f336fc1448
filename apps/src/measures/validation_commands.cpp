#include "measures/validation_commands.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <heddle/core/base/parse_number.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <iterator>
#include <limits>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

namespace heddle {

namespace {

constexpr char const* source_name = "source.txt";
constexpr char const* reference_name = "reference.txt";
constexpr char const* hypothesis_name = "hypothesis.txt";
constexpr char const* output_name = "output.txt";
constexpr char const* errors_name = "errors.txt";
constexpr std::int64_t max_output = 1 << 16;
constexpr std::ptrdiff_t max_waiting = 4;  ///< validations of a measure

std::string joined_lines(std::vector<std::string> const& lines) {
  std::string text;
  for (std::string const& line : lines) {
    text += line + "\n";
  }
  return text;
}

/// The end of what a program has printed; nothing where it cannot be read.
std::vector<std::string> printed_lines(std::filesystem::path const& path) {
  std::vector<std::string> lines;
  try {
    std::istringstream text(read_regular(path, max_output).value_or(""));
    for (std::string line; std::getline(text, line);) {
      if (line.find_first_not_of(" \t\r") != std::string::npos) {
        lines.push_back(line);
      }
    }
  } catch (std::exception const&) {  // the program may have made anything of it
  }
  return lines;
}

std::optional<double> number_in(std::string_view text) {
  std::size_t const begin = std::min(text.find_first_not_of(" \t\r"), text.size());
  text = text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
  auto const value = parse_number<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

/// The options of env(1) that hide from a program that this process is a rank of an MPI job.
std::vector<std::string> without_ranks() {
  std::vector<std::string> options;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string_view const text(*entry);
    for (std::string_view const prefix : {"OMPI_COMM_", "PMIX_", "PMI_", "MPI_LOCAL"}) {
      if (text.starts_with(prefix)) {
        options.insert(options.end(), {"-u", std::string(text.substr(0, text.find('=')))});
      }
    }
  }
  return options;
}

}  // namespace

void ValidationCommands::add(std::int64_t step, std::vector<CommandInput> inputs) {
  for (CommandInput const& input : inputs) {
    auto const same = [&](Job const& job) { return job.input.measure.key() == input.measure.key(); };
    if (std::ranges::count_if(waiting_, same) == max_waiting) {
      auto const oldest = std::ranges::find_if(waiting_, same);
      finished_.push_back({oldest->step,
                           {input.measure, std::numeric_limits<double>::quiet_NaN()},
                           fmt::format("the validation command {} is slower than validations: it was not run",
                                       input.measure.short_name())});
      waiting_.erase(oldest);
    }
  }
  std::ranges::transform(inputs, std::back_inserter(waiting_), [step](CommandInput& input) {
    return Job{step, std::move(input)};
  });
  start_next();
}

std::vector<CommandResult> ValidationCommands::finished() {
  if (running_) {
    auto const end = running_->process.ended();
    if (end || Clock::now() >= running_->deadline) {
      finished_.push_back(result_of(running_->job, end));
      end_running();
    }
  }
  start_next();
  return std::exchange(finished_, {});
}

void ValidationCommands::cancel() {
  waiting_.clear();
  end_running();
}

void ValidationCommands::end_running() {
  if (running_) {
    running_.reset();  // which ends the program and what it has started
    remove_files();
  }
}

void ValidationCommands::remove_files() const {
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
  std::filesystem::remove(directory_.parent_path(), ignored);  // unless others are there
}

void ValidationCommands::start_next() {
  while (!running_ && !waiting_.empty()) {
    Job job = std::move(waiting_.front());
    waiting_.pop_front();
    Measure const measure = job.input.measure;
    std::int64_t const step = job.step;
    try {
      std::filesystem::remove_all(directory_);  // what an earlier start has left
      make_directory(directory_);
      SetTranslations const& text = *job.input.text;
      for (auto const& [name, lines] : {std::pair{source_name, &text.sources},
                                        {reference_name, &text.references},
                                        {hypothesis_name, &text.hypotheses}}) {
        *open_output(directory_ / name, OutputMode::create_new) << joined_lines(*lines);
      }
      auto const time = std::chrono::duration<double>(std::min(train_.validate_command_seconds, 1e8));
      running_.emplace(std::move(job), command_for(measure.metric),
                       Clock::now() + std::chrono::duration_cast<Clock::duration>(time));
    } catch (std::exception const& problem) {
      finished_.push_back(
          {step,
           {measure, std::numeric_limits<double>::quiet_NaN()},
           fmt::format("the validation command {} was not started: {}", measure.short_name(), problem.what())});
      remove_files();
    }
  }
}

ChildProcess::Command ValidationCommands::command_for(std::string const& name) const {
  std::string text = train_.validate_command.at(name);
  constexpr std::array<std::string_view, 7> files{"$1", "$2", "$3", "${1", "${2", "${3", "$@"};
  if (std::ranges::none_of(files, [&](std::string_view file) { return text.find(file) != std::string::npos; })) {
    text += R"( "$@")";
  }
  ChildProcess::Command command{"env"};
  std::ranges::move(without_ranks(), std::back_inserter(command));
  // One shell redirects, so that also the other one's messages about the text are kept.
  command.insert(command.end(), {"sh", "-c", R"(o=$1 e=$2; shift 2; exec sh -c "$@" > "$o" 2> "$e")", "sh",
                                 directory_ / output_name, directory_ / errors_name, text, name,
                                 directory_ / source_name, directory_ / reference_name, directory_ / hypothesis_name});
  return command;
}

CommandResult ValidationCommands::result_of(Job const& job, std::optional<ProcessEnd> const& end) const {
  std::vector<std::string> lines = printed_lines(directory_ / output_name);
  auto const value = end && end->code == 0 && lines.size() == 1 ? number_in(lines.front()) : std::nullopt;
  CommandResult result{job.step, {job.input.measure, value.value_or(std::numeric_limits<double>::quiet_NaN())}};
  if (value) {
    return result;
  }
  std::string const what = !end ? fmt::format("did not end in {}", readable_duration(train_.validate_command_seconds))
                           : end->signal != 0 ? fmt::format("was ended by signal {}", end->signal)
                           : end->code != 0   ? fmt::format("ended with {}", end->code)
                                              : "printed something else than one line with a number";
  constexpr std::size_t shown = 5;
  std::ranges::move(printed_lines(directory_ / errors_name), std::back_inserter(lines));
  result.problem = fmt::format("the validation command {} {}; ", job.input.measure.short_name(), what);
  result.problem += lines.empty() ? "it printed nothing" : "its last lines:";
  for (std::size_t line = lines.size() - std::min(shown, lines.size()); line < lines.size(); ++line) {
    result.problem += "\n  " + lines[line];
  }
  return result;
}

}  // namespace heddle
