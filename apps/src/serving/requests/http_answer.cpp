#include "serving/requests/http_answer.hpp"

#include <fmt/format.h>

#include <boost/beast/http/status.hpp>
#include <boost/json.hpp>

namespace heddle {

HttpAnswer answer_of(HttpError const& error) {
  HttpAnswer answer{.status = error.status};
  answer.body = boost::json::serialize(boost::json::object{{"error", error.what()}}) + "\n";
  if (error.status == 429 || error.status == 503) {
    answer.fields = "Retry-After: 1\r\n";
  } else if (error.status == 401) {
    answer.fields = "WWW-Authenticate: Bearer\r\n";
  } else if (error.status == 405) {
    answer.fields = fmt::format("Allow: {}\r\n", error.allowed);
  }
  return answer;
}

std::string header_of(HttpAnswer const& answer, AfterAnswer after, bool with_length) {
  // The page may load only its own files, and no other site may load or frame anything of the server.
  constexpr std::string_view policy =
      "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action "
      "'none'; frame-ancestors 'none'";
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\n{}Cache-Control: no-store\r\nContent-Security-Policy: {}\r\n"
      "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n"
      "{}Connection: {}\r\n\r\n",
      answer.status,
      std::string_view(boost::beast::http::obsolete_reason(static_cast<boost::beast::http::status>(answer.status))),
      answer.type, with_length ? fmt::format("Content-Length: {}\r\n", answer.body.size()) : "", policy, answer.fields,
      after == AfterAnswer::keep ? "keep-alive" : "close");
}

}  // namespace heddle
