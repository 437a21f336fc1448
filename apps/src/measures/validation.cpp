#include "validation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/generation/generation.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <limits>
#include <string>
#include <vector>

#include "attention_maps.hpp"
#include "measures/watched_micro_batches.hpp"
#include "run/metrics/measure.hpp"

namespace heddle {

namespace {

constexpr std::int64_t max_viewed_tokens = 256;
constexpr std::size_t max_samples = 8;

LossSums validation_loss(ValidationSetup const& setup, ValidationSet const& set, GlobalBatch const& batch) {
  SampledMicroBatches const micro_batches(
      *set.samples, batch, validation_cut(batch, setup.config.train.micro_batch_tokens, setup.engine.context()));
  return setup.engine.evaluate(WatchedMicroBatches(micro_batches, setup.watch), setup.check);
}

/// Lets replicas generate, each what it has, until all are done.
std::vector<std::vector<std::int32_t>> generate_all(ValidationSetup const& setup, Generation& generation,
                                                    std::size_t count) {
  constexpr int steps_between_checks = 8;
  std::vector<std::vector<std::int32_t>> tokens(count);
  do {
    setup.check();
    for (int step = 0; step < steps_between_checks && !generation.empty(); ++step) {
      for (Generated& done : generation.step()) {
        tokens[static_cast<std::size_t>(done.number)] = std::move(done.hypotheses.front().tokens);
      }
    }
  } while (any_of(setup.parallel.world, !generation.empty()));
  return tokens;
}

/// The model's translations of the set's pairs, in tokens: each one's number of tokens and those tokens, in lists that
/// follow each other. Collective over the world.
std::vector<std::vector<std::int32_t>> generated_tokens(ValidationSetup const& setup, ValidationSet const& set,
                                                        std::vector<SampleId> const& pairs) {
  Communicator const& replicas = setup.parallel.replicas;
  Dataset const& dataset = set.dataset;
  Vocabulary const& vocabulary = dataset.vocabulary();
  GenerationModel const model{setup.engine.model(), vocabulary.special_ids(), setup.config.model.max_length,
                              limits_of(vocabulary)};
  auto const count = static_cast<std::int64_t>(pairs.size());
  IndexRange const mine = share(count, replicas.rank(), replicas.size());
  Arena arena;
  Generation generation(setup.execution, arena, model, {.beam_size = setup.config.train.validate_beam_size});
  for (std::int64_t index = mine.begin; index < mine.end; ++index) {
    std::int64_t const pair = pairs[static_cast<std::size_t>(index)].index;
    generation.add(index - mine.begin, set.source(pair), start_of(vocabulary, dataset.target(pair)));
  }
  std::vector<std::int32_t> own;
  for (auto const& tokens : generate_all(setup, generation, static_cast<std::size_t>(mine.count()))) {
    own.push_back(static_cast<std::int32_t>(tokens.size()));
    own.insert(own.end(), tokens.begin(), tokens.end());
  }
  return gather_lists<std::int32_t>(replicas, own);  // in the order of the ranks, which is that of the pairs
}

SetTranslations text_of(Dataset const& dataset, std::vector<SampleId> const& pairs,
                        std::vector<std::vector<std::int32_t>> const& generated) {
  SetTranslations text;
  Tokenizer const& tokenizer = dataset.target_tokenizer();
  for (auto const& list : generated) {
    for (std::span<std::int32_t const> rest = list; !rest.empty();) {
      auto const length = static_cast<std::size_t>(rest.front());
      text.hypotheses.push_back(tokenizer.decode(rest.subspan(1, length)));
      rest = rest.subspan(1 + length);
    }
  }
  for (SampleId const& pair : pairs) {
    text.references.push_back(tokenizer.decode(dataset.target(pair.index)));
    text.sources.push_back(dataset.source_tokenizer().decode(dataset.source(pair.index)));
  }
  return text;
}

/// Adds the metrics of a set's translations and, of the first set, the first ones of them.
void measure_translations(ValidationSetup const& setup, std::vector<MetricRegistry::Entry> const& metrics,
                          ValidationSet const& set, GlobalBatch const& batch, ValidationResult& result) {
  auto const generated = generated_tokens(setup, set, batch.samples);
  bool const computes = setup.parallel.world.rank() == 0;
  auto const kept = std::make_shared<SetTranslations const>(computes ? text_of(set.dataset, batch.samples, generated)
                                                                     : SetTranslations());
  SetTranslations const& text = *kept;
  for (MetricRegistry::Entry const& entry : metrics) {
    if (is_command(setup.config, entry.name)) {
      if (computes) {
        result.commands.push_back({{entry.name, set.name, entry.metric.higher_is_better}, kept});
      }
      continue;
    }
    double own = std::numeric_limits<double>::quiet_NaN();
    try {
      own = computes ? score_of(entry, {text.hypotheses, text.references, text.sources}) : own;
    } catch (Error const& problem) {  // which must not end a run
      result.problems.push_back(fmt::format("{}; its value on {} counts as not finite", problem.what(), set.key()));
    }
    result.values.push_back(
        {{entry.name, set.name, entry.metric.higher_is_better}, broadcast_value(setup.parallel.world, own)});
  }
  for (std::size_t line = 0; set.name.empty() && line < std::min(max_samples, text.sources.size()); ++line) {
    result.samples.push_back({text.sources[line], text.references[line], text.hypotheses[line]});
  }
}

/// The tokens of an image's rows and columns, in Markdown.
std::string describe_tokens(ValidationSet const& set, std::int64_t pair, SideIds const& ids) {
  Dataset const& dataset = set.dataset;
  auto const pieces = [](Tokenizer const& tokenizer, std::vector<std::int32_t> const& tokens) {
    std::string text;
    for (std::int32_t const token : tokens) {
      text += fmt::format(" {}", markdown_cell(tokenizer.piece(token)));
    }
    return text;
  };
  Tokenizer const& source = dataset.source_tokenizer();
  Tokenizer const& target = dataset.target_tokenizer();
  return fmt::format("| | tokens |\n| --- | --- |\n| rows, from above |{}{} |\n| columns, from the left |{}{} |\n",
                     pieces(target, {ids.target.begin}), pieces(target, dataset.target(pair)),
                     pieces(source, set.source(pair)), pieces(source, {ids.source.end}));
}

/// The first samples of at most 64 tokens a side and at most 256 tokens together, none if none of the first 100 is this
/// short. They are always the same, and so few that to compute with them costs next to nothing.
GlobalBatch short_samples(ValidationSetup const& setup, GlobalBatch const& batch) {
  constexpr std::int64_t max_length = 64;
  constexpr std::size_t max_searched = 100;
  Mixture const mixture(*setup.sets.front().samples);
  GlobalBatch chosen;
  std::int64_t tokens = 0;
  for (std::size_t index = 0; index < std::min(batch.samples.size(), max_searched); ++index) {
    std::int64_t const cost = batch.costs[index].longer();
    if (cost <= max_length && tokens + cost <= max_viewed_tokens) {
      chosen.add(mixture, batch.samples[index], batch.costs[index]);
      tokens += cost;
    }
  }
  return chosen;
}

/// Sets the entropies and, with `images`, the images of a result on the ranks that can compute them.
void measure_attention(ValidationSetup const& setup, GlobalBatch const& batch, bool images, ValidationResult& result) {
  ValidationSet const& set = setup.sets.front();
  GlobalBatch const chosen =
      has_attention_maps(setup.parallel, setup.config.parallel) ? short_samples(setup, batch) : GlobalBatch();
  if (chosen.samples.empty()) {
    return;
  }
  SideIds const ids = set.dataset.vocabulary().special_ids();
  AttentionView view =
      view_attention({setup.config, setup.registries, setup.engine, setup.parallel, setup.execution,
                      vocabulary_sizes(set.dataset.vocabulary())},
                     SampledMicroBatches(*set.samples, chosen, {.max_tokens = max_viewed_tokens}).micro_batch(0));
  result.entropies = std::move(view.entropies);
  if (images && !view.maps.empty()) {
    for (AttentionMap const& map : view.maps) {
      result.attention.push_back({map.path, draw(map)});
    }
    result.attention_tokens = describe_tokens(set, chosen.samples.front().index, ids);
  }
}

}  // namespace

ValidationResult validate(ValidationSetup const& setup) {
  ValidationResult result;
  for (ValidationSet const& set : setup.sets) {
    auto const metrics = translation_metrics(setup.config, setup.registries.metrics, set.name);
    GlobalBatch const batch = all_samples(*set.samples, setup.config.model.max_length);
    LossSums const sums = validation_loss(setup, set, batch);
    result.values.push_back(
        {{"loss", set.name, false}, sums.negative_log_likelihood / static_cast<double>(sums.tokens)});
    if (setup.registries.tasks.of(setup.config).measures_accuracy()) {
      result.values.push_back(
          {{"accuracy", set.name, true}, static_cast<double>(sums.correct) / static_cast<double>(sums.tokens)});
    }
    if (!metrics.empty()) {
      measure_translations(setup, metrics, set, batch, result);
    }
    if (set.name.empty()) {
      measure_attention(setup, batch, !metrics.empty(), result);
    }
  }
  auto const operations =
      setup.engine.kernels().select<TensorOps>(setup.config.kernels, {setup.engine.parameters().values().dtype()});
  result.norms = layer_norms(setup.parallel, setup.whole_model, setup.engine.parameters(), setup.engine.optimizer(),
                             *operations, setup.execution);
  return result;
}

}  // namespace heddle
