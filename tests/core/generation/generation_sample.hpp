#pragma once

#include <heddle/core/generation/generation.hpp>
#include <heddle/core/layers/registries.hpp>
#include <heddle/core/model/built_in_layers.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/kernels/register.hpp>

#include "test.hpp"

namespace heddle::generation_sample {

using Tokens = std::vector<std::int32_t>;

constexpr std::int32_t end_id = 2;
constexpr SideIds ids{.source = {.end = 0}, .target = {.begin = 1, .end = end_id}};

struct SampleOptions {
  std::int64_t vocabulary = 9;
  NormPlacement norm = NormPlacement::post;
  Positions positions = Positions::sinusoidal;
  DType dtype = DType::float64;
  std::string kernels = "reference";
  std::int64_t max_length = 16;
  bool prompts = false;                                  ///< a decoder-only model, which continues its sources
  bool encoder = false;                                  ///< an encoder-only model
  std::uint64_t seed = 5;                                ///< of the weights
  std::pair<std::string, OptionValue> self_attention{};  ///< an option of the decoder's
};

/// A small model with random weights whose next-token distributions are far from uniform.
class GenerationSample {
 public:
  explicit GenerationSample(SampleOptions const& options) : options_(options) {
    config_.encoder.layers = config_.decoder.layers = 2;
    config_.d_model = 16;
    config_.d_ff = 24;
    config_.heads = 2;
    config_.norm = options.norm;
    config_.positions = options.positions;
    config_.tie_embeddings = false;
    config_.max_length = options.max_length;
    if (options.prompts) {
      config_.stacks = {"decoder"};
      config_.decoder.sublayers = {"self_attention", "feed_forward"};
    }
    if (!options.self_attention.first.empty()) {
      config_.decoder.settings = {
          {"self_attention." + options.self_attention.first, {options.self_attention.second, "test"}}};
    }
    if (options.encoder) {
      config_.stacks = {"encoder"};
    }
    register_built_in_kernels(registries_.kernels);
    register_built_in_layers(registries_.layers);
    KernelChoices const choices(options.kernels);
    model_ = std::make_unique<Model>(
        LayerSpec{"", Side::source, config_, options.dtype, {registries_.kernels, choices}, parallel_, parameters_},
        registries_.layers, VocabularySizes{options.vocabulary, options.vocabulary, false});
    parameters_.allocate(options.dtype);
    parameters_.initialize(options.seed);
    options.dtype == DType::float64 ? sharpen<double>() : sharpen<float>();
  }

  std::vector<std::vector<Hypothesis>> generate(std::vector<Tokens> const& sources, GenerationOptions const& options) {
    auto results = heddle::generate(execution_, arena_, {*model_, ids, config_.max_length}, sources, options);
    EXPECT_EQ(arena_.mark(), 0U);
    return results;
  }

  Model const& model() const { return *model_; }
  GenerationModel generation_model() const { return {*model_, ids, config_.max_length}; }
  /// With a model of generation_model() that was changed.
  std::vector<std::vector<Hypothesis>> generate(GenerationModel const& model, std::vector<Tokens> const& sources,
                                                GenerationOptions const& options,
                                                std::vector<Tokens> const& starts = {}) {
    auto results = heddle::generate(execution_, arena_, model, sources, options, starts);
    EXPECT_EQ(arena_.mark(), 0U);
    return results;
  }

  /// Adds the sources in that order, numbered by their index, as soon as there is room, and steps.
  /// `after_step` is called with the number of results so far.
  std::vector<std::vector<Hypothesis>> stream(std::vector<Tokens> const& sources, GenerationOptions const& options,
                                              std::vector<std::size_t> const& order,
                                              std::function<void(std::size_t)> const& after_step = {}) {
    Generation generation(execution_, arena_, {*model_, ids, config_.max_length}, options);
    std::vector<std::vector<Hypothesis>> results(sources.size());
    std::size_t added = 0;
    std::size_t done = 0;
    while (added < order.size() || !generation.empty()) {
      while (added < order.size() && generation.has_room()) {
        generation.add(static_cast<std::int64_t>(order[added]), sources[order[added]]);
        ++added;
      }
      for (Generated& generated : generation.step()) {
        results[static_cast<std::size_t>(generated.number)] = std::move(generated.hypotheses);
        ++done;
      }
      if (after_step) {
        after_step(done);
      }
    }
    EXPECT_EQ(done, sources.size());
    EXPECT_EQ(arena_.mark(), 0U);
    return results;
  }

  /// log p(next token | source, prefix), from a forward pass over the whole prefix, which training makes, too. The
  /// target starts from the token `begin`.
  std::vector<double> next_token(Tokens const& source, Tokens const& prefix, std::int32_t begin = ids.target.begin) {
    ArenaScope const scope(arena_);
    Pack const pack = pack_of(source, prefix, begin);
    LayerContext context{execution_, arena_, pack};
    Tensor const logits = model_->logits(context);
    auto row = to_host<double>(logits.rows(logits.dim(0) - 1, 1));
    double sum = 0;
    for (double const logit : row) {
      sum += std::exp(logit);
    }
    for (double& logit : row) {
      logit -= std::log(sum);
    }
    return row;
  }

  std::int32_t vocabulary() const { return static_cast<std::int32_t>(options_.vocabulary); }

