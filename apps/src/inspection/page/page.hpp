#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace heddle {

/// apps/src/inspection/page/web/page.html with its style sheet and scripts, compiled into the program by
/// cmake/HeddleEmbed.cmake.
std::string_view page_frame();

/// The JSON text in a form that no HTML parser takes for markup: it may stand inside a script element.
std::string json_for_script(boost::json::value const& value);

/// One page that needs no other file: the frame with a title and the data that its scripts draw.
std::string assemble_page(std::string_view title, boost::json::value const& data);

/// The smallest and the largest value that a matrix is drawn with.
struct ValueRange {
  double min = 0;
  double max = 1;
};

/// {"rows", "columns", "min", "max", "values"}: a row-major matrix for the page's charts. `values` are 16-bit
/// little-endian steps from min (0) to max (65535), base64: 2.7 bytes each. Values outside the range are drawn
/// as its ends. Throws Error where `values` has no whole rows, or values that are not finite.
boost::json::object matrix_to_json(std::span<double const> values, std::int64_t columns, ValueRange const& range = {});

/// RFC 4648, with padding.
std::string base64(std::span<unsigned char const> bytes);

}  // namespace heddle
