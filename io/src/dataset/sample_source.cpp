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

Pack PrefixedPairs::pack(std::int64_t /*epoch*/, std::span<std::int64_t const> indices, std::int32_t first_number,
                         GroupMember split) const {
  SpecialIds const ids = dataset_.vocabulary().special_ids().target;
  std::vector<TokenSequence> packed;
  for (std::int64_t const index : indices) {
    auto const source = dataset_.source(index);
    auto const target = dataset_.target(index);
    TokenSequence sequence{first_number++, {ids.begin}, {}, static_cast<std::int32_t>(source.size() + 2)};
    sequence.input.insert(sequence.input.end(), source.begin(), source.end());
    sequence.input.push_back(ids.end);
    sequence.output.assign(sequence.input.size() - 1, -1);
    sequence.input.insert(sequence.input.end(), target.begin(), target.end());
    sequence.output.insert(sequence.output.end(), target.begin(), target.end());
    sequence.output.push_back(ids.end);
    packed.push_back(std::move(sequence));
  }
  return make_sequence_pack(packed, Side::target, split);
}

std::string PrefixedPairs::words(std::int64_t epoch) const {
  return fmt::format("{} sentence pairs, the sources as prefixes of the targets", size(epoch));
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
    if (!use.prefixes) {
      return std::make_unique<TargetSamples>(dataset);
    }
    if (!dataset.joint()) {
      refuse(model,
             fmt::format("with mask = \"prefix\" reads sources and targets as one text, but those of {} have "
                         "vocabularies of their own; `heddle prepare` without --separate-vocab makes a joint one",
                         dataset.path().string()));
    }
    return std::make_unique<PrefixedPairs>(dataset);
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
