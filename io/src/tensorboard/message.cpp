#include "message.hpp"

#include <bit>

namespace heddle {

namespace {

constexpr int wire_varint = 0;
constexpr int wire_64_bits = 1;
constexpr int wire_bytes = 2;
constexpr int wire_32_bits = 5;

}  // namespace

void Message::key(int field, int wire_type) {
  varint(static_cast<std::uint64_t>(field) << 3U | static_cast<std::uint64_t>(wire_type));
}

void Message::varint(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7U) {
    content_ += static_cast<char>(static_cast<unsigned char>(value | 0x80U));
  }
  content_ += static_cast<char>(value);
}

Message& Message::integer(int field, std::int64_t value) {
  key(field, wire_varint);
  varint(static_cast<std::uint64_t>(value));
  return *this;
}

Message& Message::number(int field, double value) {
  key(field, wire_64_bits);
  append_little_endian(content_, std::bit_cast<std::uint64_t>(value));
  return *this;
}

Message& Message::number(int field, float value) {
  key(field, wire_32_bits);
  append_little_endian(content_, std::bit_cast<std::uint32_t>(value));
  return *this;
}

Message& Message::bytes(int field, std::string_view value) {
  key(field, wire_bytes);
  varint(value.size());
  content_ += value;
  return *this;
}

Message& Message::numbers(int field, std::span<double const> values) {
  std::string packed;
  for (double const value : values) {
    append_little_endian(packed, std::bit_cast<std::uint64_t>(value));
  }
  return bytes(field, packed);
}

}  // namespace heddle
