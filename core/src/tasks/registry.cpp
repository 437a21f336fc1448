#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/base/random.hpp>
#include <heddle/core/base/spelling.hpp>
#include <heddle/core/tasks/task.hpp>

namespace heddle {

// Each in its own file.
std::shared_ptr<Task const> make_translation();
std::shared_ptr<Task const> make_language_model();
std::shared_ptr<Task const> make_masked_language_model();
std::shared_ptr<Task const> make_denoising();

namespace {

/// The task of a configuration that names none.
std::string task_of_stacks(ModelConfig const& model) {
  if (model.is_encoder_decoder()) {
    return "translation";
  }
  return model.is_decoder_only() ? "language_model" : "masked_language_model";
}

}  // namespace

std::uint64_t TextTaskSpec::random_key(std::string_view use) const {
  return heddle::random_key(seed.value_or(0), std::string(use) + (seed ? "" : ".measuring"));
}

void TaskRegistry::add(std::string name, std::shared_ptr<Task const> task) {
  if (name.empty() || !task) {
    throw ConfigError("{} registers the task '{}' without a {}", origin_, name, name.empty() ? "name" : "task");
  }
  for (Entry const& entry : entries_) {
    if (entry.name == name) {
      throw ConfigError("the task name '{}' is taken by {}; each task needs its own name", name, entry.origin);
    }
  }
  entries_.push_back({std::move(name), origin_, std::move(task)});
}

Task const& TaskRegistry::of(Config const& config) const {
  std::string const name = config.train.task.empty() ? task_of_stacks(config.model) : config.train.task;
  std::vector<std::string> names;
  for (Entry const& entry : entries_) {
    if (entry.name == name) {
      if (std::string const reason = entry.task->unsupported_reason(config.model); !reason.empty()) {
        throw ConfigError("{} {}; {} = {}", place_of_task(config), reason, config.model.place("stacks"),
                          to_toml(OptionValue(config.model.stacks)));
      }
      return *entry.task;
    }
    names.push_back(entry.name);
  }
  throw ConfigError("{} is not a task; {}", place_of_task(config),
                    nearest_or_all(name, names, "a task of a plug-in in plugins.paths"));
}

std::string place_of_task(Config const& config) {
  if (config.train.task.empty()) {
    return fmt::format("{} = {}", config.model.place("stacks"), to_toml(OptionValue(config.model.stacks)));
  }
  return fmt::format("{} = \"{}\"", config.train.places.of("task"), config.train.task);
}

void register_tasks(TaskRegistry& registry) {
  registry.add("translation", make_translation());
  registry.add("language_model", make_language_model());
  registry.add("masked_language_model", make_masked_language_model());
  registry.add("denoising", make_denoising());
}

}  // namespace heddle
