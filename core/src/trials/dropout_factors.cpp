#include "dropout_factors.hpp"

#include <heddle/core/base/random.hpp>

namespace heddle {

std::vector<double> dropout_factors(Dropout const& dropout, std::int64_t rows, std::int64_t columns) {
  std::vector<double> factors(static_cast<std::size_t>(rows * columns), 1.0);
  if (!dropout.active()) {
    return factors;
  }
  auto const samples = to_host<std::int32_t>(dropout.sample);
  auto const positions = to_host<std::int32_t>(dropout.position);
  for (std::size_t i = 0; i < factors.size(); ++i) {
    std::size_t const row = i / static_cast<std::size_t>(columns);
    auto const column = static_cast<std::uint32_t>(i % static_cast<std::size_t>(columns)) +
                        static_cast<std::uint32_t>(dropout.first_column);
    auto const words = Philox::words(dropout.key,
                                     {static_cast<std::uint32_t>(samples[row]),
                                      static_cast<std::uint32_t>(positions[row]), column / 8, dropout.step},
                                     Philox::dropout_rounds);
    std::uint32_t const word = words[column % 8 / 2];
    std::uint32_t const half = column % 2 == 0 ? word & 0xffffU : word >> 16;
    factors[i] = half < Dropout::keep_threshold(dropout.rate) ? Dropout::keep_scale(dropout.rate) : 0;
  }
  return factors;
}

}  // namespace heddle
