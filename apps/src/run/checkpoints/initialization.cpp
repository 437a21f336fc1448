#include "initialization.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/layers/low_rank.hpp>
#include <heddle/core/parameters/update_rules.hpp>
#include <heddle/run.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "checkpoint.hpp"
#include "run/directory/warning.hpp"

namespace heddle {

namespace {

constexpr std::string_view arrow = " ->";

Checkpoint open_source(std::string const& place, Communicator const& world) {
  auto [checkpoints, skipped] = open_checkpoints({.checkpoint = place}, {value_key}, world);
  if (world.rank() == 0) {
    std::ranges::for_each(skipped, report_on_stderr);
  }
  return std::move(checkpoints.front());
}

void require_same_vocabulary(Checkpoint const& checkpoint, Initialization::Setup const& setup) {
  if (checkpoint.contents().source_model != setup.source_model ||
      checkpoint.contents().target_model != setup.target_model) {
    throw DataError(
        "{0}: was trained with another vocabulary than this run's data have, so its parameters stand for other tokens; "
        "prepare the data with the vocabulary of that run: heddle prepare --vocab-model {0}",
        checkpoint.directory().string());
  }
}

/// Throws ConfigError for a pattern that matches none of the names.
void require_matches(std::vector<std::string> const& patterns, std::vector<std::string> const& names,
                     std::string const& place) {
  for (std::string const& pattern : patterns) {
    if (std::ranges::none_of(names, [&](auto const& name) { return matches_pattern(pattern, name); })) {
      throw ConfigError("{} has the pattern \"{}\", which no parameter's name matches; names are {}", place, pattern,
                        shortened(names));
    }
  }
}

/// A rule "THERE -> HERE" of train.initialize_rename.
struct Rename {
  std::string there;  ///< a pattern with one * or none
  std::string here;   ///< with as many; "": the parameters are left there

