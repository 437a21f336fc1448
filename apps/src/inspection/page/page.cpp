#include "page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <vector>

#include "report/json_text.hpp"

namespace heddle {
namespace {

PageFile const& page_file(std::string_view name) {
  auto const files = page_files();
  auto const found = std::ranges::find(files, name, &PageFile::name);
  if (found == files.end()) {
    throw Error(fmt::format("the page's file {} is not in this program", name));
  }
  return *found;
}

std::string all_scripts() {
  std::vector<PageFile> scripts;
  std::ranges::copy_if(page_files(), std::back_inserter(scripts),
                       [](PageFile const& file) { return file.name.ends_with(".js"); });
  std::ranges::sort(scripts, {}, &PageFile::name);
  std::string text;
  for (PageFile const& script : scripts) {
    text += script.text;
  }
  return text;
}

}  // namespace

std::string json_for_script(boost::json::value const& value) {
  std::string const text = json_text(value);
  std::string safe;
  safe.reserve(text.size() + text.size() / 16);
  for (std::size_t at = 0; at < text.size(); ++at) {
    char const character = text[at];
    // Outside its strings JSON has none of these characters, so each may become an escape sequence.
    if (character == '<' || character == '>' || character == '&') {
      safe += fmt::format("\\u{:04x}", static_cast<unsigned>(character));
    } else {
      safe += character;
    }
  }
  return safe;
}

std::string html_escaped(std::string_view text) {
  std::string safe;
  for (char const character : text) {
    switch (character) {
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '&':
        safe += "&amp;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += character;
    }
  }
  return safe;
}

std::string assemble_page(std::string_view title, boost::json::value const& data) {
  std::string_view const frame = page_file("page.html").text;
  std::string page;
  std::size_t at = 0;
  // {{NAME}} in the frame; what replaces it is not searched again.
  for (std::size_t open = frame.find("{{"); open != std::string_view::npos; open = frame.find("{{", at)) {
    std::size_t const close = frame.find("}}", open);
    std::string_view const name = frame.substr(open + 2, close - open - 2);
    page += frame.substr(at, open - at);
    if (name == "title") {
      page += html_escaped(title);
    } else if (name == "style") {
      page += page_file("style.css").text;
    } else if (name == "scripts") {
      page += all_scripts();
    } else if (name == "data") {
      page += json_for_script(data);
    } else {
      throw Error(fmt::format("page.html has an unknown place {}", name));
    }
    at = close + 2;
  }
  page += frame.substr(at);
  return page;
}

}  // namespace heddle
