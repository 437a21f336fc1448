#pragma once

#include <string>
#include <vector>

#include "document.hpp"
#include "keys.hpp"

namespace heddle {

/// The sections and their keys by name, in order: a visitor of visit_config.
class KeyNames {
 public:
  KeyNames();

  void section(char const* name, char const*) { sections_.push_back({name, {}}); }
  template <class Member, class Check>
  void key(char const* name, Member const&, Check const&, char const*) {
    sections_.back().keys.emplace_back(name);
  }
  void stacks(ModelConfig const&) {}
  void groups(OptimizerConfig const&) {}

  /// Throws for the first section or key of the document that does not exist. Keys of [model.encoder], [model.decoder]
  /// and [optimizer.group] are their readers' to check.
  void require_known(ConfigDocument const& document) const;
  /// Throws for a section and key that do not exist; `where` begins the message.
  void require_known(std::string const& section, std::string const& key, std::string const& where) const;

 private:
  struct Section {
    std::string name;
    std::vector<std::string> keys;
  };

  /// Plug-ins that are loaded later may add operations to [kernels].
  static bool knows(Section const& section, std::string const& key);
  Section const* find(std::string const& name) const;
  /// "train.steps, …": the keys of that name in all sections; "" where there is none.
  std::string qualified(std::string const& key) const;
  std::string unknown_section(std::string const& name) const;
  std::string unknown_key(Section const& section, std::string const& key) const;

  std::vector<Section> sections_;
};

}  // namespace heddle
