#pragma once

#include <algorithm>
#include <heddle/io/samples/sample_source.hpp>
#include <numeric>
#include <string>
#include <vector>

namespace heddle {

/// Pairs that a test makes up, in one window; their number and their content may depend on the epoch.
class MadePairs : public SampleSource {
 public:
  virtual std::int64_t size(std::int64_t epoch) const = 0;
  /// The pair without begin and end tokens, with `number` as its sample number.
  virtual Sample sample(std::int64_t epoch, std::int64_t index, std::int32_t number) const = 0;

  std::int64_t windows(std::int64_t /*epoch*/) const final { return 1; }
  std::vector<std::int64_t> window(std::int64_t epoch, std::int64_t /*window*/) const final {
    std::vector<std::int64_t> indices(static_cast<std::size_t>(size(epoch)));
    std::iota(indices.begin(), indices.end(), std::int64_t{0});
    return indices;
  }
  void read(std::int64_t epoch, std::span<std::int64_t const> indices, std::int32_t first_number,
            PackFields& into) const final {
    std::vector<Sample> pairs;
    for (std::int64_t const index : indices) {
      pairs.push_back(sample(epoch, index, first_number++));
    }
    fill_tokens(into, pairs, SideIds{.source = {.end = 2}, .target = {.begin = 1, .end = 2}});
  }
  SampleTotals totals(std::int64_t epoch, std::int64_t max_length) const final {
    SampleTotals totals;
    for (std::int64_t index = 0; index < size(epoch); ++index) {
      std::int64_t const length = cost(epoch, index).longer();
      bool const usable = length <= max_length;
      totals.left_out += usable ? 0 : 1;
      totals.usable += usable ? 1 : 0;
      totals.tokens += usable ? length : 0;
      totals.longest = std::max(totals.longest, usable ? length : 0);
    }
    return totals;
  }
  std::string describe() const final { return std::to_string(size(0)) + " sentence pairs"; }
};

}  // namespace heddle
