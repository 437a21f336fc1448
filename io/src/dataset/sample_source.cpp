#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/io/dataset/sample_source.hpp>
#include <heddle/io/dataset/text_samples.hpp>

namespace heddle {

namespace {

/// "run.toml:3:1: model.stacks = ["encoder"] REASON".
[[noreturn]] void refuse(ModelConfig const& model, std::string const& reason) {
  throw ConfigError(fmt::format("{} = {} {}", model.place("stacks"), to_toml(OptionValue(model.stacks)), reason));
}

}  // namespace

Pack PairSource::pack(std::int64_t epoch, std::span<std::int64_t const> indices, std::int32_t first_number,
                      GroupMember split) const {
  std::vector<SentencePair> pairs;
  for (std::int64_t const index : indices) {
    pairs.push_back(sample(epoch, index, first_number++));
  }
  return make_pack(pairs, ids(), split);
}

std::string PairSource::words(std::int64_t epoch) const {
  return fmt::format("{} sentence pairs", size(epoch));
}

bool predicts_masked_tokens(ModelConfig const& model) {
  return !stack_kind(model.stacks.back()).predicts;
}

std::unique_ptr<SampleSource> samples_for(Config const& config, Dataset const& dataset, SampleUse use) {
  ModelConfig const& model = config.model;
  std::string const data = fmt::format("{} has {}", dataset.path().string(), dataset.content());
  if (model.stacks.size() > 1) {
    if (dataset.has_lines()) {
      refuse(model, fmt::format("learns from sentence pairs, but {}; make pairs with `heddle prepare --source … "
                                "--target …`, or choose one stack, [\"decoder\"] or [\"encoder\"]",
                                data));
    }
    return std::make_unique<DatasetSamples>(dataset);
  }
  bool const masked = predicts_masked_tokens(model);
  if (!dataset.has_lines()) {
    if (masked) {
      refuse(model, fmt::format("learns from lines of text, but {}; make lines with `heddle prepare --text …`, or add "
                                "\"decoder\"",
                                data));
    }
    return std::make_unique<TargetSamples>(dataset);
  }
  Tokenizer const& tokenizer = dataset.source_tokenizer();
  if (masked && tokenizer.special_ids().mask == SpecialIds::absent) {
    refuse(model, fmt::format("predicts masked tokens, but the vocabulary of {} has no piece <mask>; `heddle prepare "
                              "--text …` without --vocab-model learns one that has",
                              dataset.path().string()));
  }
  return text_samples(config, std::make_unique<DatasetLines>(dataset), tokenizer, use);
}

}  // namespace heddle
