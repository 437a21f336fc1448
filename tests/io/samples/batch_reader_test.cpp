#include <heddle/core/base/seconds.hpp>
#include <heddle/io/samples/batch_reader.hpp>
#include <thread>

#include "dataset_fixture.hpp"
#include "file_faults.hpp"
#include "test.hpp"

namespace heddle {
namespace {

using namespace std::chrono_literals;

/// More blocks of tokens than HDF5 and a dataset with little memory keep.
void write_long_sentences(fs::path const& path) {
  std::vector<std::int32_t> const sentence(2000, 10);
  DatasetWriter writer(path, separate_vocabulary());
  for (int pair = 0; pair < 700; ++pair) {
    writer.add(sentence, sentence);
  }
  writer.commit();
}

/// The shortest wait for a batch of four pairs, which is read from a disk that takes 10 ms for each block, beside steps
/// of 200 ms.
double shortest_wait(fs::path const& path, bool ahead) {
  Dataset const dataset = Dataset::open(path, 1);
  DatasetSamples const samples(dataset);
  BatchReader reader({samples, {.batch_tokens = 9000, .max_length = 3000}, 7}, {}, Communicator::self());
  reader.next();
  double shortest = 1e9;
  for (int step = 0; step < 3; ++step) {
    SlowReads const slow(10ms);
    if (ahead) {
      reader.read_ahead();
      std::this_thread::sleep_for(200ms);
    }
    auto const began = SteadyClock::now();
    reader.next();
    shortest = std::min(shortest, seconds_since(began));
  }
  return shortest;
}

TEST(BatchReaderOnASlowDisk, AStepDoesNotWaitWhileReadingTakesLessTime) {
  TemporaryDirectory const directory;
  write_long_sentences(directory / "train.h5");
  EXPECT_GT(shortest_wait(directory / "train.h5", false), 0.020);
  EXPECT_LT(shortest_wait(directory / "train.h5", true), 0.010);
}

}  // namespace
}  // namespace heddle
