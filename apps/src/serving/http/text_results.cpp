#include "serving/http/text_results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <iterator>
#include <utility>

namespace heddle {
namespace {

/// The JSON is a worker's; a model may generate bytes that are not UTF-8.
boost::json::string best_of(std::string const& json) {
  boost::json::parse_options options;
  options.allow_invalid_utf8 = true;
  return boost::json::parse(json, {}, options).at("translations").at(0).at("text").as_string();
}

std::string joined(std::vector<std::string> const& lines) {
  boost::json::string text = best_of(lines.front());
  for (std::size_t line = 1; line < lines.size(); ++line) {
    text += "\n";
    text += best_of(lines[line]);
  }
  return fmt::format(R"({{"translations":[{{"text":{}}}],"lines":[{}]}})", boost::json::serialize(text),
                     fmt::join(lines, ","));
}

}  // namespace

TextResults::TextResults(std::vector<std::size_t> const& line_counts) : missing_(line_counts.size()) {
  std::size_t first = 0;
  for (std::size_t const count : line_counts) {
    texts_.push_back({first, std::vector<std::string>(count), count});
    first += count;
  }
}

TextResults::Place TextResults::place(std::size_t line) const {
  auto const text = std::prev(std::ranges::upper_bound(texts_, line, {}, &Text::first));
  return {static_cast<std::size_t>(text - texts_.begin()), line - text->first, text->lines.size() == 1};
}

std::optional<TextResults::Result> TextResults::add(std::size_t line, std::string json) {
  Place const place = this->place(line);
  Text& text = texts_[place.text];
  text.lines[place.line] = std::move(json);
  if (--text.missing > 0) {
    return std::nullopt;
  }
  --missing_;
  std::vector<std::string> lines = std::exchange(text.lines, {});
  return Result{place.text, place.single ? std::move(lines.front()) : joined(lines)};
}

std::string TextResults::best_text(std::string const& json) {
  return boost::json::serialize(best_of(json));
}

}  // namespace heddle
