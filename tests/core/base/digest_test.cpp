#include <heddle/core/base/digest.hpp>

#include "test.hpp"

namespace heddle {
namespace {

// Rows of 32 bytes, 64 of them at a time, and what is left: every length has its own digest, also of zeros.
TEST(DigestOfBytesTest, SeesLengths) {
  std::vector<std::byte> const zeros(3 * 4096 + 70);
  std::set<std::uint64_t> digests;
  for (std::size_t bytes = 0; bytes <= zeros.size(); ++bytes) {
    digests.insert(digest(std::span(zeros).first(bytes)));
  }
  EXPECT_EQ(digests.size(), zeros.size() + 1);
}

// A faulty column of a memory chip flips the same bit at regular distances.
TEST(DigestOfBytesTest, EqualFlipsAtRegularDistancesDoNotCancel) {
  std::vector<std::byte> bytes(1 << 16);
  for (std::size_t index = 0; index < bytes.size(); ++index) {
    bytes[index] = static_cast<std::byte>(index * 37 + index / 256);
  }
  std::uint64_t const untouched = digest(bytes);
  for (std::size_t distance = 8; distance < bytes.size() / 2; distance *= 2) {
    for (std::size_t const place : {std::size_t{7}, std::size_t{3}}) {
      auto const flip = [&](std::size_t at) { bytes[at] ^= std::byte{0x80}; };
      flip(place);
      flip(place + distance);
      EXPECT_NE(digest(bytes), untouched) << "two flips, " << distance << " bytes apart";
      flip(place);
      flip(place + distance);
      for (std::size_t at = place; at < bytes.size(); at += distance) {
        flip(at);
      }
      EXPECT_NE(digest(bytes), untouched) << "flips every " << distance << " bytes";
      for (std::size_t at = place; at < bytes.size(); at += distance) {
        flip(at);
      }
    }
  }
  EXPECT_EQ(digest(bytes), untouched);
}

}  // namespace
}  // namespace heddle
