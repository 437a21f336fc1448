#include "probe.hpp"

#include <algorithm>
#include <heddle/core/base/random.hpp>

namespace heddle {

namespace {

constexpr std::int32_t sequences = 4;
constexpr std::int64_t longest = 24;

/// Tokens among `pieces`, or all of the vocabulary, that depend only on these numbers.
std::vector<std::int32_t> random_tokens(std::int32_t sequence, std::uint32_t side, std::int64_t length,
                                        std::int32_t vocabulary, std::vector<std::int32_t> const& pieces) {
  auto const count =
      pieces.empty() ? static_cast<std::uint32_t>(vocabulary) : static_cast<std::uint32_t>(pieces.size());
  std::vector<std::int32_t> tokens;
  for (std::int64_t index = 0; index < length; ++index) {
    auto const words =
        Philox::words(0, {static_cast<std::uint32_t>(sequence), static_cast<std::uint32_t>(index), side, 0});
    std::uint32_t const token = words[0] % count;
    tokens.push_back(pieces.empty() ? static_cast<std::int32_t>(token) : pieces[token]);
  }
  return tokens;
}

/// The logits of these pieces [rows, pieces], less the mean of their row.
std::vector<float> of_pieces(std::vector<float> const& logits, std::int32_t vocabulary,
                             std::vector<std::int32_t> const& pieces) {
  std::vector<float> found;
  for (auto row = logits.begin(); row != logits.end(); row += vocabulary) {
    double mean = 0;
    for (std::int32_t const piece : pieces) {
      mean += static_cast<double>(row[piece]) / static_cast<double>(pieces.size());
    }
    for (std::int32_t const piece : pieces) {
      found.push_back(static_cast<float>(static_cast<double>(row[piece]) - mean));
    }
  }
  return found;
}

}  // namespace

std::vector<float> probe_logits(Execution& execution, TrainedModelOptions const& options, ProbePieces const& pieces) {
  TrainedModelOptions shared = options;
  shared.execution = &execution;
  shared.overrides.emplace_back("train.precision=float32");
  auto const model = TrainedModel::open(shared);
  Vocabulary const& vocabulary = model->vocabulary();
  std::int64_t const length = std::min(longest, model->longest_source() - 1);
  bool const pairs = model->config().model.is_encoder_decoder();
  Side const side = model->config().model.is_decoder_only() ? Side::target : Side::source;
  std::vector<Sample> sentence_pairs;
  std::vector<TokenSequence> token_sequences;
  for (std::int32_t sequence = 0; sequence < sequences; ++sequence) {
    std::int64_t const own = std::max<std::int64_t>(length - 5 * sequence, 1);
    auto const source = random_tokens(sequence, 0, own, vocabulary.source.size(), pieces.source);
    auto const target = random_tokens(sequence, 1, length + 1 - own, vocabulary.target.size(), pieces.target);
    sentence_pairs.push_back({sequence, source, target});
    token_sequences.push_back({sequence, target, target});
  }
  std::vector<float> logits = model->logits(pairs ? make_pack(sentence_pairs, vocabulary.special_ids())
                                                  : make_sequence_pack(token_sequences, side));
  // Beside the logit of a token that is never generated (io/exchange/marian.hpp) all others would be small.
  std::ranges::replace_if(
      logits, [](float logit) { return logit < -5'000; }, 0.F);
  return pieces.target.empty() ? logits : of_pieces(logits, vocabulary.target.size(), pieces.target);
}

}  // namespace heddle
