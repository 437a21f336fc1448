#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/tokenizers/line_sample.hpp>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "preparation/block_encoder.hpp"
#include "preparation/encoded_text.hpp"
#include "preparation/given_texts.hpp"
#include "preparation/line_blocks.hpp"

// bench_prepare_stages SOURCE TARGET MODEL DIRECTORY: the pairs that each stage of `heddle prepare` does in a second
// when one thread does nothing else. All stages but that of encoding are those of one thread, which bound how many
// others help. DIRECTORY gets a dataset, which is removed.

namespace {

using namespace heddle;

std::string read_whole(std::filesystem::path const& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <class Stage>
void measure(char const* name, std::int64_t pairs, Stage const& stage) {
  auto const start = std::chrono::steady_clock::now();
  stage();
  double const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::cout << fmt::format("{:<44} {:>12} pairs/s, {:.2f} us a pair\n", name,
                           readable_count(static_cast<double>(pairs) / seconds),
                           1e6 * seconds / static_cast<double>(pairs))
            << std::flush;
}

int run(std::vector<std::string> const& arguments) {
  PrepareOptions options;
  options.source = {arguments.at(0)};
  options.target = {arguments.at(1)};
  options.directory = arguments.at(3);
  GivenTexts const texts = given_texts(options).front();
  GivenTexts const source{texts.name, {texts.sides.front()}};
  Tokenizer const tokenizer = Tokenizer::from_model(read_whole(arguments.at(2)));
  Vocabulary const vocabulary{tokenizer, tokenizer};
  GivenFields const fields(options);

  std::vector<LineBlock> blocks;
  {
    LineBlockReader reader(texts, {}, options.invalid_utf8, false);
    for (LineBlock block; reader.next(block);) {
      blocks.push_back(block);
    }
  }
  std::int64_t const pairs = blocks.empty() ? 0 : blocks.back().numbers.back();
  auto const read = [&](GivenTexts const& given, bool ahead) {
    LineBlockReader reader(given, {}, options.invalid_utf8, ahead);
    for (LineBlock block; reader.next(block);) {
    }
  };
  measure("reading, one thread for both sides", pairs, [&] { read(texts, false); });
  measure("reading the source only", pairs, [&] { read(source, false); });
  measure("reading, a thread for each side", pairs, [&] { read(texts, true); });
  measure("drawing the sample of a vocabulary", pairs, [&] {
    LineSample sample(std::int64_t{64} << 20);
    for (LineBlock const& block : blocks) {
      for (std::size_t index = 0; index < block.size(); ++index) {
        sample.add(0, block.sides[0][index]);
        sample.add(1, block.sides[1][index]);
      }
    }
  });
  std::vector<EncodedBlock> encoded(blocks.size());
  measure("encoding, which each thread does", pairs, [&] {
    BlockEncoder encoder(options, vocabulary, fields);
    for (std::size_t block = 0; block < blocks.size(); ++block) {
      encoder.encode(blocks[block], encoded[block]);
    }
  });
  measure("counting and writing", pairs, [&] {
    DatasetFiles files(options.directory, "bench", vocabulary, false, {}, 0);
    SampleCollector collector(files, true);
    for (EncodedBlock const& block : encoded) {
      collector.add(block);
    }
    collector.finish();
    files.commit();
  });
  std::filesystem::remove(options.directory / "bench.h5");
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) {
    std::cerr << "usage: bench_prepare_stages SOURCE TARGET MODEL DIRECTORY\n";
    return 64;
  }
  try {
    return run({arguments + 1, arguments + count});
  } catch (std::exception const& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
