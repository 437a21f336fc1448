#include "json_items.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <boost/json/basic_parser_impl.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/io/text/text.hpp>

namespace heddle {

namespace {

/// The handler of Boost's parser, which names these functions.
class JsonItemHandler {
 public:
  static constexpr std::size_t max_object_size = -1;
  static constexpr std::size_t max_array_size = -1;
  static constexpr std::size_t max_key_size = -1;
  static constexpr std::size_t max_string_size = -1;
  using Code = boost::json::error_code;
  using View = boost::json::string_view;
  using Kind = JsonItem::Kind;

  explicit JsonItemHandler(std::function<void(JsonItem const&)> const& take) : take_(take) {}

  bool on_document_begin(Code&) { return true; }
  bool on_document_end(Code&) { return true; }
  bool on_object_begin(Code&) { return pass(Kind::object) && enter(false); }
  bool on_object_end(std::size_t, Code&) {
    keys_.pop_back();
    return leave();
  }
  bool on_array_begin(Code&) { return pass(Kind::list) && enter(true); }
  bool on_array_end(std::size_t, Code&) { return leave(); }
  bool on_key_part(View part, std::size_t, Code&) { return collect(part); }
  bool on_key(View part, std::size_t, Code&) {
    collect(part);
    keys_.back().swap(text_);
    text_.clear();
    return true;
  }
  bool on_string_part(View part, std::size_t, Code&) { return collect(part); }
  bool on_string(View part, std::size_t, Code&) {
    collect(part);
    pass(Kind::text);
    text_.clear();
    return true;
  }
  bool on_number_part(View, Code&) { return true; }
  bool on_int64(std::int64_t value, View, Code&) { return pass(Kind::integer, value); }
  bool on_uint64(std::uint64_t, View, Code&) { return pass(Kind::other); }  // more than an int64 holds
  bool on_double(double, View, Code&) { return pass(Kind::other); }
  bool on_bool(bool, Code&) { return pass(Kind::other); }
  bool on_null(Code&) { return pass(Kind::other); }
  bool on_comment_part(View, Code&) { return true; }
  bool on_comment(View, Code&) { return true; }

 private:
  bool pass(Kind kind, std::int64_t integer = 0) {
    take_({keys_, !is_list_.empty() && is_list_.back(), kind, text_, integer});
    return true;
  }
  bool enter(bool list) {
    is_list_.push_back(list);
    if (!list) {
      keys_.emplace_back();
    }
    return true;
  }
  bool leave() {
    is_list_.pop_back();
    return true;
  }
  bool collect(View part) {
    text_.append(part.data(), part.size());
    return true;
  }

  std::function<void(JsonItem const&)> const& take_;
  std::vector<std::string> keys_;
  std::vector<bool> is_list_;  ///< of the values around the next one
  std::string text_;           ///< a key or string that comes in parts
};

}  // namespace

void read_json_items(std::string_view text, std::string const& where,
                     std::function<void(JsonItem const&)> const& take) {
  if (std::size_t const invalid = find_invalid_utf8(text); invalid != std::string_view::npos) {
    throw DataError(fmt::format("{}: is not UTF-8 at byte {}", where, invalid));
  }
  boost::json::basic_parser<JsonItemHandler> parser(boost::json::parse_options(), take);
  boost::json::error_code problem;
  std::size_t const used = parser.write_some(false, text.data(), text.size(), problem);
  if (problem) {
    throw DataError(fmt::format("{}: is not JSON at byte {}: {}", where, used, problem.message()));
  }
  if (text.find_first_not_of(" \t\r\n", used) != std::string_view::npos) {
    throw DataError(fmt::format("{}: goes on behind its JSON, at byte {}", where, used));
  }
}

std::string json_quoted(std::string_view text) {
  return boost::json::serialize(boost::json::string(text));
}

}  // namespace heddle
