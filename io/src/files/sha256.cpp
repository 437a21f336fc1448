#include <openssl/evp.h>

#include <array>
#include <heddle/core/base/error.hpp>
#include <heddle/io/files/sha256.hpp>

namespace heddle {

struct Sha256::LayerContext {
  EVP_MD_CTX* handle = EVP_MD_CTX_new();
  ~LayerContext() { EVP_MD_CTX_free(handle); }
};

namespace {

void require(int answer, char const* what) {
  if (answer != 1) {
    throw Error(std::string("SHA-256: OpenSSL could not ") + what + " the digest");
  }
}

}  // namespace

Sha256::Sha256() : context_(std::make_unique<LayerContext>()) {
  require(context_->handle != nullptr ? EVP_DigestInit_ex(context_->handle, EVP_sha256(), nullptr) : 0, "start");
}

Sha256::~Sha256() = default;

void Sha256::update(std::span<std::uint8_t const> bytes) {
  require(EVP_DigestUpdate(context_->handle, bytes.data(), bytes.size()), "update");
}

void Sha256::update(std::string_view bytes) {
  require(EVP_DigestUpdate(context_->handle, bytes.data(), bytes.size()), "update");
}

std::string Sha256::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  require(EVP_DigestFinal_ex(context_->handle, digest.data(), &length), "finish");
  constexpr char const* digits = "0123456789abcdef";
  std::string text;
  for (unsigned index = 0; index < length; ++index) {
    text += digits[digest[index] >> 4];
    text += digits[digest[index] & 15];
  }
  return text;
}

std::string sha256(std::span<std::uint8_t const> bytes) {
  Sha256 digest;
  digest.update(bytes);
  return digest.finish();
}

std::array<std::uint8_t, 32> sha256_bytes(std::span<std::uint8_t const> bytes) {
  std::array<std::uint8_t, 32> digest{};
  require(EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr), "compute");
  return digest;
}

std::string sha256(std::string_view bytes) {
  Sha256 digest;
  digest.update(bytes);
  return digest.finish();
}

}  // namespace heddle
