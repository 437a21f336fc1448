#include "ledger_formulas.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/dist/training/training_engine.hpp>
#include <set>

#include "dist_fixture.hpp"
#include "golden_model.hpp"
#include "layouts.hpp"
#include "test_ids.hpp"
#include "test_micro_batches.hpp"

namespace heddle {
namespace {

using namespace ledger_formulas;

constexpr std::int64_t micro_batches = 4;

std::vector<Sample> pairs_of(std::int64_t micro_batch) {
  std::vector<Sample> pairs;
  for (std::int64_t index = 0; index < 2; ++index) {
    auto const sample = 2 * micro_batch + index;
    // One target has more tokens than a chunk of logits.
    auto const source = static_cast<std::size_t>(5 + sample * 5 % 11);
    auto const target = static_cast<std::size_t>(sample == 3 ? logits_chunk : 4 + sample * 3 % 8);
    pairs.push_back({static_cast<std::int32_t>(sample), std::vector<std::int32_t>(source, 5),
                     std::vector<std::int32_t>(target, 6)});
  }
  return pairs;
}

struct Layers {
  std::int64_t encoder, decoder;
  Recompute recompute = Recompute::none;
};

Config config_of(Layers const& layers, Layout const& layout) {
  Config config = with_layout({}, layout);
  config.model.encoder.layers = layers.encoder;
  config.model.decoder.layers = layers.decoder;
  config.model.d_model = d_model;
  config.model.d_ff = d_ff;
  config.model.heads = heads;
  config.model.dropout = 0;
  config.model.recompute = layers.recompute;
  return config;
}

/// A model with this many layers on a mesh, its step's ledgers measured and computed.
class LedgerRun {
 public:
  LedgerRun(Layers const& layers, Layout const& layout, Communicator const& world)
      : layout_(layout),
        config_(config_of(layers, layout)),
        bench_(config_.model, DType::float32, KernelChoices{}),
        parallel_(parallel_of(layout, world)),
        engine_({config_, bench_.registries(), parallel_, bench_.execution(), {vocabulary, vocabulary, true}}) {
    engine_.parameters().initialize(3);
  }

  /// make_parallel_state has split the world before, which moves nothing that a ledger counts.
  TrafficByGroup measured() {
    TrafficByGroup const before = traffic_of(parallel_);
    IndexRange const mine = share(micro_batches, parallel_.data.rank(), parallel_.data.size());
    auto const make = [&](std::int64_t index) { return pack(mine.begin + index); };
    engine_.step(TestMicroBatches(mine.count(), make, 100), 0, 0.01);
    return traffic_of(parallel_) - before;
  }

  TrafficByGroup expected() const {
    Formulas formulas(layout_, parallel_);
    IndexRange const mine = share(micro_batches, parallel_.data.rank(), parallel_.data.size());
    for (std::int64_t index = mine.begin; index < mine.end; ++index) {
      Pack const micro_batch = pack(index);
      Tokens const source(micro_batch.source_rows, micro_batch.source_context, parallel_.context);
      Tokens const target(micro_batch.target_rows, micro_batch.target_context, parallel_.context);
      for (IndexRange const& part : parts()) {
        add_part(formulas, part, source, target);
      }
    }
    add_update(formulas);
    return formulas.ledgers();
  }

  /// The number of buckets in which gradients are reduced.
  std::int64_t buckets() const {
    return static_cast<std::int64_t>(engine_.optimizer().reducer().parts().buckets().size());
  }

  /// The difference to a model of `buckets_before` buckets that lacks the layer, of one micro-batch after the other on
  /// this data rank.
  TrafficByGroup expected_of_a_layer(bool decoder, std::int64_t buckets_before) const {
    Formulas formulas(layout_, parallel_);
    IndexRange const mine = share(micro_batches, parallel_.data.rank(), parallel_.data.size());
    for (std::int64_t index = mine.begin; index < mine.end; ++index) {
      Pack const micro_batch = pack(index);
      Tokens const source(micro_batch.source_rows, micro_batch.source_context, parallel_.context);
      Tokens const target(micro_batch.target_rows, micro_batch.target_context, parallel_.context);
      decoder ? formulas.decoder_layer(source, target) : formulas.encoder_layer(source);
    }
    formulas.gradients(layer_elements(decoder ? 2 : 1, parallel_.tensor.size()), buckets() - buckets_before);
    return formulas.ledgers();
  }

