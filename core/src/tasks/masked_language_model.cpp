#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/random.hpp>
#include <heddle/core/tasks/task.hpp>

namespace heddle {

namespace {

/// Sequences some of whose tokens an encoder is to predict (Devlin et al. 2019): each token except the end tokens with
/// the probability train.mask_rate, in a sequence without any such token the one with the smallest random number. Of
/// these, 80 % are read as the mask token, 10 % as a random token of the vocabulary, and 10 % as they are.
class MaskedTokens final : public TextTask {
 public:
  explicit MaskedTokens(TextTaskSpec const& spec)
      : rate_(spec.train.mask_rate),
        mask_(spec.ids.mask),
        vocabulary_(static_cast<std::uint64_t>(spec.vocabulary)),
        key_(spec.random_key("text.masks")) {}

  bool needs_ends() const override { return true; }
  SampleCost cost(TextShape const& shape) const override { return {shape.length, 0}; }
  std::int64_t predicted(TextShape const& shape) const override { return std::ssize(masked(shape)); }
  void fill(PackFields& into, std::vector<TextSequence> sequences) const override {
    std::vector<TokenSequence> packed;
    for (TextSequence& text : sequences) {
      packed.push_back({text.number, std::move(text.tokens), {}, static_cast<std::int32_t>(text.second)});
      TokenSequence& sequence = packed.back();
      sequence.output.assign(sequence.input.size(), -1);
      for (auto const& [position, input, random_token] : masked(text)) {
        sequence.output[position] = sequence.input[position];
        if (input != Masked::Input::unchanged) {
          sequence.input[position] = input == Masked::Input::mask ? mask_ : random_token;
        }
      }
    }
    fill_tokens(into, packed, Side::source);
  }

 private:
  /// A position to predict, and the token that is read there.
  struct Masked {
    std::size_t position = 0;
    enum class Input : std::uint8_t { mask, random, unchanged } input = Input::mask;
    std::int32_t random_token = 0;
  };
  struct Draw {
    double number = 0;  ///< in [0, 1): the position is to be predicted if it is below the rate
    Masked masked;
  };

  Draw draw(TextShape const& shape, std::size_t position) const {
    auto const words =
        Philox::words(key_, {static_cast<std::uint32_t>(shape.index), static_cast<std::uint32_t>(shape.index >> 32),
                             static_cast<std::uint32_t>(shape.epoch), static_cast<std::uint32_t>(position)});
    auto const share = [](std::uint32_t word) { return std::ldexp(static_cast<double>(word), -32); };
    Draw draw{.number = share(words[0]), .masked = {position, Masked::Input::unchanged, 0}};
    if (share(words[1]) < 0.8) {
      draw.masked.input = Masked::Input::mask;
    } else if (share(words[1]) < 0.9) {
      draw.masked.input = Masked::Input::random;
      draw.masked.random_token = static_cast<std::int32_t>(std::uint64_t{words[2]} * vocabulary_ >> 32);
    }
    return draw;
  }

  std::vector<Masked> masked(TextShape const& shape) const {
    std::vector<Masked> chosen;
    std::optional<Draw> min;
    auto end = shape.ends.begin();
    for (std::int64_t position = 0; position < shape.length; ++position) {
      if (end != shape.ends.end() && *end == position) {
        ++end;
        continue;
      }
      Draw const here = draw(shape, static_cast<std::size_t>(position));
      if (here.number < rate_) {
        chosen.push_back(here.masked);
      }
      if (!min || here.number < min->number) {
        min = here;
      }
    }
    if (chosen.empty()) {  // without any other token the end token: the rest of a line that was cut
      chosen.push_back(min ? min->masked : draw(shape, 0).masked);
    }
    return chosen;
  }

  double rate_;
  std::int32_t mask_;
  std::uint64_t vocabulary_;
  std::uint64_t key_;
};

class MaskedLanguageModel final : public Task {
 public:
  std::string meaning() const override { return "predicts masked tokens of text, or of pairs of texts"; }
  std::string unsupported_reason(ModelConfig const& model) const override {
    return model.is_encoder_decoder() || model.is_decoder_only() ? "needs an encoder-only model" : "";
  }
  std::optional<PairForm> pairs(bool /*prefixes*/) const override { return PairForm::joined; }
  std::unique_ptr<TextTask> text(TextTaskSpec const& spec) const override {
    if (spec.ids.mask == SpecialIds::absent) {
      throw ConfigError(
          "{} predicts masked tokens, but the vocabulary of {} has no piece <mask>; `heddle prepare --text …` without "
          "--vocab-model learns one that has",
          spec.where, spec.dataset);
    }
    return std::make_unique<MaskedTokens>(spec);
  }
  std::vector<std::string> keys() const override { return {"mask_rate"}; }
  bool measures_accuracy() const override { return true; }
};

}  // namespace

std::shared_ptr<Task const> make_masked_language_model() {
  return std::make_shared<MaskedLanguageModel>();
}

}  // namespace heddle
