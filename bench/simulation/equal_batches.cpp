#include "equal_batches.hpp"

#include <heddle/core/base/error.hpp>
#include <map>
#include <tuple>

namespace heddle {

namespace {

constexpr SpecialIds special_ids{.begin = 1, .end = 2, .unknown = 0};
constexpr std::int32_t first_piece = 4;

/// Pairs of sentences whose tokens are all alike: no kernel looks at them.
std::vector<Sample> pairs_of(std::int64_t count, std::int64_t tokens) {
  std::vector<std::int32_t> const pieces(static_cast<std::size_t>(tokens - 1), first_piece);
  std::vector<Sample> pairs;
  for (std::int64_t sample = 0; sample < count; ++sample) {
    pairs.push_back({static_cast<std::int32_t>(sample), pieces, pieces});
  }
  return pairs;
}

class EqualMicroBatches final : public MicroBatchSource {
 public:
  EqualMicroBatches(std::int64_t count, BatchTokens const& tokens, Pack const& pack)
      : count_(count), tokens_(tokens), pack_(pack) {}

  std::int64_t count() const override { return count_; }
  BatchTokens tokens() const override { return tokens_; }
  Pack micro_batch(std::int64_t index) const override {
    static_cast<void>(index);
    return pack_;
  }

 private:
  std::int64_t count_;
  BatchTokens tokens_;
  Pack const& pack_;
};

Pack const& pack_of(std::int64_t sentences, std::int64_t tokens, ContextSplit const& context) {
  // Never destroyed: when the process ends there are no ranks that could release tensors.
  static auto& packs = *new std::map<std::tuple<std::int64_t, std::int64_t, int, int, int, int>, Pack>();
  auto const [encoder, decoder] = std::pair(context.encoder(), context.decoder());
  auto [place, is_new] =
      packs.try_emplace({sentences, tokens, encoder.rank, encoder.ranks, decoder.rank, decoder.ranks});
  if (is_new) {
    place->second = make_pack(pairs_of(sentences, tokens), {special_ids, special_ids}, context);
  }
  return place->second;
}

}  // namespace

std::unique_ptr<MicroBatchSource> EqualBatches::cut(int batch, MicroBatchCut const& cut) const {
  static_cast<void>(batch);
  std::int64_t const each = cut.max_tokens * cut.data.ranks;
  if (cut.max_tokens % sentence_tokens_ != 0 || batch_tokens_ % each != 0) {
    throw ConfigError(
        "a batch of {} tokens is not a whole number of micro-batches of {} tokens for each of {} data "
        "ranks, or these no whole sentences of {} tokens",
        batch_tokens_, cut.max_tokens, cut.data.ranks, sentence_tokens_);
  }
  BatchTokens const tokens{.target = batch_tokens_, .all = 2 * batch_tokens_};
  return std::make_unique<EqualMicroBatches>(batch_tokens_ / each, tokens,
                                             pack_of(cut.max_tokens / sentence_tokens_, sentence_tokens_, cut.context));
}

}  // namespace heddle