 private:
  Pack pack(std::int64_t index) const { return make_pack(pairs_of(index), test_ids, engine_.context()); }
  std::vector<IndexRange> const& parts() const {
    return engine_.plan().parts[static_cast<std::size_t>(parallel_.pipeline.rank())];
  }
  std::int64_t encoder_layers(IndexRange const& part) const {
    return std::max<std::int64_t>(std::min(part.end, config_.model.encoder.layers) - part.begin, 0);
  }
  std::int64_t decoder_layers(IndexRange const& part) const { return part.count() - encoder_layers(part); }
  bool begins_decoder(IndexRange const& part) const {
    return part.begin <= config_.model.encoder.layers && decoder_layers(part) > 0;
  }
  bool ends_decoder(IndexRange const& part) const {
    return part.end == config_.model.encoder.layers + config_.model.decoder.layers;
  }

  void add_part(Formulas& formulas, IndexRange const& part, Tokens const& source, Tokens const& target) const {
    if (part.begin == 0) {
      formulas.tensor_passage(source.here());  // the embedding
    }
    for (std::int64_t layer = 0; layer < encoder_layers(part); ++layer) {
      formulas.encoder_layer(source);
      if (config_.model.recompute != Recompute::none) {
        formulas.encoder_layer_again(source, config_.model.recompute);
      }
    }
    if (begins_decoder(part)) {
      formulas.tensor_passage(target.here());  // the embedding
    }
    if (decoder_layers(part) > 0) {
      formulas.tensor_passage(source.here());  // the memory, once for all these layers
    }
    for (std::int64_t layer = 0; layer < decoder_layers(part); ++layer) {
      formulas.decoder_layer(source, target);
      if (config_.model.recompute != Recompute::none) {
        formulas.decoder_layer_again(source, target, config_.model.recompute);
      }
    }
    if (ends_decoder(part)) {
      formulas.tensor_passage(target.here());  // the output projection
      formulas.loss_statistics(target.here());
    }
    formulas.border(part.begin, config_.model, source, target);
    formulas.border(part.end, config_.model, source, target);
  }

  void add_update(Formulas& formulas) const {
    std::int64_t encoders = 0;
    std::int64_t decoders = 0;
    for (IndexRange const& part : parts()) {
      encoders += encoder_layers(part);
      decoders += decoder_layers(part);
    }
    std::set<int> const holders = stages_with_the_table();
    bool const holds = holders.contains(parallel_.pipeline.rank());
    std::int64_t const t = parallel_.tensor.size();
    std::int64_t const elements =
        encoders * layer_elements(1, t) + decoders * layer_elements(2, t) + (holds ? vocabulary * d_model / t : 0);
    DistributedOptimizer const& optimizer = engine_.optimizer();
    formulas.gradients(elements, buckets());
    if (layout_.sequence_parallel) {
      formulas.partial_gradients(optimizer.sharded() ? own_norm_elements()
                                                     : (2 * encoders + 3 * decoders) * 2 * d_model);
    }
    if (holds) {
      formulas.shared_table(holders.size());
    }
    formulas.scalars();
  }

  std::set<int> stages_with_the_table() const {
    std::set<int> stages;
    PipelinePlan const& plan = engine_.plan();
    for (int stage = 0; stage < plan.stages(); ++stage) {
      for (IndexRange const& part : plan.parts[static_cast<std::size_t>(stage)]) {
        if (part.begin == 0 || begins_decoder(part) || ends_decoder(part)) {
          stages.insert(stage);
        }
      }
    }
    return stages;
  }

  /// If the replicas divide the buffers, each sums the norms of its own parts.
  std::int64_t own_norm_elements() const {
    std::int64_t elements = 0;
    for (Parameter const& parameter : engine_.parameters().all()) {
      if (parameter.spec.name.find(".norm.") != std::string::npos) {
        for (IndexRange const& own : intersection(
                 {elements_of(parameter)}, engine_.optimizer().reducer().parts().parts_of(parallel_.replicas.rank()))) {
          elements += own.count();
        }
      }
    }
    return elements;
  }

