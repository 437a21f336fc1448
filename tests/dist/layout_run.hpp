#pragma once

#include <heddle/core/tensor/execution.hpp>
#include <heddle/dist/training/training_engine.hpp>

#include "golden_model.hpp"
#include "layouts.hpp"
#include "test_ids.hpp"
#include "test_micro_batches.hpp"

namespace heddle {

inline constexpr std::int64_t micro_batches = 4;  // of a global batch
inline constexpr VocabularySizes vocabulary{23, 23, true};

inline std::vector<std::int32_t> tokens_of(std::int32_t seed, int length) {
  std::vector<std::int32_t> tokens;
  for (int place = 0; place < length; ++place) {
    tokens.push_back(3 + (seed * 7 + place * 5) % 20);
  }
  return tokens;
}

/// A token's weight in a weighted variant.
inline float weight_of(std::int32_t sample, std::int32_t position) {
  return (sample + position) % 5 == 3 ? 0.0F : 0.25F * static_cast<float>(1 + (3 * sample + position) % 4);
}

/// Two pairs per micro-batch, of unequal lengths, shorter and longer than any context group, and different in every
/// step. Target tokens are aligned with no, one or two source tokens.
inline std::vector<Sample> pairs_of(int step, std::int64_t micro_batch, bool weighted = false) {
  std::vector<Sample> pairs;
  for (std::int32_t index = 0; index < 2; ++index) {
    auto const sample = static_cast<std::int32_t>(2 * micro_batch) + index;
    pairs.push_back({sample, tokens_of(sample + step, (sample * 5 + step) % 11), tokens_of(sample, (sample * 3) % 8)});
    Sample& pair = pairs.back();
    auto const sources = static_cast<std::int32_t>(pair.source.tokens.size());
    auto const targets = static_cast<std::int32_t>(pair.target.tokens.size());
    for (std::int32_t link = 0; link < targets && sources > 0; ++link) {
      pair.alignment.push_back({(3 * link + sample) % sources, (link * link) % targets});
    }
    for (std::int32_t position = 0; weighted && position <= targets; ++position) {
      pair.target.weights.push_back(weight_of(sample, position));
    }
  }
  return pairs;
}

inline std::int64_t target_tokens(int step) {
  std::int64_t tokens = 0;
  for (std::int64_t index = 0; index < micro_batches; ++index) {
    for (Sample const& pair : pairs_of(step, index)) {
      tokens += static_cast<std::int64_t>(pair.target.tokens.size()) + 1;
    }
  }
  return tokens;
}

inline Config config_of(Variant const& variant, Layout const& layout) {
  Config config = tiny_config(layout, parse_config("[model]\n" + variant.keys, "test"));
  config.model.norm = variant.norm;
  config.model.tie_embeddings = variant.tied;
  if (variant.keys.find("positions") == std::string::npos) {
    config.model.positions = variant.tied ? Positions::sinusoidal : Positions::learned;
  }
  config.model.dropout = 0.1;
  config.model.attention_dropout = 0.1;
  config.model.activation_dropout = 0.1;
  config.train.label_smoothing = 0.1;
  config.train.seed = 3;
  config.optimizer.clip_norm = 0.5;
  std::string const teacher =
      "[model]\nencoder_layers = 2\ndecoder_layers = 2\nd_model = 24\nd_ff = 16\nheads = 4\nmax_length = "
      "32\noutput_bias = ";
  for (std::string const& name : config.train.teacher) {
    config.teachers.push_back(parse_config(teacher + (name == "one" ? "true" : "false"), "test").model);
  }
  return config;
}

/// A model on a mesh, ready to train.
class LayoutRun {
 public:
  LayoutRun(Variant const& variant, Layout const& layout, Communicator const& world, DType dtype = DType::float64)
      : weighted_(variant.weighted),
        config_(config_of(variant, layout)),
        bench_(config_.model, dtype, KernelChoices{}),
        parallel_(parallel_of(layout, world)),
        engine_({config_, bench_.registries(), parallel_, bench_.execution(), vocabulary, dtype}) {
    engine_.parameters().initialize(config_.train.seed);
    for (Teacher& teacher : engine_.teachers()) {
      teacher.parameters().initialize(7);
    }
  }

