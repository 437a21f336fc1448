#include "serving/requests/translation_request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <heddle/core/base/spelling.hpp>
#include <heddle/io/text/bounded_json.hpp>
#include <set>
#include <utility>

namespace heddle {
namespace {

namespace json = boost::json;

[[noreturn]] void refuse(std::string const& message) {
  throw HttpError(400, message);
}

/// Takes values out of an object by their keys, so that in the end no key is left.
class Fields {
 public:
  explicit Fields(json::object& object) : object_(object) {}

  /// `value` keeps what it has if there is no such key.
  template <class Value>
  void take(std::string const& key, Value& value) {
    names_.push_back(key);
    json::value const* const found = object_.if_contains(key);
    if (found == nullptr) {
      return;
    }
    read(key, *found, value);
    object_.erase(key);
  }
  void finish() const {
    if (!object_.empty()) {
      std::string const key(object_.begin()->key());
      refuse(fmt::format("there is no key {}: {}", json_quoted(key.substr(0, 60)), nearest_or_all(key, names_)));
    }
  }

 private:
  static void read(std::string const& key, json::value const& found, std::string& value) {
    if (!found.is_string()) {
      refuse(key + ": expected a string");
    }
    value = found.get_string();
  }
  static void read(std::string const& key, json::value const& found, bool& value) {
    if (!found.is_bool()) {
      refuse(key + ": expected true or false");
    }
    value = found.get_bool();
  }
  static void read(std::string const& key, json::value const& found, std::int64_t& value) {
    if (!found.is_int64() || !std::in_range<std::int32_t>(found.get_int64())) {
      refuse(key + ": expected an integer");
    }
    value = found.get_int64();
  }
  static void read(std::string const& key, json::value const& found, double& value) {
    if (!found.is_number() || !std::isfinite(found.to_number<double>())) {
      refuse(key + ": expected a number");
    }
    value = found.to_number<double>();
  }
  static void read(std::string const& key, json::value const& found, std::vector<std::string>& value) {
    if (!found.is_array()) {
      refuse(key + ": expected a list of strings");
    }
    for (json::value const& each : found.get_array()) {
      read(key, each, value.emplace_back());
    }
  }

  json::object& object_;
  std::vector<std::string> names_;
};

/// Refuses a body with a key that occurs twice: the parser keeps the last value, and a proxy may have read the first.
void require_unique_keys(std::string_view body) {
  std::set<std::string> keys;
  read_json_items(body, "the body", [&](JsonItem const& item) {
    if (item.keys.size() == 1 && !item.in_list && !keys.insert(item.keys.front()).second) {
      refuse(fmt::format("duplicate key {}", json_quoted(item.keys.front().substr(0, 60))));
    }
  });
}

void require_possible(ServedOptions const& options, ServingLimits const& limits) {
  if (options.beam_size < 1 || options.beam_size > limits.beam_size) {
    refuse(fmt::format("beam_size is {}; expected 1 to {}", options.beam_size, limits.beam_size));
  }
  if (options.n_best < 1 || options.n_best > options.beam_size) {
    refuse(fmt::format("n_best is {}; expected 1 to beam_size, which is {}", options.n_best, options.beam_size));
  }
  if (options.max_length < 0) {
    refuse(fmt::format("max_length is {}; expected at least 1, or 0 for the default", options.max_length));
  }
  if (options.length_penalty < 0 || options.length_penalty > 100) {
    refuse(fmt::format("length_penalty is {}; expected 0 to 100", options.length_penalty));
  }
}

/// Adds a text, whose lines end as those of a file: the last one with a line break or without.
void add_text(TranslationRequest& request, std::string_view text, ServingLimits const& limits) {
  if (text.ends_with('\n')) {
    text.remove_suffix(1);
  }
  std::int64_t const count = std::ranges::count(text, '\n') + 1;
  std::int64_t const max_lines = std::min(limits.texts, limits.queue);
  if (std::ssize(request.lines) + count > max_lines) {
    throw HttpError(413, fmt::format("the texts have more than {} lines", max_lines));
  }
  for (std::int64_t line = 0; line < count; ++line) {
    std::string_view content = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(content.size() + 1, text.size()));
    if (content.ends_with('\r')) {
      content.remove_suffix(1);
    }
    if (std::ssize(content) > limits.text_bytes) {
      throw HttpError(
          413, fmt::format("line {} of text {} (both from 0) has {} bytes; expected at most {}: send sentences", line,
                           request.line_counts.size(), content.size(), limits.text_bytes));
    }
    request.lines.emplace_back(content);
  }
  request.line_counts.push_back(static_cast<std::size_t>(count));
}

}  // namespace

bool ServedOptions::same_search(ServedOptions const& other) const {
  ServedOptions same = other;
  same.source_language = source_language;
  same.target_language = target_language;
  same.scores = scores;
  same.alignments = alignments;
  return *this == same;
}

TranslationRequest parse_translation_request(std::string_view body, ServingLimits const& limits) {
  json::object object;
  try {
    object = json_object_of(body, "the body");
    require_unique_keys(body);
  } catch (DataError const& error) {
    refuse(error.what());
  }
  TranslationRequest request;
  request.options.beam_size = std::min(request.options.beam_size, limits.beam_size);
  Fields fields(object);
  bool const one = object.contains("text");
  if (one == object.contains("texts")) {
    refuse("expected either \"text\", a string, or \"texts\", a list of strings");
  }
  std::vector<std::string> texts;
  if (one) {
    fields.take("text", texts.emplace_back());
  } else {
    fields.take("texts", texts);
  }
  ServedOptions::for_each(request.options, [&](char const* name, auto& value) { fields.take(name, value); });
  fields.finish();
  require_possible(request.options, limits);
  for (std::string const& text : texts) {
    add_text(request, text, limits);
  }
  return request;
}

}  // namespace heddle
