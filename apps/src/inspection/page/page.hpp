#pragma once

#include <boost/json.hpp>
#include <span>
#include <string>
#include <string_view>

namespace heddle {

/// A file of apps/src/inspection/page/web, compiled into the program by cmake/HeddleEmbed.cmake.
struct PageFile {
  std::string_view name;
  std::string_view text;
};
std::span<PageFile const> page_files();

/// The JSON text in a form that no HTML parser takes for markup: it may stand inside a script element.
std::string json_for_script(boost::json::value const& value);

/// `text` with the characters that mean something in HTML replaced by references.
std::string html_escaped(std::string_view text);

/// One page that needs no other file: page.html with the style sheet, the scripts in the order of their names, and the
/// data that they draw.
std::string assemble_page(std::string_view title, boost::json::value const& data);

}  // namespace heddle
