#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace heddle {

/// The bytes of a string.
inline std::span<std::uint8_t const> text_bytes(std::string_view text) {
  return {reinterpret_cast<std::uint8_t const*>(text.data()), text.size()};
}
inline std::span<std::uint8_t> text_bytes(std::string& text) {
  return {reinterpret_cast<std::uint8_t*>(text.data()), text.size()};
}
inline std::span<std::uint8_t const> text_bytes(std::string const& text) {
  return text_bytes(std::string_view(text));
}

/// A SHA-256 digest.
using DigestBytes = std::array<std::uint8_t, 32>;

/// Computes the SHA-256 of bytes that are added piece by piece.
class Sha256 {
 public:
  Sha256();

  void update(std::span<std::uint8_t const> bytes);
  /// The digest as 64 lower-case hexadecimal digits. Ends this computation: nothing may be added afterwards.
  std::string finish();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

DigestBytes sha256_bytes(std::span<std::uint8_t const> bytes);
/// The digest as 64 lower-case hexadecimal digits.
std::string sha256(std::span<std::uint8_t const> bytes);
std::string sha256(std::string_view text);

}  // namespace heddle
