#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <span>
#include <string>

namespace heddle {

/// The smallest and the largest value that a matrix is drawn with.
struct ValueRange {
  double min = 0;
  double max = 1;
};
/// That of the values; one without extent is widened. Throws Error for values that are not finite.
ValueRange range_of(std::span<double const> values);

/// {"rows", "columns", "min", "max", "values"}: a row-major matrix for the page's charts. `values` are 16-bit
/// little-endian steps from min (0) to max (65535), base64: 2.7 bytes each. Values outside the range are drawn
/// as its ends. Throws Error where `values` has no whole rows.
boost::json::object matrix_to_json(std::span<double const> values, std::int64_t columns, ValueRange const& range);

/// RFC 4648, with padding.
std::string base64(std::span<unsigned char const> bytes);

}  // namespace heddle
