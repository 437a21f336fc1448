#pragma once

#include <boost/asio/ip/address.hpp>
#include <heddle/io/files/sha256.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace heddle {

/// The question who may use a server.
class Access {
 public:
  struct Options {
    std::string address = "127.0.0.1";
    std::string token_file = {};  ///< a file with the token; "": none
    bool open = false;            ///< anybody who reaches the address may use it
  };
  /// Throws UsageError for what is not an address, for one that others reach with neither a token nor `open`, and for a
  /// token that can be guessed. Prints a warning for a token that other users can read.
  explicit Access(Options const& options);

  boost::asio::ip::address const& address() const { return address_; }
  /// Whether a request with this field Authorization ("" for none) may compute. The time does not depend on the token.
  bool allows(std::string_view authorization) const;
  /// Whether a request with this field Host is for this server. Without a token it must name the loopback: otherwise a
  /// page of another site could send requests under its own name (DNS rebinding).
  bool serves_host(std::string_view host) const;

 private:
  boost::asio::ip::address address_;
  std::optional<DigestBytes> token_;
  bool open_;
};

}  // namespace heddle
