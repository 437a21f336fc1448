#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace heddle {

/// Computes the SHA-256 of bytes that are added piece by piece.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256 const&) = delete;
  Sha256& operator=(Sha256 const&) = delete;

  void update(std::span<std::uint8_t const> bytes);
  void update(std::string_view bytes);

  /// The digest as 64 lower-case hexadecimal digits. Ends this computation: nothing may be added afterwards.
  std::string finish();

 private:
  struct LayerContext;
  std::unique_ptr<LayerContext> context_;
};

std::string sha256(std::span<std::uint8_t const> bytes);
/// The digest as bytes.
std::array<std::uint8_t, 32> sha256_bytes(std::span<std::uint8_t const> bytes);
std::string sha256(std::string_view bytes);

}  // namespace heddle
