#include "text_evaluation.hpp"

#include <fmt/format.h>

#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/dataset/batches.hpp>
#include <heddle/io/dataset/text_samples.hpp>
#include <heddle/io/text/text.hpp>
#include <iostream>

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

std::unique_ptr<TextLines> encode_lines(Tokenizer const& tokenizer, std::string const& text) {
  std::vector<std::vector<std::int32_t>> lines;
  LineReader reader(text);
  for (std::string line; reader.next(line);) {
    if (auto tokens = tokenizer.encode(line); !tokens.empty()) {
      lines.push_back(std::move(tokens));
    }
  }
  if (lines.empty()) {
    throw DataError(fmt::format("{}: none of its {} lines has a token", text, readable_count(reader.line_number())));
  }
  return std::make_unique<MemoryLines>(std::move(lines));
}

}  // namespace

void evaluate_text(TrainedModelOptions const& options, std::string const& text) {
  auto const report = [](std::string const& message) { std::cerr << "heddle: " << message << '\n'; };
  auto const model = TrainedModel::open(options, require_one_stack, report);
  Config const& config = model->config();
  Tokenizer const& tokenizer = model->vocabulary().target;  // of one stack both are the text's
  auto const samples = text_samples(config, encode_lines(tokenizer, text), tokenizer,
                                    {.training = false, .prefixes = model->needs_prefixes()});
  std::cerr << fmt::format("heddle: {}\n", samples->words());
  LossSums const loss = model->loss(SampledMicroBatches(*samples, all_samples(*samples, config.model.max_length),
                                                        {.most_tokens = config.train.micro_batch_tokens}));
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
