#include <heddle/core/base/error.hpp>
#include <heddle/core/config/option_tables.hpp>
#include <map>
#include <utility>

#include "document.hpp"

namespace heddle {

std::vector<OptionTable> read_option_tables(std::string_view text, std::string const& source_name) {
  ConfigDocument const document(text, source_name, {});
  std::map<std::string, std::pair<std::string, Settings>> tables;  // origin and keys
  for (auto const& [path, entry] : document.entries()) {
    std::size_t const dot = path.find('.');
    bool const inner = dot != std::string::npos;
    if (!inner && !entry.node->is_table()) {
      throw ConfigError("{} = {} is outside of the tables; expected it below a line [NAME]", entry.place(),
                        describe(*entry.node));
    }
    if (!inner) {
      tables[path].first = entry.origin;
      continue;
    }
    auto const value = value_of(*entry.node);
    if (!value) {
      throw ConfigError("{} is {}; expected a boolean, a number, a string or a list of strings or integers",
                        entry.place(), describe(*entry.node));
    }
    tables[path.substr(0, dot)].second[path.substr(dot + 1)] = {*value, entry.origin, path};
  }
  std::vector<OptionTable> result;
  for (auto& [name, table] : tables) {
    result.push_back({name, table.first, LayerOptions(std::move(table.second), name)});
  }
  return result;
}

}  // namespace heddle
