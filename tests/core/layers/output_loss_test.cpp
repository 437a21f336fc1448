#include <heddle/core/base/index_range.hpp>
#include <heddle/core/layers/output_loss.hpp>

#include "test.hpp"

namespace heddle {
namespace {

constexpr std::int64_t max_bytes = std::int64_t{512} << 20;

TEST(OutputLoss, ADeviceHasAsManyLogitsAsFit) {
  EXPECT_EQ(OutputLoss::device_chunk_tokens(32'768, 1, DType::bfloat16), 8'192);
  EXPECT_EQ(OutputLoss::device_chunk_tokens(32'768, 1, DType::float32), 4'096);
  EXPECT_EQ(OutputLoss::device_chunk_tokens(32'768, 4, DType::bfloat16), 32'768);
  EXPECT_EQ(OutputLoss::device_chunk_tokens(10'000'000, 1, DType::float64), 256);  // at least a chunk of the host
}

// Ranks reduce each chunk together: the largest of uneven parts decides for all.
TEST(OutputLoss, TheLargestPartOfAVocabularyFits) {
  for (std::int64_t const vocabulary : {26'887, 32'769, 53'773}) {
    for (int const ranks : {2, 3, 4}) {
      std::int64_t const chunk = OutputLoss::device_chunk_tokens(vocabulary, ranks, DType::bfloat16);
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_LE(chunk * share(vocabulary, rank, ranks).count() * 2, max_bytes) << vocabulary << " " << ranks;
      }
    }
  }
}

}  // namespace
}  // namespace heddle
