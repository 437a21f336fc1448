#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/base/random.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/samples/text_samples.hpp>
#include <map>

namespace heddle {

namespace {

class JoinedSamples final : public SampleSource {
 public:
  JoinedSamples(std::unique_ptr<TextLines> first, std::unique_ptr<TextLines> second, TextRule rule)
      : first_(std::move(first)),
        second_(std::move(second)),
        rule_(std::move(rule)),
        order_(first_->size(), rule_.seed ? std::optional(random_key(*rule_.seed, "batches.blocks")) : std::nullopt) {}

  std::int64_t windows(std::int64_t /*epoch*/) const override { return order_.windows(); }
  std::vector<std::int64_t> window(std::int64_t epoch, std::int64_t window) const override {
    return order_.window(epoch, window);
  }
  SampleCost cost(std::int64_t epoch, std::int64_t index) const override {
    return rule_.task->cost(shape(epoch, index));
  }
  std::int64_t predicted(std::int64_t epoch, std::int64_t index) const override {
    return rule_.task->predicted(shape(epoch, index));
  }
  void read(std::int64_t epoch, std::span<std::int64_t const> indices, std::int32_t first_number,
            PackFields& into) const override;
  SampleTotals totals(std::int64_t epoch, std::int64_t max_length) const override;
  std::string describe() const override {
    return fmt::format("{} pairs of texts, each joined into a sequence", readable_count(first_->size()));
  }
  std::string warning() const override { return rule_.task->warning(totals(0, rule_.max_length).longest); }

 private:
  TextShape shape(std::int64_t epoch, std::int64_t index) const {
    std::int64_t const between = rule_.two_ends ? 2 : 1;
    std::int64_t const second = 1 + first_->length(index) + between;
    std::int64_t const length = second + second_->length(index) + 1;
    TextShape shape{.epoch = epoch, .index = index, .length = length, .ends = {0}, .second = second};
    for (std::int64_t end = second - between; end < second; ++end) {
      shape.ends.push_back(end);
    }
    shape.ends.push_back(length - 1);
    return shape;
  }

  std::unique_ptr<TextLines> first_, second_;
  TextRule rule_;
  WindowOrder order_;
  mutable std::map<std::int64_t, SampleTotals> totals_;  ///< by max_length: found by asking for every sample's length
};

void JoinedSamples::read(std::int64_t epoch, std::span<std::int64_t const> indices, std::int32_t first_number,
                         PackFields& into) const {
  std::vector<TextSequence> texts;
  for (std::int64_t const index : indices) {
    texts.push_back({shape(epoch, index), first_number++, {rule_.begin}});
    std::vector<std::int32_t>& tokens = texts.back().tokens;
    auto const add = [&](TextLines const& lines, bool two_ends) {
      auto const line = lines.tokens(index, 0, lines.length(index));
      tokens.insert(tokens.end(), line.begin(), line.end());
      tokens.insert(tokens.end(), two_ends ? 2 : 1, rule_.end);
    };
    add(*first_, rule_.two_ends);
    add(*second_, false);
  }
  rule_.task->fill(into, std::move(texts));
}

SampleTotals JoinedSamples::totals(std::int64_t epoch, std::int64_t max_length) const {
  auto const [known, is_new] = totals_.try_emplace(max_length);
  for (std::int64_t index = 0; is_new && index < first_->size(); ++index) {
    add_sample(known->second, cost(epoch, index).longer(), 1, max_length);
  }
  return known->second;
}

}  // namespace

std::unique_ptr<SampleSource> joined_samples(std::unique_ptr<TextLines> first, std::unique_ptr<TextLines> second,
                                             TextRule rule) {
  if (rule.begin == SpecialIds::absent) {
    throw ConfigError("two texts begin with a token that the vocabulary lacks: BERT's [CLS], RoBERTa's <s>");
  }
  return std::make_unique<JoinedSamples>(std::move(first), std::move(second), std::move(rule));
}

}  // namespace heddle
