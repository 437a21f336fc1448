#include <heddle/core/base/random.hpp>
#include <heddle/core/tasks/task.hpp>

namespace heddle {

namespace {

/// Sequences whose tokens are predicted one after another: row i reads token i - 1, the first row the start token. With
/// prefixes of random lengths, uniform from 1 to the sequence's (Raffel et al. 2020, "prefix LM"), the tokens after the
/// prefix are predicted; the start token counts to the prefix.
class NextTokens final : public TextTask {
 public:
  explicit NextTokens(TextTaskSpec const& spec)
      : begin_(spec.ids.begin), prefixes_(spec.prefixes), key_(spec.random_key("text.prefixes")) {}

  SampleCost cost(TextShape const& shape) const override { return {0, shape.length}; }
  std::int64_t predicted(TextShape const& shape) const override {
    return prefixes_ ? shape.length - prefix(shape) + 1 : shape.length;
  }
  void fill(PackFields& into, std::vector<TextSequence> sequences) const override {
    std::vector<TokenSequence> packed;
    for (TextSequence& text : sequences) {
      packed.push_back({text.number, {begin_}, std::move(text.tokens)});
      TokenSequence& sequence = packed.back();
      sequence.input.insert(sequence.input.end(), sequence.output.begin(), sequence.output.end() - 1);
      if (prefixes_) {
        sequence.prefix = static_cast<std::int32_t>(prefix(text));
        std::fill_n(sequence.output.begin(), sequence.prefix - 1, -1);  // the prefix shows these tokens
      }
    }
    fill_tokens(into, packed, Side::target);
  }

 private:
  std::int64_t prefix(TextShape const& shape) const {
    auto const words =
        Philox::words(key_, {static_cast<std::uint32_t>(shape.index), static_cast<std::uint32_t>(shape.index >> 32),
                             static_cast<std::uint32_t>(shape.epoch), 0});
    return 1 + static_cast<std::int64_t>(std::uint64_t{words[0]} * static_cast<std::uint64_t>(shape.length) >> 32);
  }

  std::int32_t begin_;
  bool prefixes_;
  std::uint64_t key_;  ///< key of the random lengths of prefixes
};

class LanguageModel final : public Task {
 public:
  std::string meaning() const override { return "predicts each next token, of text or of the targets of pairs"; }
  std::string unsupported_reason(ModelConfig const& model) const override {
    return model.is_decoder_only() ? "" : "needs a decoder-only model";
  }
  SampleFields fields() const override { return {SampleField::weights}; }
  std::optional<PairForm> pairs(bool prefixes) const override {
    return prefixes ? PairForm::prefixed : PairForm::targets;
  }
  std::unique_ptr<TextTask> text(TextTaskSpec const& spec) const override { return std::make_unique<NextTokens>(spec); }
};

}  // namespace

std::shared_ptr<Task const> make_language_model() {
  return std::make_shared<LanguageModel>();
}

}  // namespace heddle
