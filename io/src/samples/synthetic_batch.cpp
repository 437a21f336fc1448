#include <algorithm>
#include <heddle/io/samples/synthetic_batch.hpp>
#include <random>
#include <utility>

namespace heddle {

SyntheticBatch::SyntheticBatch(SyntheticText const& text) {
  std::mt19937 random(1);  // NOLINT: the same numbers in each run
  auto const sentence = [&](std::int64_t pieces) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(pieces));
    for (std::int32_t& id : ids) {
      id = static_cast<std::int32_t>(3 + random() % static_cast<std::uint64_t>(text.vocabulary - 3));
    }
    return ids;
  };
  std::uniform_int_distribution<std::int64_t> length(text.shortest, text.longest);
  std::int32_t sample = 0;
  for (std::int64_t index = 0; index < text.micro_batches; ++index) {
    std::vector<Sample> pairs;
    std::int64_t filled = 0;
    while (true) {
      std::int64_t const source = length(random);
      // A translation is about as long as its source.
      std::int64_t const target = std::clamp(source * (90 + length(random) % 21) / 100, text.shortest, text.longest);
      filled += std::max(source, target);
      if (filled > text.tokens && !pairs.empty()) {
        break;
      }
      pairs.push_back({sample++, sentence(source - 1), sentence(target - 1)});
      tokens_.target += target;
      tokens_.all += source + target;
    }
    micro_batches_.push_back(std::move(pairs));
  }
}

}  // namespace heddle
