#pragma once

#include <boost/beast/http/message.hpp>
#include <string>

#include "serving/http/access.hpp"
#include "serving/requests/http_answer.hpp"

namespace heddle {

using HttpFields = boost::beast::http::header<true, boost::beast::http::fields>;

/// The path of a request's target if the server has it, else "other".
std::string served_path(HttpFields const& fields);

/// Throws HttpError where a request is not answered, which its header shows: one whose length is not certain (request
/// smuggling), for another host, for a path or with a method that there is not, without the token, or not of JSON.
void require_allowed(HttpFields const& fields, Access const& access);

}  // namespace heddle
