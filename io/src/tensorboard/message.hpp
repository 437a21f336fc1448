#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace heddle {

/// A message of protocol buffers, written field by field.
class Message {
 public:
  Message& integer(int field, std::int64_t value);
  Message& number(int field, double value);  ///< a double
  Message& number(int field, float value);
  Message& bytes(int field, std::string_view value);            ///< also a text or another message
  Message& numbers(int field, std::span<double const> values);  ///< packed doubles

  std::string const& content() const { return content_; }

 private:
  void key(int field, int wire_type);
  void varint(std::uint64_t value);

  std::string content_;
};

/// Appends the value's bytes, the lowest first.
template <class Value>
void append_little_endian(std::string& to, Value value) {
  for (std::size_t byte = 0; byte < sizeof value; ++byte) {
    to += static_cast<char>(static_cast<unsigned char>(value >> (8 * byte) & 0xffU));
  }
}

}  // namespace heddle
