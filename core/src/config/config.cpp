#include <algorithm>
#include <filesystem>
#include <fstream>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/paths.hpp>
#include <sstream>
#include <system_error>

#include "key_names.hpp"
#include "reader.hpp"

namespace heddle {
namespace {

/// Checks that involve more than one key.
void check_together(Config const& config, ConfigDocument const& document) {
  // For two conflicting keys, the key that the message names: an override rather than the file's, a given one rather
  // than a default.
  using Key = std::array<char const*, 2>;
  auto const blamed = [&](Key const& first, Key const& second) {
    std::string const origin = document.origin(first[0], first[1]);
    bool const take_first = origin.starts_with("--set") || document.find(second[0], second[1]) == nullptr;
    return take_first ? origin : document.origin(second[0], second[1]);
  };
  ModelConfig const& model = config.model;
  TrainConfig const& train = config.train;
  if (train.micro_batch_tokens > train.batch_tokens) {
    throw ConfigError(fmt::format(
        "{}: train.micro_batch_tokens = {} is more than train.batch_tokens = {}, of which it is a part; set "
        "it to {} or less",
        blamed({"train", "batch_tokens"}, {"train", "micro_batch_tokens"}), train.micro_batch_tokens,
        train.batch_tokens, train.batch_tokens));
  }
  if (model.max_length > train.micro_batch_tokens) {
    throw ConfigError(fmt::format(
        "{}: a sentence of model.max_length = {} tokens does not fit into train.micro_batch_tokens = {}; raise this "
        "or set max_length to {} or less",
        blamed({"train", "micro_batch_tokens"}, {"model", "max_length"}), model.max_length, train.micro_batch_tokens,
        train.micro_batch_tokens));
  }
}

/// The model's stacks and their layers.
void check_stacks(ModelConfig const& model) {
  std::vector<std::string> all;
  std::vector<std::string> in_order;
  std::int64_t layers = 0;
  for (auto const& [name, config, predicts] : stack_kinds) {
    all.emplace_back(name);
    StackConfig const& stack = model.*config;
    require_each_once(stack.sublayers, model.place(fmt::format("{}_sublayers", name)));
    if (std::find(model.stacks.begin(), model.stacks.end(), name) != model.stacks.end()) {
      in_order.emplace_back(name);
      layers += stack.layers;
    }
  }
  if (model.stacks != in_order || in_order.empty()) {
    throw ConfigError(fmt::format("{} is {}; expected {} or a part of it, in this order", model.place("stacks"),
                                  to_toml(OptionValue(model.stacks)), to_toml(OptionValue(all))));
  }
  if (layers == 0) {
    throw ConfigError(fmt::format("{} = 0: the model has no layer", model.place(model.stacks.back() + "_layers")));
  }
}

/// Digests, one for each path.
void check_plugins(PluginsConfig const& plugins, ConfigDocument const& document) {
  auto const is_digest = [](std::string const& text) {
    return text.empty() || (text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos);
  };
  std::string const where = document.origin("plugins", "sha256");
  if (!plugins.sha256.empty() && plugins.sha256.size() != plugins.paths.size()) {
    throw ConfigError(
        fmt::format("{}: plugins.sha256 has {} digests for {} plugins.paths; expected one for each, \"\" for any file",
                    where, plugins.sha256.size(), plugins.paths.size()));
  }
  for (std::string const& digest : plugins.sha256) {
    if (!is_digest(digest)) {
      throw ConfigError(fmt::format(
          "{}: plugins.sha256 has \"{}\"; expected 64 hexadecimal digits in lower case, as sha256sum prints", where,
          digest));
    }
  }
}

/// Removes the cross-attention of the first stack, which has nothing to attend to, unless its sublayers were given.
void drop_cross_attention_of_the_first_stack(ModelConfig& model) {
  std::string const& first = model.stacks.front();
  if (!model.places.given(first + "_sublayers")) {
    std::erase((model.*stack_kind(first).config).sublayers, "cross_attention");
  }
}

/// An entry for every operation that [kernels] names, with its place.
void add_operations(KernelChoices& kernels, ConfigDocument const& document) {
  toml::table const* const keys = document.table()["kernels"].as_table();
  if (keys == nullptr) {
    return;
  }
  for (auto const& [name, value] : *keys) {
    std::string const operation(name.str());
    if (operation != "cache") {
      kernels.choose(operation, "auto", document.origin("kernels", operation));
    }
  }
}

}  // namespace

void ConfigReader::fail(char const* name, std::string const& wrong, std::string const& right) const {
  throw ConfigError(
      fmt::format("{}: {}.{} is {}; expected {}", document_.origin(section_, name), section_, name, wrong, right));
}

Config parse_config(std::string_view text, std::string_view source_name, std::vector<std::string> const& overrides) {
  ConfigDocument document(text, source_name);
  KeyNames().require_known(document);
  for (std::string const& override_text : overrides) {
    document.apply(override_text);
  }
  Config config;
  add_operations(config.kernels, document);
  ConfigReader reader(document);
  config_keys::visit_config(reader, config);
  config.model.places = places_of_model(document);
  config.train.places = places_of(document, "train");
  config.parallel.places = places_of(document, "parallel");
  if (document.find("train", "micro_batch_tokens") == nullptr) {
    config.train.micro_batch_tokens = std::min(config.train.micro_batch_tokens, config.train.batch_tokens);
  }
  check_together(config, document);
  check_stacks(config.model);
  check_plugins(config.plugins, document);
  drop_cross_attention_of_the_first_stack(config.model);
  return config;
}

Config load_config(std::string const& path, std::vector<std::string> const& overrides) {
  constexpr std::uintmax_t max_bytes = std::uintmax_t{16} << 20;
  std::error_code problem;
  std::string reason;
  if (!std::filesystem::exists(path, problem)) {
    reason = problem ? problem.message() : std::generic_category().message(ENOENT) + relative_to(path);
  } else if (!std::filesystem::is_regular_file(path, problem)) {
    reason = "it is no regular file";  // one that never ends, or that waits for a writer
  } else if (std::filesystem::file_size(path, problem) > max_bytes) {
    reason = "it is larger than 16 MiB";
  }
  std::ifstream file;
  if (reason.empty()) {
    file.open(path, std::ios::binary);
    reason = file ? "" : std::generic_category().message(errno);
  }
  if (!reason.empty()) {
    throw ConfigError(fmt::format("{}: cannot be read: {}; expected a TOML file, see docs/config.md", path, reason));
  }
  std::ostringstream text;
  text << file.rdbuf();
  return parse_config(text.str(), path, overrides);
}

}  // namespace heddle
