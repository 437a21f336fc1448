#include <immintrin.h>

#include "int8_body.hpp"
#include "support/tile_configuration.hpp"

namespace heddle::int8 {

namespace {

constexpr int register_rows = 16;
constexpr int register_bytes = 64;

/// Blocks of two by two matrix registers: 0 to 3 hold sums, 4 and 5 rows of a, 6 and 7 panels. While it exists, the
/// thread's matrix registers are its own.
struct AmxSums {
  static constexpr bool unsigned_rows = false;

  AmxSums() {
    static constexpr TileConfiguration configuration;
    _tile_loadconfig(&configuration);
  }
  ~AmxSums() { _tile_release(); }
  AmxSums(AmxSums const&) = delete;
  AmxSums& operator=(AmxSums const&) = delete;

  void compute(std::int8_t const* a, std::int64_t stride, std::int64_t rows, std::int8_t const* panels, std::int64_t k,
               Block& sums) const {
    std::int8_t const* const second = panels + k * panel_columns;
    constexpr int stored = sizeof sums[0];
    _tile_zero(0);
    _tile_zero(1);
    if (rows <= register_rows) {
      for (std::int64_t i = 0; i < k; i += reduction_step) {
        _tile_loadd(4, a + i, stride);
        _tile_loadd(6, panels + i * panel_columns, register_bytes);
        _tile_loadd(7, second + i * panel_columns, register_bytes);
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
      }
    } else {
      std::int8_t const* const lower = a + register_rows * stride;
      _tile_zero(2);
      _tile_zero(3);
      for (std::int64_t i = 0; i < k; i += reduction_step) {
        _tile_loadd(4, a + i, stride);
        _tile_loadd(6, panels + i * panel_columns, register_bytes);
        _tile_loadd(5, lower + i, stride);
        _tile_loadd(7, second + i * panel_columns, register_bytes);
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
      }
      _tile_stored(2, sums[register_rows], stored);
      _tile_stored(3, sums[register_rows] + panel_columns, stored);
    }
    _tile_stored(0, sums[0], stored);
    _tile_stored(1, sums[0] + panel_columns, stored);
  }
};

}  // namespace

constinit Functions const amx_functions = functions<AmxSums>;

}  // namespace heddle::int8
