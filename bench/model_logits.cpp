#include <cstdint>
#include <cstdlib>
#include <exception>
#include <heddle/model.hpp>
#include <inference/translation.hpp>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

// bench_model_logits CHECKPOINT [TOKENS [SOURCE-LANGUAGE TARGET-LANGUAGE]] < IDS: one pair a line, "source ids | target
// ids" without start and end tokens, or one sequence "| ids" for a model of one stack. Writes the logits of all pairs'
// target tokens, float32, to the standard output; with TOKENS, the ids of the greedy output of each source, or of each
// sequence's continuation, at most so many, on a line of text. With SOURCE-LANGUAGE and TARGET-LANGUAGE, which may be
// empty, the input is lines of text, and each line of output is "source ids | output ids", the source's as the encoder
// reads them. For bench/parity/exchange.py and bench/parity/languages.py.

namespace {

std::vector<std::int32_t> ids_of(std::string const& text) {
  std::istringstream words(text);
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 0; words >> id;) {
    ids.push_back(id);
  }
  return ids;
}

void print(std::vector<std::int32_t> const& ids, char const* end) {
  for (std::int32_t const id : ids) {
    std::cout << id << ' ';
  }
  std::cout << end;
}

int translate(char const* checkpoint, std::int64_t greedy_tokens, heddle::Languages const& languages) {
  heddle::TrainedModelOptions options;
  options.checkpoint = checkpoint;
  auto const model = heddle::TrainedModel::open(options);
  model->choose_languages(languages);
  for (std::string line; std::getline(std::cin, line);) {
    heddle::EncodedLine const encoded = heddle::encode_source(*model, line);
    heddle::SampleSide const source = encoded.tokens.value();
    auto const pack = heddle::make_source_pack(std::span(&source, 1), model->vocabulary().special_ids().source);
    print(heddle::to_host<std::int32_t>(pack.source.id), "| ");
    print(translate(*model, std::span(&line, 1), {.max_length = greedy_tokens}, languages).front().front().tokens,
          "\n");
  }
  return std::cout.flush() ? 0 : 1;
}

int run(char const* checkpoint, std::int64_t greedy_tokens) {
  heddle::TrainedModelOptions options;
  options.checkpoint = checkpoint;
  auto const model = heddle::TrainedModel::open(options);
  for (std::string line; std::getline(std::cin, line);) {
    std::size_t const bar = line.find('|');
    heddle::Sample const pair{0, ids_of(line.substr(0, bar)), ids_of(line.substr(bar + 1))};
    heddle::TokenSequence const sequence{0, pair.target.tokens, pair.target.tokens};
    bool const alone = !model->config().model.is_encoder_decoder();
    heddle::Side const side = model->config().model.is_decoder_only() ? heddle::Side::target : heddle::Side::source;
    if (greedy_tokens > 0) {
      heddle::GenerationOptions options_of_search;
      options_of_search.max_length = greedy_tokens;
      auto const found =
          model->generate(std::span(alone ? &pair.target.tokens : &pair.source.tokens, 1), options_of_search);
      print(found.front().front().tokens, "\n");
      continue;
    }
    auto const logits =
        model->logits(alone ? heddle::make_sequence_pack(std::span(&sequence, 1), side)
                            : heddle::make_pack(std::span(&pair, 1), model->vocabulary().special_ids()));
    std::cout.write(reinterpret_cast<char const*>(logits.data()),
                    static_cast<std::streamsize>(logits.size() * sizeof(float)));
  }
  return std::cout.flush() ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2 && count != 3 && count != 5) {
    std::cerr << "usage: bench_model_logits CHECKPOINT [TOKENS [SOURCE-LANGUAGE TARGET-LANGUAGE]] < IDS > LOGITS\n";
    return 64;
  }
  try {
    if (count == 5) {
      return translate(arguments[1], std::atoll(arguments[2]), {arguments[3], arguments[4]});
    }
    return run(arguments[1], count == 3 ? std::atoll(arguments[2]) : 0);
  } catch (std::exception const& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
