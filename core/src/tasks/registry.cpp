#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/base/random.hpp>
#include <heddle/core/base/spelling.hpp>
#include <heddle/core/tasks/task.hpp>

namespace heddle {

// The other tasks, each in its own file.
std::shared_ptr<Task const> make_language_model();
std::shared_ptr<Task const> make_masked_language_model();
std::shared_ptr<Task const> make_denoising();

namespace {

class Translation final : public Task {
 public:
  std::string meaning() const override { return "predicts the targets of pairs from their sources"; }
  std::string unsupported_reason(ModelConfig const& model) const override {
    return model.is_encoder_decoder() ? "" : "needs an encoder and a decoder";
  }
  SampleFields fields() const override { return {SampleField::weights}; }
  std::optional<PairForm> pairs(bool /*prefixes*/) const override { return PairForm::pairs; }
  bool translates() const override { return true; }
};

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
  std::string_view const lack = name.empty() ? "name" : !task ? "task" : "";
  insert("task", lack, {{std::move(name)}, std::move(task)});
}

Task const& TaskRegistry::of(Config const& config) const {
  std::string const name = config.train.task.empty() ? task_of_stacks(config.model) : config.train.task;
  Entry const* const entry = find(name);
  if (entry == nullptr) {
    throw ConfigError("{} is not a task; {}", place_of_task(config),
                      nearest_or_all(name, names(), "a task of a plug-in in plugins.paths"));
  }
  if (std::string const reason = entry->task->unsupported_reason(config.model); !reason.empty()) {
    throw ConfigError("{} {}; {} = {}", place_of_task(config), reason, config.model.place("stacks"),
                      to_toml(OptionValue(config.model.stacks)));
  }
  return *entry->task;
}

std::string place_of_task(Config const& config) {
  if (config.train.task.empty()) {
    return fmt::format("{} = {}", config.model.place("stacks"), to_toml(OptionValue(config.model.stacks)));
  }
  return fmt::format("{} = \"{}\"", config.train.places.of("task"), config.train.task);
}

void register_tasks(TaskRegistry& registry) {
  registry.add("translation", std::make_shared<Translation>());
  registry.add("language_model", make_language_model());
  registry.add("masked_language_model", make_masked_language_model());
  registry.add("denoising", make_denoising());
}

}  // namespace heddle
