#pragma once

#include <heddle/core/config/config.hpp>

#include "document.hpp"
#include "groups.hpp"
#include "read_value.hpp"
#include "stacks.hpp"

namespace heddle {

/// A value that is not accepted, in words; of a list, its first wrong element.
template <class Member, class Check>
std::string describe_wrong(toml::node const& node, Check const& check) {
  toml::array const* const items = node.as_array();
  if constexpr (requires(Member member) { member.push_back(member.front()); } && !std::is_same_v<Member, std::string>) {
    for (std::size_t index = 0; items != nullptr && index < items->size(); ++index) {
      toml::array single;
      single.push_back((*items)[index]);
      std::optional<OptionValue> const value = value_of(single);
      Member ignored;
      if (!value || !config_values::read(*value, ignored, check)) {
        return fmt::format("a list whose element {} is {}", index + 1, describe((*items)[index]));
      }
    }
  }
  return describe(node);
}

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
      fail(name, describe_wrong<Member>(*node, check),
           config_values::with_meant<Member>(config_values::words_of<Member>(check), value));
    }
  }
  void stacks(ModelConfig& model) { read_stacks(document_, model); }
  void groups(OptimizerConfig& optimizer) { read_groups(document_, optimizer); }

 private:
  [[noreturn]] void fail(char const* name, std::string const& wrong, std::string const& right) const;

  ConfigDocument const& document_;
  std::string section_;
};

}  // namespace heddle