 private:
  Pack pack_of(Tokens const& source, Tokens const& prefix, std::int32_t begin) const {
    Sample const pair{0, source, prefix};
    if (!options_.prompts) {
      SideIds of_pack = ids;
      of_pack.target.begin = begin;
      return make_pack({&pair, 1}, of_pack);
    }
    TokenSequence sequence{0, {begin}, {}, static_cast<std::int32_t>(source.size() + 1)};
    sequence.input.insert(sequence.input.end(), source.begin(), source.end());
    sequence.input.insert(sequence.input.end(), prefix.begin(), prefix.end());
    sequence.output.assign(sequence.input.size(), -1);
    return make_sequence_pack({&sequence, 1}, Side::target);
  }

  template <class Element>
  void sharpen() {
    Parameter const& output = *parameters_.find("output.weight");
    auto host = to_host<Element>(output.value);
    for (Element& value : host) {
      value *= Element{5};
    }
    copy_from_host(output.value, host.data());
    parameters_.bump_versions();
  }

  SampleOptions options_;
  ModelConfig config_;
  Registries registries_;
  ParallelState parallel_;
  ParameterSet parameters_{parallel_.mesh};
  std::unique_ptr<Model> model_;
  Arena scratch_;
  Arena arena_;
  Execution execution_{{}, scratch_};
};

inline double score(double log_probability, std::size_t tokens, double penalty, double word_penalty = 0) {
  auto const length = static_cast<double>(tokens + 1);
  return (log_probability - word_penalty * length) / std::pow(length, penalty);
}

inline void sort_by_score(std::vector<Hypothesis>& hypotheses) {
  std::stable_sort(hypotheses.begin(), hypotheses.end(),
                   [](Hypothesis const& a, Hypothesis const& b) { return a.score > b.score; });
}

/// The log-probabilities of all tokens after a hypothesis's; -infinity for one that must not be generated.
using NextToken = std::function<std::vector<double>(Tokens const&)>;

/// Greedy search by its definition. The tokens `ends` end a target, the first one at the longest length.
inline std::vector<Hypothesis> naive_greedy_search(NextToken const& next_token, GenerationOptions const& options,
                                                   Tokens const& ends = {end_id}) {
  Hypothesis found;
  while (true) {
    auto const next = next_token(found.tokens);
    auto const best = std::ssize(found.tokens) == options.max_length
                          ? ends.front()
                          : static_cast<std::int32_t>(std::max_element(next.begin(), next.end()) - next.begin());
    found.log_probability += next[static_cast<std::size_t>(best)];
    if (std::ranges::count(ends, best) > 0) {
      found.score = score(found.log_probability, found.tokens.size(), options.length_penalty);
      return {found};
    }
    found.tokens.push_back(best);
  }
}

/// The documented search for one sentence, without caches, batches or early stopping by a bound.
inline std::vector<Hypothesis> naive_beam_search(NextToken const& next_token, GenerationOptions const& options,
                                                 Tokens const& ends = {end_id}) {
  std::vector<Hypothesis> live{{}};
  std::vector<Hypothesis> finished;
  auto const beam_size = static_cast<std::size_t>(options.beam_size);
  auto const done = [&] {
    sort_by_score(finished);
    return static_cast<double>(finished.size()) >= options.patience * static_cast<double>(beam_size) &&
           score(live.front().log_probability, live.front().tokens.size(), options.length_penalty,
                 options.word_penalty) <= finished[static_cast<std::size_t>(options.n_best) - 1].score;
  };
  for (std::int64_t time = 0; !live.empty() && !done(); ++time) {
    std::vector<Hypothesis> extensions;
    for (Hypothesis const& parent : live) {
      auto const next = next_token(parent.tokens);
      for (std::int32_t token = 0; token < std::ssize(next); ++token) {
        double const log_probability = next[static_cast<std::size_t>(token)];
        if (!std::isfinite(log_probability) || (time == options.max_length && token != ends.front())) {
          continue;
        }
        Hypothesis child = parent;
        child.tokens.push_back(token);
        child.log_probability += log_probability;
        extensions.push_back(child);
      }
    }
    std::stable_sort(extensions.begin(), extensions.end(),
                     [](Hypothesis const& a, Hypothesis const& b) { return a.log_probability > b.log_probability; });
    live.clear();
    for (std::size_t rank = 0; rank < extensions.size(); ++rank) {
      Hypothesis& child = extensions[rank];
      if (std::ranges::count(ends, child.tokens.back()) == 0) {
        if (live.size() < beam_size) {
          live.push_back(child);
        }
      } else if (rank < beam_size) {
        child.tokens.pop_back();
        child.score = score(child.log_probability, child.tokens.size(), options.length_penalty, options.word_penalty);
        finished.push_back(child);
      }
    }
  }
  sort_by_score(finished);
  finished.resize(std::min(finished.size(), static_cast<std::size_t>(options.n_best)));
  return finished;
}

inline std::vector<Tokens> sample_sources() {
  return {{4, 5, 6}, {}, {7}, {3, 8, 8, 5, 4, 6, 3}, {6, 6}, {4, 5, 7, 7}};
}

inline void expect_same(std::vector<Hypothesis> const& found, std::vector<Hypothesis> const& expected,
                        double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    EXPECT_EQ(found[rank].tokens, expected[rank].tokens) << "rank " << rank;
    EXPECT_NEAR(found[rank].log_probability, expected[rank].log_probability, tolerance);
    EXPECT_NEAR(found[rank].score, expected[rank].score, tolerance);
  }
}

}  // namespace heddle::generation_sample
