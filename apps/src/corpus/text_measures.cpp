#include "corpus/text_measures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/samples/batches.hpp>
#include <heddle/io/samples/text_samples.hpp>
#include <iostream>
#include <memory>

#include "corpus/line_source.hpp"
#include "run/directory/json_text.hpp"

namespace heddle {
namespace {

/// Lines as tokens, of one text, or of two texts of which line n belongs to line n.
using EncodedTexts = std::vector<std::vector<std::vector<std::int32_t>>>;

/// The next lines as tokens, as many as fit into a part of the texts; none at their end. Lines of which a text has no
/// token are left out.
EncodedTexts encode_part(Tokenizer const& tokenizer, std::deque<LineReader>& readers) {
  constexpr std::size_t max_lines = std::size_t{1} << 20;
  constexpr std::size_t max_tokens = std::size_t{1} << 24;
  EncodedTexts texts(readers.size());
  std::size_t tokens = 0;
  while (texts.front().size() < max_lines && tokens < max_tokens) {
    std::vector<std::vector<std::int32_t>> sample;
    for (LineReader& reader : readers) {
      std::string line;
      if (!reader.next(line)) {
        return texts;
      }
      sample.push_back(tokenizer.encode(line));
    }
    if (std::ranges::none_of(sample, [](auto const& ids) { return ids.empty(); })) {
      for (std::size_t text = 0; text < sample.size(); ++text) {
        tokens += sample[text].size();
        texts[text].push_back(std::move(sample[text]));
      }
    }
  }
  return texts;
}

/// The samples that a model's task makes of a text, or of two. Throws ConfigError if it makes none.
std::unique_ptr<SampleSource> samples_of(TrainedModel const& model, EncodedTexts texts, std::string const& name) {
  Config const& config = model.config();
  SampleUse const use{.training = false, .prefixes = model.needs_prefixes()};
  Tokenizer const& tokenizer = model.vocabulary().target;  // of a model that was trained on text both are the same
  auto lines = std::make_unique<MemoryLines>(std::move(texts.front()));
  if (texts.size() > 1) {
    if (model.task().pairs(use.prefixes) != PairForm::joined) {
      throw ConfigError("heddle evaluate --pair measures an encoder on two texts, but {} {}", place_of_task(config),
                        model.task().meaning());
    }
    return joined_samples(std::move(lines), std::make_unique<MemoryLines>(std::move(texts.back())),
                          text_rule(config, model.task(), tokenizer, use, name));
  }
  auto samples = text_samples(config, model.task(), std::move(lines), tokenizer, use, name);
  if (!samples) {
    throw ConfigError(
        "heddle evaluate --text is for models trained on monolingual text, but {} is trained on pairs; "
        "use --source and --reference",
        place_of_task(config));
  }
  return samples;
}

}  // namespace

void print_perplexity(LossSums const& loss, std::string_view kind) {
  double const mean = loss.negative_log_likelihood / static_cast<double>(loss.tokens);
  std::cout << fmt::format("perplexity = {:.6g} ({:.4f} nats for each of {} {}tokens)\n", std::exp(mean), mean,
                           readable_count(loss.tokens), kind);
}

void add_perplexity(LossSums const& loss, boost::json::object& object) {
  double const mean = loss.negative_log_likelihood / static_cast<double>(loss.tokens);
  object["perplexity"] = std::exp(mean);
  object["nats_per_token"] = mean;
  object["tokens"] = loss.tokens;
}

void measure_text(TrainedModel& model, MeasuredText const& measured) {
  std::string const& text = measured.text;
  Config const& config = model.config();
  std::deque<LineReader> readers;
  readers.emplace_back(text, measured.invalid_utf8);
  if (!measured.pair.empty()) {
    require_different_pipes({text, measured.pair});
    readers.emplace_back(measured.pair, measured.invalid_utf8);
  }
  LossSums loss;
  Tokenizer const& tokenizer = model.vocabulary().target;
  for (auto part = encode_part(tokenizer, readers); !part.front().empty(); part = encode_part(tokenizer, readers)) {
    auto const samples = samples_of(model, std::move(part), text);
    std::cerr << fmt::format("heddle: {}\n", samples->describe());
    if (auto const left_out = samples->totals(0, config.model.max_length).left_out; left_out > 0) {
      std::cerr << fmt::format("heddle: {} samples longer than the model takes are left out\n",
                               readable_count(left_out));
    }
    GlobalBatch batch = all_samples(*samples, config.model.max_length);
    if (!batch.samples.empty()) {
      loss +=
          model.loss(SampledMicroBatches(*samples, std::move(batch), {.max_tokens = config.train.micro_batch_tokens}));
    }
  }
  if (loss.tokens == 0) {
    throw DataError("{}: none of its {} lines has a token, or fits the model", text,
                    readable_count(readers.front().line_number()));
  }
  std::ranges::for_each(readers, warn_of_invalid_lines);
  bool const masked = model.task().measures_accuracy();
  double const accuracy = 100 * static_cast<double>(loss.correct) / static_cast<double>(loss.tokens);
  if (measured.json) {
    boost::json::object object;
    add_perplexity(loss, object);
    if (masked) {
      object["masked_accuracy"] = accuracy;
    }
    std::cout << json_text(object) << '\n';
    return;
  }
  if (masked) {
    std::cout << fmt::format("masked accuracy = {:.2f} % ({} of {} masked tokens)\n", accuracy,
                             readable_count(loss.correct), readable_count(loss.tokens));
  }
  print_perplexity(loss, masked ? "masked " : "");
}

}  // namespace heddle
