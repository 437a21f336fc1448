#include <fmt/ranges.h>
#include <openssl/evp.h>

#include <heddle/core/base/error.hpp>
#include <heddle/io/files/sha256.hpp>

namespace heddle {

namespace {

void require(int answer, char const* what) {
  if (answer != 1) {
    throw Error(std::string("SHA-256: OpenSSL could not ") + what + " the digest");
  }
}

std::string hexadecimal(DigestBytes const& digest) {
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

}  // namespace

void Sha256::Free::operator()(evp_md_ctx_st* context) const {
  EVP_MD_CTX_free(context);
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  require(context_ ? EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) : 0, "start");
}

void Sha256::update(std::span<std::uint8_t const> bytes) {
  require(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()), "update");
}

std::string Sha256::finish() {
  DigestBytes digest{};
  require(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr), "finish");
  return hexadecimal(digest);
}

DigestBytes sha256_bytes(std::span<std::uint8_t const> bytes) {
  DigestBytes digest{};
  require(EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr), "compute");
  return digest;
}

std::string sha256(std::span<std::uint8_t const> bytes) {
  return hexadecimal(sha256_bytes(bytes));
}

std::string sha256(std::string_view text) {
  return sha256(text_bytes(text));
}

}  // namespace heddle
