#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace heddle {

/// The largest number that the demo task knows.
inline constexpr int64_t largest_demo_number = 999'999;

/// "three hundred and twelve thousand and five". Throws UsageError outside [0, largest_demo_number].
std::string english_number(int64_t number);

/// "dreihundertzwölftausendfünf". Throws UsageError outside [0, largest_demo_number].
std::string german_number(int64_t number);

struct DemoDataOptions {
  std::filesystem::path directory;
  int64_t train = 60'000;  ///< sentence pairs, one number each
  int64_t valid = 500;
  int64_t test = 1'000;
  uint64_t seed = 1;
  bool overwrite = false;
};

/// Writes train.en/.de, valid.en/.de and test.en/.de, the same for the same options everywhere. No number is in two of
/// them; numbers of each count of digits get equal shares as far as there are enough; those below a hundred, which
/// introduce the words, are always in train.
/// Throws UsageError for sizes that are not possible, DataError where the files exist already (unless overwrite) and
/// Error where they cannot be written; then nothing is left behind.
void write_demo_data(DemoDataOptions const& options);

}  // namespace heddle
