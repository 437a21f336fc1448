#include <fmt/format.h>

#include <boost/json.hpp>
#include <boost/json/basic_parser_impl.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/io/text/bounded_json.hpp>
#include <heddle/io/text/text.hpp>
#include <new>

namespace heddle {

namespace {

struct MemoryEnds : std::exception {};

/// Memory that ends. (Boost.JSON frees what it had when an allocation throws.)
class BoundedMemory final : public boost::json::memory_resource {
 public:
  static constexpr std::size_t limit = std::size_t{512} << 20;

 private:
  // Boost.JSON gives memory back under another alignment than it asked for; `new` aligns to the largest.
  void* do_allocate(std::size_t bytes, std::size_t /*alignment*/) override {
    if (bytes > limit - used_) {
      throw MemoryEnds();
    }
    used_ += bytes;
    return ::operator new(bytes);
  }
  void do_deallocate(void* memory, std::size_t bytes, std::size_t /*alignment*/) override {
    used_ -= bytes;
    ::operator delete(memory);
  }
  bool do_is_equal(boost::json::memory_resource const& other) const noexcept override { return this == &other; }

  std::size_t used_ = 0;
};

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

void require_utf8(std::string_view text, std::string_view where) {
  if (std::size_t const invalid = find_invalid_utf8(text); invalid != std::string_view::npos) {
    throw DataError("{}: is not UTF-8 at byte {}", where, invalid);
  }
}

/// Throws DataError unless `used` bytes of the text are one JSON value and nothing follows it.
void require_whole(std::string_view text, std::size_t used, boost::json::error_code const& problem,
                   std::string_view where) {
  if (problem) {
    throw DataError("{}: is not JSON at byte {}: {}", where, used, problem.message());
  }
  if (text.find_first_not_of(" \t\r\n", used) != std::string_view::npos) {
    throw DataError("{}: trailing data after the JSON value, at byte {}", where, used);
  }
}

}  // namespace

boost::json::value parse_bounded_json(std::string_view text, std::string_view where) {
  require_utf8(text, where);
  try {
    auto const memory = boost::json::make_shared_resource<BoundedMemory>();
    boost::json::parser parser(memory);
    parser.reset(memory);
    boost::json::error_code problem;
    std::size_t const used = parser.write_some({text.data(), text.size()}, problem);
    require_whole(text, used, problem, where);
    return parser.release();
  } catch (MemoryEnds const&) {
    throw DataError("{}: it needs more than {} MiB of memory", where, BoundedMemory::limit >> 20U);
  }
}

boost::json::object json_object_of(std::string_view text, std::string_view where) {
  boost::json::value const value = parse_bounded_json(text, where);
  if (!value.is_object()) {
    throw DataError("{} is not a JSON object", where);
  }
  return value.get_object();
}

boost::json::object json_object_in(std::map<std::string, std::string> const& files, std::string const& name) {
  auto const found = files.find(name);
  return found == files.end() ? boost::json::object() : json_object_of(found->second, name);
}

void read_json_items(std::string_view text, std::string const& where,
                     std::function<void(JsonItem const&)> const& take) {
  require_utf8(text, where);
  boost::json::basic_parser<JsonItemHandler> parser(boost::json::parse_options(), take);
  boost::json::error_code problem;
  std::size_t const used = parser.write_some(false, text.data(), text.size(), problem);
  require_whole(text, used, problem, where);
}

std::string json_quoted(std::string_view text) {
  return boost::json::serialize(boost::json::string(text));
}

std::string plain_message(std::exception const& error) {
  std::string_view const message = error.what();
  return std::string(message.substr(0, message.find(" [boost")));
}

}  // namespace heddle
