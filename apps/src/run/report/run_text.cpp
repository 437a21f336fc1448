#include "run_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/dist/mpi/mpi.hpp>
#include <iterator>
#include <string_view>
#include <utility>

#include "run/directory/json_text.hpp"

namespace heddle {

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

namespace {

/// The command that uses a trained model.
std::string use_of(Ending const& ending, ModelDescription const& model) {
  std::string checkpoint = quoted_for_shell(ending.directory.string());
  for (std::string const& plugin : ending.plugins) {
    checkpoint += " --plugin " + quoted_for_shell(plugin);
  }
  if (!no_translation_reason(model) && !ending.from_text) {
    return fmt::format("heddle translate --checkpoint {} < TEXT", checkpoint);
  }
  return model.no_generation_reason() || model.keys.is_encoder_decoder()
             ? fmt::format("heddle evaluate --checkpoint {} --text TEXT", checkpoint)
             : fmt::format("heddle generate --checkpoint {} < TEXT", checkpoint);
}

/// The best values of validations, first that which decides, a line for each set; "" where nothing was validated.
std::string best_lines(Ending const& ending) {
  std::string text;
  std::string set;
  if (ending.best_step > 0) {
    text = fmt::format("\nbest: {} {} at step {}", ending.best_measure.name(),
                       ending.best_measure.number(ending.best_value), readable_count(ending.best_step));
  }
  for (auto const& [measure, value, step] : ending.best_values) {
    if (step > 0 && measure.key() != ending.best_measure.key()) {
      text += fmt::format("{}best {} {} at step {}", text.empty() || set != measure.set ? "\n" : "; ", measure.name(),
                          measure.number(value), readable_count(step));
      set = measure.set;
    }
  }
  return text;
}

/// A share as "71.3 %", or `unknown` where the report does not know it.
std::string percent(boost::json::object const& efficiency, char const* key, int digits = 1,
                    char const* unknown = "unknown") {
  double const share = number_of(efficiency, key);
  return share > 0 ? fmt::format("{:.{}f} %", 100 * share, digits) : unknown;
}

std::size_t rank_count(boost::json::object const& report) {
  return report.at("ranks").as_array().size();
}

std::string speed_line(boost::json::object const& report) {
  boost::json::object const& efficiency = object_of(report, "efficiency");
  std::string text =
      fmt::format("speed: {} tokens/s", readable_count(number_of(object_of(report, "training"), "tokens_per_second")));
  if (number_of(efficiency, "model_utilisation") > 0) {
    text += fmt::format(", {} of the peak", percent(efficiency, "model_utilisation"));
  }
  if (rank_count(report) > 1) {
    text += fmt::format(", parallel efficiency {}", percent(efficiency, "parallel", 0));
  }
  double const node_hours = number_of(object_of(report, "training"), "node_hours");
  return text + fmt::format("; {:.2g} node-hours; more: report.json, log.txt\n", node_hours);
}

/// The change after which the same command trains on.
std::string to_go_further(Ending const& ending) {
  return ending.step >= ending.steps             ? "raise train.steps"
         : ending.data_ended && ending.of_stream ? "send the same lines again, and more"
         : ending.data_ended                     ? "raise train.epochs, or the end of the last data.stage"
                                                 : "raise train.early_stopping";
}

}  // namespace

std::string describe_changes(Config const& config) {
  std::string text;
  std::string section;
  Config defaults;
  std::ranges::copy_if(config.optimizer.options,
                       std::inserter(defaults.optimizer.options, defaults.optimizer.options.end()),
                       [](auto const& option) { return option.second.origin == default_option; });
  for (ConfigDifference const& difference : differences(defaults, config)) {
    std::size_t const dot = difference.key.find('.');
    std::string const key = difference.key.substr(dot + 1);
    bool const same_section = difference.key.substr(0, dot) == std::exchange(section, difference.key.substr(0, dot));
    text += same_section ? ", " : fmt::format("{}[{}] ", text.empty() ? "" : "\n", section);
    text += fmt::format("{} = {}", key, difference.after);
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
      "{}: {}{:.3g} % are left out, {} of {}: longer than model.max_length = {}; set model.max_length higher to use "
      "them",
      key, totals.estimated ? "about " : "", 100 * totals.share_left_out(), readable_count(totals.left_out),
      readable_count(totals.left_out + totals.usable), max_length);
}

std::vector<std::string> warnings_about(Mixture const& mixture, std::int64_t max_length) {
  std::vector<std::string> warnings = mixture.warnings();
  for (Corpus const& corpus : mixture.corpora()) {
    std::string const warning =
        left_out_warning(corpus_key(corpus.name), corpus.samples->totals(0, max_length), max_length);
    if (!warning.empty()) {
      warnings.push_back(warning);
    }
  }
  return warnings;
}

boost::json::object energy_object(double joules, double tokens, std::string_view source, std::string_view reason) {
  boost::json::object energy{
      {"joules", nullptr}, {"joules_per_million_tokens", nullptr}, {"source", nullptr}, {"reason", nullptr}};
  if (!reason.empty()) {
    energy["reason"] = reason;
    return energy;
  }
  energy["joules"] = joules;
  energy["source"] = source;
  if (tokens > 0) {
    energy["joules_per_million_tokens"] = 1e6 * joules / tokens;
  }
  return energy;
}

std::string describe_energy(boost::json::object const& report) {
  boost::json::object const& energy = object_of(report, "energy");
  double const joules = number_of(energy, "joules");
  if (!(joules > 0)) {
    std::string_view const reason = text_of(energy, "reason");
    return fmt::format("unknown ({})", reason.empty() ? "this start has not ended" : reason);
  }
  double const rate = number_of(energy, "joules_per_million_tokens");
  return fmt::format("{} J{} ({})", readable_count(joules),
                     rate > 0 ? fmt::format(", {} J per million tokens", readable_decimal(rate, 1)) : "",
                     text_of(energy, "source"));
}

std::string describe_speed(boost::json::object const& report) {
  boost::json::object const& efficiency = object_of(report, "efficiency");
  std::string text =
      fmt::format("speed: {} tokens/s; matrix products of the model: {} GFLOP/s, {} of the peak\n",
                  readable_count(number_of(object_of(report, "training"), "tokens_per_second")),
                  readable_decimal(1e-9 * number_of(efficiency, "model_operations_per_second"), 1),
                  percent(efficiency, "model_utilisation", 1, "an unknown share (measured after a minute)"));
  if (rank_count(report) > 1) {
    boost::json::object const& slowest = object_of(efficiency, "slowest");
    text += fmt::format(
        "parallel efficiency: {} = load balance {} x communication {}; computation scaling: {}\n"
        "slowest: rank {} on {}; the other ranks waited {:.1f} s more than it, on average\n",
        percent(efficiency, "parallel"), percent(efficiency, "load_balance"), percent(efficiency, "communication"),
        percent(efficiency, "computation_scaling", 1, "unknown (no start with fewer ranks)"),
        number_of(slowest, "rank"), text_of(slowest, "host"), number_of(slowest, "seconds"));
  }
  return text + fmt::format("energy: {}\n", describe_energy(report));
}

std::string describe_end(Ending const& ending, ModelDescription const& model, boost::json::object const* report) {
  bool const more = ending.state.starts_with("stopped by");
  std::string text = fmt::format("{}{} step {} of {}, {} tokens, {} of training\n", ending.state, more ? " after" : ":",
                                 readable_count(ending.step), readable_count(ending.steps),
                                 readable_count(ending.tokens), readable_duration(ending.seconds));
  text += report == nullptr ? "" : speed_line(*report);
  text += fmt::format("checkpoint: {}\n", ending.checkpoint.string());
  std::string const resuming =
      ending.command.empty()
          ? "the job resumes from there when it is queued again, which its script does unless it was cancelled"
          : "to resume: " + ending.command;
  text +=
      more ? resuming : fmt::format("to use it: {}; to train longer: {}", use_of(ending, model), to_go_further(ending));
  return text + best_lines(ending);
}

std::string describe_finished(Ending const& ending, ModelDescription const& model) {
  std::string const why =
      ending.step >= ending.steps
          ? fmt::format("already at step {}", readable_count(ending.step))
          : fmt::format("already {}, at step {} of {}", ending.data_ended ? "at the end of the data" : "stopped early",
                        readable_count(ending.step), readable_count(ending.steps));
  return fmt::format("{}; {} to train longer\ncheckpoint: {}\nto use it: {}{}", why, to_go_further(ending),
                     ending.checkpoint.string(), use_of(ending, model), best_lines(ending));
}

}  // namespace heddle
