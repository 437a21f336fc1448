#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle {

/// An image in shades of grey.
struct GreyImage {
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::vector<std::uint8_t> pixels{};  ///< [height, width], the top row first; 0 is black, 255 white
};

/// The image as a PNG file (ISO/IEC 15948) with eight bits per pixel. Throws Error for an image without pixels, of 2^31
/// or more columns or rows, or with another number of pixels than its size says.
std::string to_png(GreyImage const& image);

}  // namespace heddle
