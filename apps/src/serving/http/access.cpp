#include "serving/http/access.hpp"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/paths.hpp>

#include "run/directory/warning.hpp"

namespace heddle {
namespace {

constexpr std::size_t min_token = 16;

std::string read_token(std::string const& path) {
  FileText const file = read_file_text(path);
  if (!file.problem.empty()) {
    throw UsageError("--token-file: " + file.problem);
  }
  std::error_code unknown;
  std::filesystem::perms const rights = std::filesystem::status(path, unknown).permissions();
  if (!unknown && (rights & std::filesystem::perms::others_read) != std::filesystem::perms::none) {
    warn(fmt::format("--token-file {}: every user of this machine can read it; `chmod 600` ends that", path));
  }
  std::string token = file.text;
  token.erase(token.find_last_not_of(" \t\r\n") + 1);
  bool const plain = std::ranges::all_of(token, [](char letter) { return letter > ' ' && letter <= '~'; });
  if (token.size() < min_token || !plain) {
    throw UsageError(
        "--token-file {}: expected one line of at least {} characters of ASCII without spaces; `openssl "
        "rand -hex 32` prints one",
        path, min_token);
  }
  return token;
}

}  // namespace

Access::Access(Options const& options) : open_(options.open) {
  boost::system::error_code problem;
  address_ = boost::asio::ip::make_address(options.address, problem);
  if (problem) {
    throw UsageError("--listen {}: expected an address such as 0.0.0.0 or ::1", options.address);
  }
  if (!options.token_file.empty() && open_) {
    throw UsageError("--token-file and --no-auth exclude each other");
  }
  if (!options.token_file.empty()) {
    token_ = sha256_bytes(text_bytes(read_token(options.token_file)));
  } else if (!address_.is_loopback() && !open_) {
    throw UsageError(
        "--listen {}: others reach this address; give --token-file FILE with a token that they must know, or --no-auth "
        "if everybody who reaches it may translate",
        options.address);
  }
}

bool Access::allows(std::string_view authorization) const {
  if (!token_) {
    return true;
  }
  constexpr std::string_view scheme = "bearer ";
  if (authorization.size() < scheme.size() ||
      !boost::beast::iequals({authorization.data(), scheme.size()}, {scheme.data(), scheme.size()})) {
    return false;
  }
  DigestBytes const given = sha256_bytes(text_bytes(authorization.substr(scheme.size())));
  return CRYPTO_memcmp(given.data(), token_->data(), given.size()) == 0;
}

bool Access::serves_host(std::string_view host) const {
  if (token_ || open_) {
    return true;
  }
  std::size_t const port = host.find(':', host.starts_with('[') ? host.find(']') : 0);
  std::string_view const name = host.substr(0, port);
  return boost::beast::iequals({name.data(), name.size()}, "localhost") || name == "127.0.0.1" || name == "[::1]" ||
         name == address_.to_string() || name == fmt::format("[{}]", address_.to_string());
}

}  // namespace heddle
