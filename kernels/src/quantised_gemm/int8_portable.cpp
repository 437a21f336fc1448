#include "int8_body.hpp"

namespace heddle::int8 {

namespace {

struct PortableSums {
  static constexpr bool unsigned_rows = false;

  static void compute(std::int8_t const* a, std::int64_t stride, std::int64_t rows, std::int8_t const* panels,
                      std::int64_t k, Block& sums) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t panel = 0; panel < block_columns / panel_columns; ++panel) {
        std::int32_t of_panel[panel_columns] = {};
        for (std::int64_t i = 0; i < k; i += group) {
          std::int8_t const* const words = panels + (panel * k + i) * panel_columns;
          std::int8_t const* const factors = a + row * stride + i;
          for (std::int64_t column = 0; column < panel_columns; ++column) {
            std::int8_t const* const word = words + column * group;
            of_panel[column] +=
                factors[0] * word[0] + factors[1] * word[1] + factors[2] * word[2] + factors[3] * word[3];
          }
        }
        std::memcpy(sums[row] + panel * panel_columns, of_panel, sizeof of_panel);
      }
    }
  }
};

}  // namespace

constinit Functions const portable_functions = functions<PortableSums>;

}  // namespace heddle::int8