  Layout layout_;
  Config config_;
  TestBench bench_;
  ParallelState parallel_;
  TrainingEngine engine_;
};

void expect_equal(TrafficByGroup const& measured, TrafficByGroup const& expected) {
  for (std::size_t group = 0; group < traffic_groups; ++group) {
    EXPECT_EQ(measured[group], expected[group])
        << traffic_group_name(group) << ": measured " << describe(measured[group]) << "; by the formulas "
        << describe(expected[group]);
  }
}

class LedgerFormulasTest : public DistTest {
 protected:
  /// The measured numbers of docs/internals/communication.md: rank 0's, of two.
  void print(Layout const& layout, char const* what, TrafficByGroup const& ledgers) const {
    if (world_.rank() == 0 && world_.size() == 2) {
      fmt::print("{}: {}: tensor: {}; context: {}; pipeline: {}; replicas: {}\n", describe(layout), what,
                 describe(ledgers[TrafficGroup::tensor]), describe(ledgers[TrafficGroup::context]),
                 describe(ledgers[TrafficGroup::pipeline]), describe(ledgers[TrafficGroup::replicas]));
    }
  }
};

/// A step of every layout, of models with one layer more on either side. On many ranks, where a step takes long, each
/// layout gets one of the models.
TEST_F(LedgerFormulasTest, AStepMovesWhatTheFormulasSay) {
  auto const layouts = layouts_on(world_.size());
  for (std::size_t index = 0; index < layouts.size(); ++index) {
    Layout const& layout = layouts[index];
    SCOPED_TRACE(describe(layout));
    std::int64_t const stages = layout.size(MeshAxis::pipeline);
    std::array<Layers, 3> const models{{{stages, stages}, {stages + 1, stages}, {stages, stages + 1}}};
    for (std::size_t model = 0; model < models.size(); ++model) {
      if (world_.size() <= 2 || model == index % models.size()) {
        SCOPED_TRACE(fmt::format("{} + {} layers", models[model].encoder, models[model].decoder));
        LedgerRun run(models[model], layout, world_);
        TrafficByGroup const measured = run.measured();
        expect_equal(measured, run.expected());
        if (model == 0) {
          print(layout, "the whole step", measured);
        }
      }
    }
  }
  if (world_.rank() == 0) {
    fmt::print("the ledgers of {} layouts of {} ranks are the formulas, to the byte\n", layouts.size(), world_.size());
  }
}

TEST_F(LedgerFormulasTest, RecomputedLayersRepeatTheMessagesOfTheirForwardPass) {
  auto const layouts = layouts_on(world_.size());
  for (std::size_t index = 0; index < layouts.size(); ++index) {
    Layout const& layout = layouts[index];
    if (layout.shard_optimizer) {
      continue;
    }
    Recompute const recompute = index % 2 == 0 ? Recompute::attention : Recompute::layer;
    SCOPED_TRACE(describe(layout) + ", recompute " + std::string(name_of(recompute)));
    LedgerRun run({layout.size(MeshAxis::pipeline), layout.size(MeshAxis::pipeline), recompute}, layout, world_);
    expect_equal(run.measured(), run.expected());
  }
}

/// The difference that a layer makes, without pipeline: which stage gets the layer would depend on the cut.
TEST_F(LedgerFormulasTest, ALayerMovesWhatTheFormulasSay) {
  for (Layout const& layout : layouts_on(world_.size())) {
    // A norm's gradient is summed in one operation for all layers, and its place decides which rank does it in ZeRO-1;
    // the test of the whole step covers that.
    if (layout.size(MeshAxis::pipeline) > 1 || (layout.sequence_parallel && layout.shard_optimizer)) {
      continue;
    }
    SCOPED_TRACE(describe(layout));
    LedgerRun small_run({1, 1}, layout, world_);
    TrafficByGroup const small = small_run.measured();
    for (bool const decoder : {false, true}) {
      SCOPED_TRACE(decoder ? "a decoder layer" : "an encoder layer");
      LedgerRun run(decoder ? Layers{1, 2} : Layers{2, 1}, layout, world_);
      TrafficByGroup const difference = run.measured() - small;
      TrafficByGroup expected = run.expected_of_a_layer(decoder, small_run.buckets());
      if (layout.sequence_parallel) {
        add(expected[TrafficGroup::tensor], CollectiveOp::all_reduce, 0, (decoder ? 3 : 2) * 2 * d_model * element);
      }
      expect_equal(difference, expected);
      print(layout, decoder ? "a decoder layer" : "an encoder layer", difference);
    }
  }
}

}  // namespace
}  // namespace heddle
