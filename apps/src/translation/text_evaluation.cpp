#include "text_evaluation.hpp"

#include <fmt/format.h>

#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/dataset/batches.hpp>
#include <heddle/io/dataset/text_samples.hpp>
#include <heddle/io/text/text.hpp>
#include <iostream>

#include "command_line/invalid_utf8.hpp"

namespace heddle {

namespace {

void require_one_stack(ModelDescription const& model) {
  if (model.stacks.size() > 1) {
    throw ConfigError(fmt::format(
        "heddle evaluate --text measures a model of one stack, but {} = {}; a model that translates is measured with "
        "--source and --reference",
        model.keys.place("stacks"), to_toml(OptionValue(model.keys.stacks))));
  }
}

/// The next lines as tokens, as many as fit into a part of a text; none at its end. Lines without a token are left out.
std::vector<std::vector<std::int32_t>> encode_part(Tokenizer const& tokenizer, LineReader& reader) {
  constexpr std::size_t max_lines = std::size_t{1} << 20;
  constexpr std::size_t max_tokens = std::size_t{1} << 24;
  std::vector<std::vector<std::int32_t>> lines;
  std::size_t tokens = 0;
  for (std::string line; lines.size() < max_lines && tokens < max_tokens && reader.next(line);) {
    if (auto ids = tokenizer.encode(line); !ids.empty()) {
      tokens += ids.size();
      lines.push_back(std::move(ids));
    }
  }
  return lines;
}

}  // namespace

void evaluate_text(TrainedModelOptions const& options, std::string const& text, InvalidUtf8 invalid_utf8) {
  auto const report = [](std::string const& message) { std::cerr << "heddle: " << message << '\n'; };
  auto const model = TrainedModel::open(options, require_one_stack, report);
  Config const& config = model->config();
  Tokenizer const& tokenizer = model->vocabulary().target;  // of one stack both are the text's
  LineReader reader(text, invalid_utf8);
  LossSums loss;
  for (auto lines = encode_part(tokenizer, reader); !lines.empty(); lines = encode_part(tokenizer, reader)) {
    auto const samples = text_samples(config, std::make_unique<MemoryLines>(std::move(lines)), tokenizer,
                                      {.training = false, .prefixes = model->needs_prefixes()});
    std::cerr << fmt::format("heddle: {}\n", samples->describe());
    loss += model->loss(SampledMicroBatches(*samples, all_samples(*samples, config.model.max_length),
                                            {.max_tokens = config.train.micro_batch_tokens}));
  }
  if (loss.tokens == 0) {
    throw DataError(fmt::format("{}: none of its {} lines has a token", text, readable_count(reader.line_number())));
  }
  warn_of_invalid_lines(text, reader);
  bool const masked = predicts_masked_tokens(config.model);
  if (masked) {
    std::cout << fmt::format("masked accuracy = {:.2f} % ({} of {} masked tokens)\n",
                             100 * static_cast<double>(loss.correct) / static_cast<double>(loss.tokens),
                             readable_count(loss.correct), readable_count(loss.tokens));
  }
  double const mean = loss.negative_log_likelihood / loss.weight;
  std::cout << fmt::format("perplexity = {:.6g} ({:.4f} nats for each of {} {}tokens)\n", std::exp(mean), mean,
                           readable_count(loss.tokens), masked ? "masked " : "");
}

}  // namespace heddle
