#include "validation.hpp"

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/generation/generation.hpp>
#include <heddle/io/metrics/bleu.hpp>
#include <string>
#include <vector>

namespace heddle {

namespace {

double validation_loss(ValidationSetup const& setup, SampleSource const& samples, GlobalBatch const& pairs) {
  SampledMicroBatches const micro_batches(
      samples, pairs, {.most_tokens = setup.config.train.micro_batch_tokens, .context = setup.engine.context()});
  LossSums const sums = setup.engine.evaluate(micro_batches);
  return sums.negative_log_likelihood / static_cast<double>(sums.tokens);
}

double validation_bleu(ValidationSetup const& setup, std::vector<std::int64_t> const& pairs) {
  Communicator const& replicas = setup.parallel.replicas;
  Tokenizer const& tokenizer = setup.dataset.target_tokenizer();
  GenerationModel const model{setup.engine.model(), setup.dataset.source_tokenizer().end_id(), tokenizer.begin_id(),
                              tokenizer.end_id(), setup.config.model.max_length};
  auto const count = static_cast<std::int64_t>(pairs.size());
  IndexRange const mine = share(count, replicas.rank(), replicas.size());
  std::vector<std::vector<std::int32_t>> sources;
  for (std::int64_t index = mine.begin; index < mine.end; ++index) {
    sources.push_back(setup.dataset.source(pairs[static_cast<std::size_t>(index)]));
  }
  Arena arena;
  auto const generated =
      generate(setup.execution, arena, model, sources, {.beam_size = setup.config.train.validate_beam_size});

  // Every rank gets all translations: a row per sentence holds its length and tokens, zero where another rank filled
  // it.
  std::int32_t longest = 0;
  for (auto const& hypotheses : generated) {
    longest = std::max(longest, static_cast<std::int32_t>(hypotheses.front().tokens.size()));
  }
  Tensor const shared_longest = from_host<std::int32_t>(std::span(&longest, 1), {1});
  replicas.all_reduce(shared_longest, ReduceOp::max);
  std::int64_t const columns = to_host<std::int32_t>(shared_longest).front() + 1;
  std::vector<std::int32_t> table(static_cast<std::size_t>(count * columns), 0);
  for (std::size_t sentence = 0; sentence < generated.size(); ++sentence) {
    auto const& tokens = generated[sentence].front().tokens;
    auto const row = static_cast<std::size_t>((mine.begin + static_cast<std::int64_t>(sentence)) * columns);
    table[row] = static_cast<std::int32_t>(tokens.size());
    std::copy(tokens.begin(), tokens.end(), table.begin() + static_cast<std::ptrdiff_t>(row + 1));
  }
  Tensor const shared = from_host<std::int32_t>(table, {count, columns});
  replicas.all_reduce(shared);
  table = to_host<std::int32_t>(shared);

  std::vector<std::string> hypotheses;
  std::vector<std::string> references;
  for (std::size_t sentence = 0; sentence < pairs.size(); ++sentence) {
    std::size_t const row = sentence * static_cast<std::size_t>(columns);
    hypotheses.push_back(tokenizer.decode(std::span(table).subspan(row + 1, static_cast<std::size_t>(table[row]))));
    references.push_back(tokenizer.decode(setup.dataset.target(pairs[sentence])));
  }
  return corpus_bleu(hypotheses, references).score;
}

}  // namespace

ValidationResult validate(ValidationSetup const& setup) {
  DatasetSamples const samples(setup.dataset);
  GlobalBatch const pairs = all_samples(samples, setup.config.model.max_length);
  if (pairs.samples.empty()) {
    throw DataError("every validation pair is longer than model.max_length");
  }
  ValidationResult result{validation_loss(setup, samples, pairs), std::nullopt};
  if (setup.config.train.validate_bleu) {
    result.bleu = validation_bleu(setup, pairs.samples);
  }
  return result;
}

}  // namespace heddle
