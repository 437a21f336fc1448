#include <cstdint>
#include <exception>
#include <inference/trained_model.hpp>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

// bench_model_logits CHECKPOINT < IDS: one pair a line, "source ids | target ids" without start and end tokens, or one
// sequence "| ids" for a decoder-only model. Writes the logits of all pairs' target tokens, float32, to the standard
// output. For bench/parity_exchange.

namespace {

std::vector<std::int32_t> ids_of(std::string const& text) {
  std::istringstream words(text);
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 0; words >> id;) {
    ids.push_back(id);
  }
  return ids;
}

int run(char const* checkpoint) {
  heddle::TrainedModelOptions options;
  options.checkpoint = checkpoint;
  auto const model = heddle::TrainedModel::open(options, [](heddle::ModelDescription const&) {});
  for (std::string line; std::getline(std::cin, line);) {
    std::size_t const bar = line.find('|');
    heddle::SentencePair const pair{0, ids_of(line.substr(0, bar)), ids_of(line.substr(bar + 1))};
    heddle::TokenSequence const sequence{0, pair.target, pair.target};
    bool const alone = model->config().model.is_decoder_only();
    auto const logits =
        model->logits(alone ? heddle::make_sequence_pack(std::span(&sequence, 1), heddle::Side::target)
                            : heddle::make_pack(std::span(&pair, 1), model->vocabulary().special_ids()));
    std::cout.write(reinterpret_cast<char const*>(logits.data()),
                    static_cast<std::streamsize>(logits.size() * sizeof(float)));
  }
  return std::cout.flush() ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::cerr << "usage: bench_model_logits CHECKPOINT < IDS > LOGITS\n";
    return 64;
  }
  try {
    return run(arguments[1]);
  } catch (std::exception const& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