  /// The name here of a parameter that the pattern matches.
  std::string renamed(std::string const& name) const {
    std::size_t const star = there.find('*');
    if (star == there.npos || here.empty()) {
      return here;
    }
    std::string const rest = name.substr(star, name.size() - there.size() + 1);
    return here.substr(0, here.find('*')) + rest + here.substr(here.find('*') + 1);
  }
};

/// Throws ConfigError, which begins with `place`, for a rule that is not of this form.
Rename parse_rename(std::string const& rule, std::string const& place) {
  std::size_t const at = rule.find(arrow);
  Rename rename{.there = rule.substr(0, at), .here = at == rule.npos ? "" : rule.substr(at + arrow.size())};
  rename.here.erase(0, rename.here.find_first_not_of(' '));
  auto const stars = std::ranges::count(rename.there, '*');
  if (at == rule.npos || rename.there.empty() || stars > 1 ||
      (!rename.here.empty() && std::ranges::count(rename.here, '*') != stars)) {
    throw ConfigError(
        "{} has \"{}\"; expected \"NAME THERE -> NAME HERE\" with one * or none on both sides, such as "
        "\"decoder.* -> encoder.*\", or \"NAME THERE ->\" for parameters to be left there",
        place, rule);
  }
  return rename;
}

/// The names there by names here. The rules are applied in their order: a parameter fills every place that one gives
/// it, up to one that leaves it there, and a place is filled by the first rule that has a parameter for it. A parameter
/// that no rule matches keeps its name, if that place is not filled.
std::map<std::string, std::string> sources_by_place(std::vector<std::string> const& names,
                                                    std::vector<std::string> const& rules, std::string const& place) {
  std::map<std::string, std::string> sources;
  std::vector<std::string> patterns;
  std::set<std::string> matched;
  std::set<std::string> left;
  for (std::string const& text : rules) {
    Rename const rule = parse_rename(text, place);
    patterns.push_back(rule.there);
    for (std::string const& name : names) {
      if (!matches_pattern(rule.there, name) || left.contains(name)) {
        continue;
      }
      matched.insert(name);
      if (rule.here.empty()) {
        left.insert(name);
      } else {
        sources.try_emplace(rule.renamed(name), name);
      }
    }
  }
  require_matches(patterns, names, place);
  for (std::string const& name : names) {
    if (!matched.contains(name)) {
      sources.try_emplace(name, name);
    }
  }
  return sources;
}

}  // namespace

Initialization::Initialization(Setup const& setup, Communicator const& world)
    : checkpoint_(open_source(setup.config.train.initialize_from, world)) {
  require_same_vocabulary(checkpoint_, setup);
  find_sources(setup);
  for (ConfigDifference const& difference : differences(checkpoint_, setup.config, ResumeRule::identity)) {
    if (difference.key.starts_with("model.")) {
      notes_.push_back(fmt::format("note: {} = {}, in the run whose parameters are taken {}", difference.key,
                                   difference.after, difference.before));
    }
  }
}

void Initialization::find_sources(Setup const& setup) {
  TrainConfig const& train = setup.config.train;
  std::vector<std::string> names;
  for (TensorInfo const& tensor : checkpoint_.tensors()) {
    names.push_back(tensor.name);
  }
  auto const there_by_here = sources_by_place(names, train.initialize_rename, train.places.of("initialize_rename"));
  require_matches(train.initialize_missing, setup.model.names(), train.places.of("initialize_missing"));
  std::vector<std::string> problems;
  setup.model.for_each_parameter([&](ParameterDescription const& parameter) {
    auto const found = there_by_here.find(parameter.name);
    std::string problem = parameter.name;
    if (found != there_by_here.end()) {
      auto const& shape = checkpoint_.tensor(found->second).shape;
      if (shape == parameter.placement.global_shape.to_vector()) {
        sources_.insert({parameter.name, found->second});
        // A bias of a mixture changes without a gradient.
        if (!parameter.trained && update_rule(setup.config.optimizer, parameter.name).frozen) {
          base_.names.insert({parameter.name, found->second});
        }
        if (parameter.rounded) {
          base_.rounded.insert(parameter.name);
        }
        std::erase(names, found->second);
        return;
      }
      problem +=
          fmt::format(" ({} there, {} here)", Shape(shape).to_string(), parameter.placement.global_shape.to_string());
    }
    bool const may_be_new =
        is_of_adapter(parameter.name) || std::ranges::any_of(train.initialize_missing, [&](auto const& pattern) {
          return matches_pattern(pattern, parameter.name);
        });
    (may_be_new ? new_ : problems).push_back(may_be_new ? parameter.name : problem);
  });
  if (!problems.empty()) {
    throw ConfigError(
        "{}: {} has no values for {} of this run's {} parameters: {}; name those that are to start new in "
        "train.initialize_missing, or say which are meant in train.initialize_rename",
        train.places.of("initialize_from"), checkpoint_.directory().string(), readable_count(problems.size()),
        readable_count(setup.model.names().size()), shortened(problems));
  }
  left_ = std::move(names);
}

void Initialization::apply(ParameterSet& parameters) const {
  for (Parameter const& parameter : parameters.all()) {
    auto const found = sources_.find(parameter.spec.name);
    if (found != sources_.end()) {
      load_value(checkpoint_, found->second, parameters, parameter);
    }
  }
  parameters.bump_versions();
}

CheckpointBase Initialization::base() const {
  std::filesystem::path const directory = std::filesystem::weakly_canonical(checkpoint_.directory());
  return {directory.string(), checkpoint_.digest(), base_.names, base_.rounded};
}

std::vector<std::string> Initialization::describe() const {
  auto const names_differ = [](auto const& source) { return source.first != source.second; };
  std::vector<std::string> messages{
      fmt::format("parameters from {} (step {}): {} taken, {} of them under another name; {} start new; {} left there",
                  checkpoint_.directory().string(), readable_count(checkpoint_.state().step),
                  readable_count(sources_.size()), readable_count(std::ranges::count_if(sources_, names_differ)),
                  readable_count(new_.size()), readable_count(left_.size()))};
  if (!new_.empty()) {
    messages.push_back("start new: " + shortened(new_));
  }
  if (!left_.empty()) {
    messages.push_back("left there: " + shortened(left_));
  }
  messages.insert(messages.end(), notes_.begin(), notes_.end());
  return messages;
}

}  // namespace heddle
