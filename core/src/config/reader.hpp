#pragma once

#include <heddle/core/config/config.hpp>

#include "document.hpp"
#include "groups.hpp"
#include "read_value.hpp"
#include "stacks.hpp"

namespace heddle {

/// Fills a Config from a ConfigDocument: a visitor of `visit_config`.
class ConfigReader {
 public:
  explicit ConfigReader(ConfigDocument const& document) : document_(document) {}

  void section(char const* name, char const*) { section_ = name; }

  template <class Member, class Check>
  void key(char const* name, Member& member, Check const& check, char const*) {
    toml::node const* const node = document_.find(section_, name);
    if (node == nullptr) {
      return;
    }
    std::optional<OptionValue> const value = value_of(*node);
    if (!value || !config_values::read(*value, member, check)) {
      fail(name, *node, config_values::words_of<Member>(check));
    }
  }
  void stacks(ModelConfig& model) { read_stacks(document_, model); }
  void groups(OptimizerConfig& optimizer) { read_groups(document_, optimizer); }

 private:
  [[noreturn]] void fail(char const* name, toml::node const& node, std::string const& right) const;

  ConfigDocument const& document_;
  std::string section_;
};

}  // namespace heddle
