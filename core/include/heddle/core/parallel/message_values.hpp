#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

// Values as the bytes of a message between processes of one program. They are numbers and structs that can be copied as
// bytes, strings, vectors of values, and structs with a function visit_values(struct, visit), which visits the members.

namespace heddle {

/// Appends values to bytes.
class MessageWriter {
 public:
  void add(std::string const& text) {
    add(std::ssize(text));
    bytes_ += text;
  }
  template <class Value>
  void add(std::vector<Value> const& values) {
    add(std::ssize(values));
    if constexpr (std::is_trivially_copyable_v<Value>) {
      bytes_.append(reinterpret_cast<char const*>(values.data()), values.size() * sizeof(Value));
    } else {
      for (Value const& value : values) {
        add(value);
      }
    }
  }
  template <class Value>
  void add(Value const& value) {
    if constexpr (std::is_trivially_copyable_v<Value>) {
      bytes_.append(reinterpret_cast<char const*>(&value), sizeof value);
    } else {
      visit_values(value, [this](auto const& member) { add(member); });
    }
  }

  std::string bytes() && { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads values in the order in which a MessageWriter appended them. Throws Error where the bytes do not hold them.
class MessageReader {
 public:
  explicit MessageReader(std::string_view bytes) : rest_(bytes) {}

  void take(std::string& text) { text = part(take_count(1)); }
  template <class Value>
  void take(std::vector<Value>& values) {
    if constexpr (std::is_trivially_copyable_v<Value>) {
      values.resize(take_count(sizeof(Value)));
      std::string_view const bytes = part(values.size() * sizeof(Value));
      std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(values.data()));
    } else {
      values.resize(take_count(sizeof(std::int64_t)));  // the minimum that a value takes
      for (Value& value : values) {
        take(value);
      }
    }
  }
  template <class Value>
  void take(Value& value) {
    if constexpr (std::is_trivially_copyable_v<Value>) {
      std::memcpy(&value, part(sizeof value).data(), sizeof value);
    } else {
      visit_values(value, [this](auto& member) { take(member); });
    }
  }
  void finish() const {
    if (!rest_.empty()) {
      fail();
    }
  }

 private:
  [[noreturn]] static void fail() { throw Error("a message between processes is damaged"); }

  /// A number of values of at least that many bytes.
  std::size_t take_count(std::size_t bytes) {
    std::int64_t count = 0;
    take(count);
    if (count < 0 || static_cast<std::size_t>(count) > rest_.size() / bytes) {
      fail();
    }
    return static_cast<std::size_t>(count);
  }
  std::string_view part(std::size_t count) {
    if (count > rest_.size()) {
      fail();
    }
    std::string_view const taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  std::string_view rest_;
};

/// One value as a whole message.
template <class Value>
std::string message_of_value(Value const& value) {
  MessageWriter writer;
  writer.add(value);
  return std::move(writer).bytes();
}

/// Inverse of message_of_value. Throws Error for bytes that it did not make.
template <class Value>
Value value_of_message(std::string_view bytes) {
  Value value;
  MessageReader reader(bytes);
  reader.take(value);
  reader.finish();
  return value;
}

}  // namespace heddle
