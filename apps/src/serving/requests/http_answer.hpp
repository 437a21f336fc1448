#pragma once

#include <heddle/core/base/error.hpp>
#include <string>
#include <string_view>

namespace heddle {

/// An error that is the client's answer, with a status of HTTP.
struct HttpError : Error {
  HttpError(int code, std::string const& message, std::string_view methods = {})
      : Error(message), status(code), allowed(methods) {}
  int status;
  std::string_view allowed;  ///< of 405: the methods that the path takes
};

/// An answer to a request.
struct HttpAnswer {
  int status = 200;
  std::string_view type = "application/json";
  std::string body = {};
  std::string fields = {};  ///< further fields of the header, each with its line's end
};

/// {"error": MESSAGE}; with 429 and 503 also when to try again.
HttpAnswer answer_of(HttpError const& error);

/// Whether the connection stays open after the answer.
enum class AfterAnswer { keep, close };

/// The answer's header, in HTTP/1.1. Without the body's length the body ends with the connection.
std::string header_of(HttpAnswer const& answer, AfterAnswer after, bool with_length = true);

}  // namespace heddle
