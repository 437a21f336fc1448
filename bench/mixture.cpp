#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/parse_number.hpp>
#include <heddle/core/tensor/runtime.hpp>
#include <heddle/io/samples/batches.hpp>
#include <heddle/io/samples/training_data.hpp>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "run/configuration/registration.hpp"

// The training data of a configuration without its training:
//
//   bench_mixture draw RUN.toml
//     each sample of the run until its data ends: stage, corpus, source and target, separated by tabs
//   bench_mixture seek RUN.toml PLACES
//     opens the data and reads the first batch at each of so many random places, with the files out of the page cache:
//     the times, and the memory that it took
//   bench_mixture write MODEL DIRECTORY CORPORA PAIRS
//     datasets 00.h5, 01.h5, … of random tokens of a vocabulary

namespace {

using namespace heddle;
using Clock = std::chrono::steady_clock;

/// Seconds, and those of the processor.
struct Times {
  double wall = 0;
  double processor = 0;

  static Times now() {
    return {std::chrono::duration<double>(Clock::now().time_since_epoch()).count(),
            static_cast<double>(std::clock()) / CLOCKS_PER_SEC};
  }
  Times since(Times const& start) const { return {wall - start.wall, processor - start.processor}; }
};

void print_times(char const* name, std::vector<Times> times) {
  auto const largest = [&](auto member) { return std::ranges::max(times, {}, member).*member; };
  auto const median = [&](auto member) {
    std::ranges::sort(times, {}, member);
    return times[times.size() / 2].*member;
  };
  fmt::print("{}: median {:.3f} s, at most {:.3f} s; of processor time {:.3f} s and {:.3f} s\n", name,
             median(&Times::wall), largest(&Times::wall), median(&Times::processor), largest(&Times::processor));
}

/// A configuration's data, opened to draw from.
class Opened {
 public:
  Opened(Config const& config, Registries const& registries, BatchPlanner::Limits const& limits)
      : data_(open_training_data(config)),
        planner_(training_mixture(config, registries.tasks.of(config), data_, {}), limits, config.train.seed) {}

  TrainingData const& data() const { return data_; }
  BatchPlanner& planner() { return planner_; }

 private:
  TrainingData data_;
  BatchPlanner planner_;
};

void draw(Config const& config, Registries const& registries) {
  BatchPlanner::Limits limits = BatchPlanner::Limits::of(config);
  limits.batch_tokens = 1;  // a batch is one sample, so that its stage is known
  Opened opened(config, registries, limits);
  BatchPlanner& planner = opened.planner();
  Vocabulary const& vocabulary = opened.data().vocabulary();
  PackFields fields;
  while (!planner.exhausted()) {
    auto const stage = planner.cursor().stage.stage;
    GlobalBatch const batch = planner.next();
    planner.mixture().read(batch.samples, 0, fields);
    auto const corpus = static_cast<std::size_t>(batch.samples.front().corpus);
    fmt::print("{}\t{}\t{}\t{}\n", stage, planner.mixture().corpora()[corpus].name,
               vocabulary.source.decode(fields.source.id), vocabulary.target.decode(fields.target.id));
  }
}

void leave_page_cache(Config const& config) {
  for (CorpusConfig const& corpus : config.data.training()) {
    for (std::string const& path : corpus.train) {
      int const file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
      ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
      ::close(file);
    }
  }
}

MixtureCursor random_place(Mixture const& mixture, std::mt19937_64& random) {
  constexpr std::uint64_t epochs = 100;
  constexpr std::uint64_t places = 1000;
  MixtureCursor cursor;
  for (Corpus const& corpus : mixture.corpora()) {
    auto const epoch = static_cast<std::int64_t>(random() % epochs);
    auto const window =
        static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(corpus.samples->windows(epoch)));
    auto const place = static_cast<std::int64_t>(random() % places);
    cursor.corpora.push_back({.corpus = corpus.name, .epoch = epoch, .position = window << 32 | place});
  }
  return cursor;
}

void seek(Config const& config, Registries const& registries, std::int64_t places) {
  std::mt19937_64 random(1);
  std::vector<Times> opening;
  std::vector<Times> reading;
  for (std::int64_t place = 0; place < places; ++place) {
    leave_page_cache(config);
    Times const start = Times::now();
    Opened opened(config, registries, BatchPlanner::Limits::of(config));
    opening.push_back(Times::now().since(start));
    MixtureCursor const cursor = random_place(opened.planner().mixture(), random);
    Times const sought = Times::now();
    opened.planner().seek(cursor);
    GlobalBatch const batch = opened.planner().next();
    PackFields fields;
    opened.planner().mixture().read(batch.samples, 0, fields);
    reading.push_back(Times::now().since(sought));
  }
  print_times("opening", opening);
  print_times("seeking and reading a batch", reading);
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  fmt::print("{} places, at most {} MiB of memory\n", places, usage.ru_maxrss / 1024);
}

void write(std::string const& model, std::filesystem::path const& directory, std::int64_t corpora, std::int64_t pairs) {
  std::ifstream file(model, std::ios::binary);
  Tokenizer const tokenizer = Tokenizer::from_model({std::istreambuf_iterator<char>(file), {}});
  std::mt19937_64 random(1);
  constexpr std::uint64_t longest = 13;
  constexpr std::uint64_t special = 10;
  auto const side = [&](std::vector<std::int32_t>& tokens) {
    tokens.resize(1 + random() % longest);
    std::ranges::generate(tokens, [&] {
      return static_cast<std::int32_t>(special + random() % (static_cast<std::uint64_t>(tokenizer.size()) - special));
    });
  };
  std::vector<std::int32_t> source;
  std::vector<std::int32_t> target;
  for (std::int64_t corpus = 0; corpus < corpora; ++corpus) {
    DatasetWriter writer(directory / fmt::format("{:02}.h5", corpus), {tokenizer, tokenizer});
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
      side(source);
      side(target);
      writer.add(source, target);
    }
    writer.commit();
  }
}

/// Throws UsageError for other arguments.
void run(std::vector<std::string> const& arguments) {
  std::string const& what = arguments.empty() ? "" : arguments[0];
  auto const number = [&](std::size_t index) { return parse_number<std::int64_t>(arguments[index]).value_or(0); };
  if (what == "write" && arguments.size() == 5) {
    return write(arguments[1], arguments[2], number(3), number(4));
  }
  if ((what != "draw" || arguments.size() != 2) && (what != "seek" || arguments.size() != 3 || number(2) < 1)) {
    throw UsageError("usage: bench_mixture draw RUN.toml | seek RUN.toml PLACES | write MODEL DIRECTORY CORPORA PAIRS");
  }
  Runtime runtime;
  Registries registries;
  register_everything({}, registries, runtime.execution());
  ConfigOptions options;
  options.config = arguments[1];
  Config const config = read_config(options);
  if (what == "draw") {
    draw(config, registries);
  } else {
    seek(config, registries, number(2));
  }
}

}  // namespace

int main(int count, char** arguments) {
  try {
    run({arguments + 1, arguments + count});
    return 0;
  } catch (UsageError const& error) {
    std::cerr << error.what() << '\n';
    return 64;
  } catch (std::exception const& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
