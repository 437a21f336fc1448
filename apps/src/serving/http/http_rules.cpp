#include "serving/http/http_rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/beast/http/rfc7230.hpp>

#include "serving/http/page_files.hpp"

namespace heddle {
namespace {

namespace http = boost::beast::http;

/// Who may ask for a path.
enum class RouteFor { anyone, holders };

struct Route {
  std::string_view path;
  RouteFor users;
};
/// The health is for programs that have no token, the page asks for one.
constexpr std::array served_routes = {Route{"/v1/translate", RouteFor::holders},
                                      Route{"/v1/models", RouteFor::holders},
                                      Route{"/metrics", RouteFor::holders},
                                      Route{"/health", RouteFor::anyone},
                                      Route{"/", RouteFor::anyone},
                                      Route{"/page.js", RouteFor::anyone},
                                      Route{"/page.css", RouteFor::anyone}};

std::string_view view_of(boost::beast::string_view text) {
  return {text.data(), text.size()};
}

/// The route of a target, compared byte for byte: nothing is decoded, and no file is read.
Route const* route_of(HttpFields const& fields) {
  std::string_view const target = view_of(fields.target());
  auto const* const found = std::ranges::find(served_routes, target.substr(0, target.find('?')), &Route::path);
  return found == served_routes.end() ? nullptr : found;
}

/// Refuses a header that other servers on the way could read in another way.
void require_certain_length(HttpFields const& fields) {
  if (fields.count(http::field::content_length) > 1) {
    throw HttpError(400, "there are several fields Content-Length");
  }
  auto const is_digit = [](char letter) { return letter >= '0' && letter <= '9'; };
  if (!std::ranges::all_of(view_of(fields[http::field::content_length]), is_digit)) {  // "15, 15"
    throw HttpError(400, "Content-Length: expected one number");
  }
  if (fields.count(http::field::transfer_encoding) == 0) {
    return;
  }
  if (fields.version() < 11 || fields.count(http::field::content_length) > 0 ||
      fields.count(http::field::transfer_encoding) > 1) {
    throw HttpError(400, "Transfer-Encoding beside another length, or in HTTP/1.0");
  }
  if (!boost::beast::iequals(fields[http::field::transfer_encoding], "chunked")) {
    throw HttpError(501, "Transfer-Encoding: expected chunked");
  }
}

void require_json(HttpFields const& fields) {
  // Other types can be sent by pages of other sites without asking this server.
  std::string_view const type = view_of(fields[http::field::content_type]);
  std::string_view const name = type.substr(0, type.find_first_of("; "));
  if (!boost::beast::iequals({name.data(), name.size()}, "application/json")) {
    throw HttpError(415, "expected the field Content-Type: application/json");
  }
  if (fields.count(http::field::content_encoding) > 0) {
    throw HttpError(415, "expected a body without Content-Encoding");
  }
}

}  // namespace

std::string served_path(HttpFields const& fields) {
  Route const* const route = route_of(fields);
  return route == nullptr ? "other" : std::string(route->path);
}

void require_allowed(HttpFields const& fields, Access const& access) {
  require_certain_length(fields);
  if (fields.count(http::field::host) > 1 || (fields.version() == 11 && fields.count(http::field::host) == 0)) {
    throw HttpError(400, "expected one field Host");
  }
  if (fields.count(http::field::host) == 1 && !access.serves_host(view_of(fields[http::field::host]))) {
    throw HttpError(421, fmt::format("the field Host names another server; expected localhost or {}. If requests come "
                                     "through a proxy, start with --token-file or --no-auth",
                                     access.address().to_string()));
  }
  Route const* const route = route_of(fields);
  if (route == nullptr) {
    throw HttpError(404, "there is nothing here; POST /v1/translate translates");
  }
  if (route->users == RouteFor::holders && !access.allows(view_of(fields[http::field::authorization]))) {
    throw HttpError(401, "expected the field Authorization: Bearer TOKEN, with the server's token");
  }
  bool const posts = route->path == "/v1/translate";
  bool const reads = fields.method() == http::verb::get || fields.method() == http::verb::head;
  if (posts ? fields.method() != http::verb::post : !reads) {
    throw posts ? HttpError(405, "expected POST", "POST") : HttpError(405, "expected GET", "GET, HEAD");
  }
  if (posts) {
    require_json(fields);
  }
}

}  // namespace heddle