  Pack pack(int step, std::int64_t index) const {
    PackFields tokens;
    fill_tokens(tokens, pairs_of(step, index, weighted_), test_ids);
    for (std::int32_t const length : tokens.source.length) {
      tokens.source.prefix.push_back(length / 2);  // half of each source is a first text
    }
    if (config_.train.passes() == 2) {
      add_second_pass(tokens, static_cast<std::int32_t>(2 * micro_batches));
    }
    Pack pack = make_pack(tokens, engine_.context());
    std::vector<std::int32_t> prefixes;  // half of each sequence, also where this rank has only some of its rows
    for (int pass = 0; pass < config_.train.passes(); ++pass) {
      for (Sample const& pair : pairs_of(step, index)) {
        prefixes.push_back(static_cast<std::int32_t>(pair.target.tokens.size() + 1) / 2);
      }
    }
    pack.target_rows.prefix_length = from_host<std::int32_t>(prefixes, {pack.target_rows.sequences.count});
    return pack;
  }

  /// This data rank's micro-batches of a step, or all.
  auto batch(int step, SampleGroups const& groups = {}) const {
    GroupMember const data{parallel_.data.rank(), parallel_.data.size()};
    IndexRange const mine =
        config_.train.deterministic ? IndexRange{0, micro_batches} : share(micro_batches, data.rank, data.ranks);
    auto const make = [this, step, mine](std::int64_t index) { return pack(step, mine.begin + index); };
    return TestMicroBatches(mine.count(), make, target_tokens(step), groups);
  }

  /// All micro-batches of a step, on every rank.
  auto whole_batch(int step) const {
    return TestMicroBatches(micro_batches, [this, step](std::int64_t index) { return pack(step, index); },
                            target_tokens(step), {});
  }

  double accumulate(int step) { return engine_.accumulate(batch(step), step); }
  /// The gradients of some micro-batches alone, divided by the tokens of the whole batch.
  void accumulate_part(int step, IndexRange const& part) {
    auto const make = [this, step, part](std::int64_t index) { return pack(step, part.begin + index); };
    engine_.accumulate(TestMicroBatches(part.count(), make, target_tokens(step), {}), step);
  }
  /// A whole step, with the losses of groups of samples.
  StepResult step(int step, SampleGroups const& groups) { return engine_.step(batch(step, groups), step, rate()); }

  /// The last layer's output for one micro-batch with dropout, on the last stage; empty elsewhere. Passes from part to
  /// part without a Pipeline.
  Tensor output(Pack const& pack_in) {
    Communicator const& pipeline = parallel_.pipeline;
    LayerContext context{bench_.execution(), bench_.arena(), pack_in, true, 3, 0, engine_.row_split()};
    context.access = engine_.gathered();
    int const parts = engine_.plan().parts_per_stage();
    Tensor hidden;
    for (int part = 0; part < parts; ++part) {
      ModelChunk const& mine = engine_.model().parts()[static_cast<std::size_t>(part)];
      HiddenStates const input = mine.allocate_input(context);
      int const previous = (pipeline.rank() + pipeline.size() - 1) % pipeline.size();
      for (Tensor const& tensor : {input.hidden, input.encoder_output}) {
        if (!tensor.empty()) {
          pipeline.receive(tensor, previous);
        }
      }
      Saved saved;
      HiddenStates const stream = mine.forward(context, input, saved, {0, 0});
      if (mine.ends_model()) {
        hidden = stream.hidden;
        continue;
      }
      for (Tensor const& tensor : {stream.hidden, stream.encoder_output}) {
        if (!tensor.empty()) {
          pipeline.send(tensor, (pipeline.rank() + 1) % pipeline.size());
        }
      }
    }
    return hidden;
  }

  TrainingEngine& engine() { return engine_; }
  Communicator const& context() const { return parallel_.context; }
  double rate() const { return 0.01; }

 private:
  bool weighted_;
  Config config_;
  TestBench bench_;
  ParallelState parallel_;
  TrainingEngine engine_;
};

}  // namespace heddle
