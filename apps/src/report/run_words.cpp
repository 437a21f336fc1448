#include "run_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/readable.hpp>
#include <heddle/dist/mpi/mpi.hpp>
#include <string_view>

namespace heddle {

namespace {

constexpr std::size_t line_length = 110;

/// Adds to the last line of `text`, or begins another one, indented.
void add_to_line(std::string& text, std::size_t& line_begin, std::string const& piece) {
  if (text.size() - line_begin + piece.size() + 2 > line_length) {
    text += ",\n  ";
    line_begin = text.size() - 2;
  } else {
    text += ", ";
  }
  text += piece;
}

std::string quoted_for_shell(std::string const& argument) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
  if (!argument.empty() && argument.find_first_not_of(plain) == std::string::npos) {
    return argument;
  }
  std::string quoted = "'";
  for (char const letter : argument) {
    quoted += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  }
  return quoted + "'";
}

/// The command that uses a trained model.
std::string use_of(Ending const& ending, ModelDescription const& model) {
  std::string checkpoint = quoted_for_shell(ending.directory.string());
  for (std::string const& plugin : ending.plugins) {
    checkpoint += " --plugin " + quoted_for_shell(plugin);
  }
  if (!no_translation_reason(model)) {
    return fmt::format("heddle translate --checkpoint {} < TEXT", checkpoint);
  }
  return model.no_generation_reason() ? fmt::format("heddle evaluate --checkpoint {} --text TEXT", checkpoint)
                                      : fmt::format("heddle generate --checkpoint {} < TEXT", checkpoint);
}

/// The best loss and BLEU, on a line of their own; "" where nothing was validated.
std::string best_line(Ending const& ending) {
  std::string text;
  if (ending.best_step > 0) {
    text = fmt::format("\nbest: validation loss {:.4f} at step {}", ending.best_valid_loss,
                       readable_count(ending.best_step));
  }
  if (ending.best_bleu) {
    text += fmt::format("{}best BLEU {:.2f} at step {}", text.empty() ? "\n" : "; ", ending.best_bleu->bleu,
                        readable_count(ending.best_bleu->step));
  }
  return text;
}

std::string speed_line(RunFacts const& facts) {
  std::string text = fmt::format("speed: {} tokens/s", readable_count(facts.training->tokens_per_second()));
  if (auto const utilisation = facts.model_utilisation()) {
    text += fmt::format(", {:.1f} % of the peak", 100 * *utilisation);
  }
  if (facts.hosts.size() > 1) {
    text += fmt::format(", parallel efficiency {:.0f} %", 100 * facts.efficiency->parallel);
  }
  return text + "; report.json and log.txt have more\n";
}

/// The remedy where the same command would find nothing to do.
std::string to_go_further(Ending const& ending) {
  return ending.step >= ending.steps ? "raise train.steps" : "raise train.early_stopping";
}

}  // namespace

std::string describe_changes(Config const& config) {
  std::string text;
  std::string section;
  std::size_t line_begin = 0;
  for (ConfigDifference const& difference : differences(Config(), config)) {
    std::size_t const dot = difference.key.find('.');
    std::string const piece = fmt::format("{} = {}", difference.key.substr(dot + 1), difference.after);
    if (difference.key.substr(0, dot) == section) {
      add_to_line(text, line_begin, piece);
      continue;
    }
    section = difference.key.substr(0, dot);
    text += text.empty() ? "" : "\n";
    line_begin = text.size();
    text += fmt::format("[{}] {}", section, piece);
  }
  return text.empty() ? text : text + "\n";
}

std::string command_line(std::string const& command, std::vector<std::string> const& arguments, int ranks) {
  std::string const launcher = launcher_command(ranks);
  std::string text = fmt::format("{}{}heddle {}", launcher, launcher.empty() ? "" : " ", command);
  for (std::string const& argument : arguments) {
    text += " " + quoted_for_shell(argument);
  }
  return text;
}

std::string left_out_warning(std::string const& key, SampleTotals const& totals, std::int64_t max_length) {
  constexpr double missed = 0.01;
  if (!(totals.share_left_out() >= missed)) {
    return "";
  }
  return fmt::format(
      "{}: {:.3g} % are left out, {} of {}: longer than model.max_length = {}; set model.max_length higher to use them",
      key, 100 * totals.share_left_out(), readable_count(totals.left_out),
      readable_count(totals.left_out + totals.usable), max_length);
}

std::string verdict(Ending const& ending, ModelDescription const& model, RunFacts const* facts) {
  bool const more = ending.how.starts_with("stopped by");
  std::string text = fmt::format("{}{} step {} of {}, {} tokens, {} of training\n", ending.how, more ? " after" : ":",
                                 readable_count(ending.step), readable_count(ending.steps),
                                 readable_count(ending.tokens), readable_duration(ending.seconds));
  text += facts == nullptr ? "" : speed_line(*facts);
  text += fmt::format("checkpoint: {}\n", ending.checkpoint.string());
  text += more ? fmt::format("to go on: {}", ending.command)
               : fmt::format("to use it: {}; to train longer: {}", use_of(ending, model), to_go_further(ending));
  return text + best_line(ending);
}

std::string already_finished(Ending const& ending, ModelDescription const& model) {
  std::string const why = ending.step >= ending.steps
                              ? fmt::format("already at step {}", readable_count(ending.step))
                              : fmt::format("already stopped early, at step {} of {}", readable_count(ending.step),
                                            readable_count(ending.steps));
  return fmt::format("{}; {} to train longer\ncheckpoint: {}\nto use it: {}{}", why, to_go_further(ending),
                     ending.checkpoint.string(), use_of(ending, model), best_line(ending));
}

}  // namespace heddle
