#include <unistd.h>

#include <heddle/core/base/seconds.hpp>
#include <heddle/io/samples/batches.hpp>

#include "dataset_fixture.hpp"
#include "torture.hpp"

namespace heddle {
namespace {

std::int64_t resident_bytes() {
  std::ifstream statistics("/proc/self/statm");
  std::int64_t size = 0;
  std::int64_t resident = 0;
  statistics >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(LargeDataset, OpensAndSeeksAnywhere) {
  std::int64_t const pairs = torture_count(200'000, 100'000'000);
  TemporaryDirectory const directory;
  SteadyClock::time_point began = SteadyClock::now();
  {
    DatasetWriter writer(directory / "train.h5", separate_vocabulary());
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
      writer.add(sentence(pair % 7919, 60), sentence(pair % 7907 + 3, 50));
    }
    writer.commit();
  }
  double const writing = seconds_since(began);
  std::int64_t const memory = resident_bytes();
  began = SteadyClock::now();
  Dataset const dataset = Dataset::open(directory / "train.h5");
  DatasetSamples const samples(dataset, PairForm::pairs, 3);
  BatchPlanner planner(samples, {.batch_tokens = 4096, .max_length = 100}, 3);
  double const opening = seconds_since(began);
  double slowest = 0;
  PackFields tokens;
  for (std::int64_t seek = 0; seek < 20; ++seek) {
    began = SteadyClock::now();
    std::int64_t const window = seek * 7919 % samples.windows(seek);
    planner.seek({.corpora = {{.epoch = seek, .position = window << 32 | 100}}});
    GlobalBatch const batch = planner.next();
    Mixture(samples).read(batch.samples, 0, tokens);
    slowest = std::max(slowest, seconds_since(began));
    EXPECT_EQ(tokens.source.sample.size(), batch.samples.size());
  }
  double const mebibytes = static_cast<double>(resident_bytes() - memory) / (1 << 20);
  print_figures(
      fmt::format("{} pairs, {:.1f} MiB of file, written in {:.1f} s; opened in {:.3f} s, slowest of 20 "
                  "seeks {:.3f} s, {:.1f} MiB of memory",
                  pairs, static_cast<double>(std::filesystem::file_size(directory / "train.h5")) / (1 << 20), writing,
                  opening, slowest, mebibytes));
  if (memory_is_ours) {
    EXPECT_LT(opening, 1);
    EXPECT_LT(slowest, 1);
    EXPECT_LT(mebibytes, 64);
  }
}

}  // namespace
}  // namespace heddle
