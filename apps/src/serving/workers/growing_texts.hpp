#pragma once

#include <cstdint>
#include <functional>
#include <heddle/core/generation/generation.hpp>
#include <map>
#include <vector>

namespace heddle {

/// Follows the best hypothesis of each text as it grows: of the finished ones and the likeliest live one, the one with
/// the best score.
class GrowingTexts final : public SearchObserver {
 public:
  using Tokens = std::vector<std::int32_t>;
  using Grow = std::function<void(std::int64_t number, Tokens const& tokens)>;
  GrowingTexts(double length_penalty, Grow grow) : length_penalty_(length_penalty), grow_(std::move(grow)) {}

  void extended(SearchStep const& step) override;
  void forget(std::int64_t number) { texts_.erase(number); }

 private:
  struct Scored {
    Tokens tokens = {};
    double score = 0;
  };
  struct Text {
    std::vector<Tokens> live = {{}};
    std::vector<Scored> finished = {};  ///< the best, if there is one
  };
  double score(double log_probability, std::size_t length) const;

  double length_penalty_;
  Grow grow_;
  std::map<std::int64_t, Text> texts_;
};

}  // namespace heddle
