#pragma once

#include <cstdint>

namespace heddle {

/// The operand of the instruction that configures matrix registers (AMX): eight registers of 16 rows of 64 bytes.
/// A user has it as a static constant: of a local variable GCC 12 may write the first 8 bytes only.
struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

}  // namespace heddle
