#pragma once

#include <span>
#include <string_view>

namespace heddle {

/// A file of the page to try a server, compiled into the program by cmake/HeddleEmbed.cmake.
struct PageFile {
  std::string_view path;  ///< "/page.js"; "/" is the page itself
  std::string_view type;
  std::string_view text;
};

/// The files of apps/src/serving/web.
std::span<PageFile const> page_files();

}  // namespace heddle
