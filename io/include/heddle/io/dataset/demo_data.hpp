#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace heddle {

/// The largest number in the demo task.
inline constexpr int64_t largest_demo_number = 999'999;

/// The number in English: "three hundred and twelve thousand and five". Throws UsageError outside [0,
/// largest_demo_number].
std::string english_number(int64_t number);

/// The number in German: "dreihundertzwölftausendfünf". Throws UsageError outside [0, largest_demo_number].
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
/// them. Numbers of each count of digits get equal shares as far as there are enough; those below a hundred, which
/// introduce the words, are always in train.
/// Throws UsageError for impossible sizes, DataError if the files already exist (unless overwrite) and Error if they
/// cannot be written; then no file is left.
void write_demo_data(DemoDataOptions const& options);

}  // namespace heddle
