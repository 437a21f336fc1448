#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace heddle {

/// chrF2 of a corpus that is not kept, 0 to 100, as sacreBLEU computes it by default: character n-grams up to order 6,
/// beta 2, no word n-grams, white space left out. Counts sentence by sentence.
class ChrfCounter {
 public:
  /// Throws DataError for text that is not UTF-8.
  void add(std::string const& hypothesis, std::string const& reference);
  double score() const;

 private:
  struct OrderCounts {
    std::int64_t hypothesis = 0;
    std::int64_t reference = 0;
    std::int64_t matches = 0;
  };

  std::array<OrderCounts, 6> totals_{};  ///< by order
};

}  // namespace heddle
