#pragma once

#include <cstdint>
#include <heddle/io/metrics/metric.hpp>

namespace heddle {

/// Bootstrap resampling (Koehn 2004) with sacreBLEU's own draws: its numbers are those of `sacrebleu --confidence` and
/// `--paired-bs`.
struct Resampling {
  std::int64_t samples = 1000;
  std::uint32_t seed = 12345;  ///< SACREBLEU_SEED
};

/// The mean score of the samples and half of the interval that holds 95 % of them.
struct Confidence {
  double mean = 0;
  double half_width = 0;
};

/// The confidence interval of a corpus's score. Throws DataError for a corpus without segments.
Confidence confidence_of(CorpusScore const& corpus, Resampling const& resampling = {});

/// The probability of a difference as large as that of two systems' scores if the systems were equally good; 1 where no
/// sample has a difference. Both are of the same metric and the same segments; throws Error otherwise.
double p_value_of(CorpusScore const& baseline, CorpusScore const& system, Resampling const& resampling = {});

}  // namespace heddle
