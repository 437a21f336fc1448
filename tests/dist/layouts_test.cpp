#include "layouts.hpp"

#include <fmt/format.h>

#include <heddle/core/execution.hpp>
#include <heddle/dist/training_engine.hpp>
#include <map>
#include <optional>

#include "dist_fixture.hpp"
#include "golden_model.hpp"
#include "kernel_test_support.hpp"

namespace heddle {
namespace {

using testing_support::values;

// The promise of issue and design: on any mesh the model gives the outputs, gradients and trajectory of one rank. All
// in float64, where what remains is the rounding of sums taken in another order.
constexpr double tolerance = 1e-9;
constexpr int steps = 10;
constexpr std::int64_t micro_batches = 4;  // of a global batch
constexpr VocabularySizes vocabulary{23, 23, true};

std::vector<std::int32_t> tokens_of(std::int32_t seed, int length) {
  std::vector<std::int32_t> tokens;
  for (int place = 0; place < length; ++place) {
    tokens.push_back(3 + (seed * 7 + place * 5) % 20);
  }
  return tokens;
}

/// Two pairs a micro-batch, of unequal lengths, shorter and longer than any context group; other ones in every step.
std::vector<SentencePair> pairs_of(int step, std::int64_t micro_batch) {
  std::vector<SentencePair> pairs;
  for (std::int32_t index = 0; index < 2; ++index) {
    auto const sample = static_cast<std::int32_t>(2 * micro_batch) + index;
    pairs.push_back({sample, tokens_of(sample + step, (sample * 5 + step) % 11), tokens_of(sample, (sample * 3) % 8)});
  }
  return pairs;
}

std::int64_t target_tokens(int step) {
  std::int64_t tokens = 0;
  for (std::int64_t index = 0; index < micro_batches; ++index) {
    for (SentencePair const& pair : pairs_of(step, index)) {
      tokens += static_cast<std::int64_t>(pair.target.size()) + 1;
    }
  }
  return tokens;
}

Config config_of(Variant const& variant, Layout const& layout) {
  Config config;
  config.model.encoder_layers = 4;
  config.model.decoder_layers = 4;
  config.model.d_model = 16;
  config.model.d_ff = 24;
  config.model.heads = 8;
  config.model.max_length = 32;
  config.model.norm = variant.norm;
  config.model.tie_embeddings = variant.tied;
  config.model.positions = variant.tied ? Positions::sinusoidal : Positions::learned;
  config.model.dropout = 0.1;
  config.model.attention_dropout = 0.1;
  config.model.activation_dropout = 0.1;
  config.train.label_smoothing = 0.1;
  config.train.seed = 3;
  config.optimizer.clip_norm = 0.5;
  config.parallel.pipeline = layout.sizes[0];
  config.parallel.data = layout.sizes[1];
  config.parallel.context = layout.sizes[2];
  config.parallel.tensor = layout.sizes[3];
  config.parallel.pipeline_schedule = layout.schedule;
  config.parallel.shard_optimizer = layout.shard_optimizer;
  return config;
}

/// A model on a mesh, ready to train.
class LayoutRun {
 public:
  LayoutRun(Variant const& variant, Layout const& layout, Communicator const& world)
      : config_(config_of(variant, layout)),
        bench_(config_.model, DType::float64, KernelChoices{}),
        parallel_(parallel_of(layout, world)),
        engine_({config_, bench_.registries(), parallel_, bench_.execution(), vocabulary, DType::float64}) {
    engine_.parameters().initialize(config_.train.seed);
  }

  Pack pack(int step, std::int64_t index) const { return make_pack(pairs_of(step, index), 1, 2, 2, engine_.context()); }

  double accumulate(int step) {
    Share const mine = share(micro_batches, parallel_.data.rank(), parallel_.data.size());
    return engine_.accumulate({.micro_batches = mine.count(),
                               .make_pack = [&](std::int64_t index) { return pack(step, mine.begin + index); },
                               .target_tokens = target_tokens(step),
                               .step = static_cast<std::uint32_t>(step)});
  }

  /// The last layer's output for one micro-batch with dropout, on the last stage; empty elsewhere. Goes from part to
  /// part by hand.
  Tensor output(Pack const& pack_in) {
    Communicator const& pipeline = parallel_.pipeline;
    Context context{bench_.execution(), bench_.arena(), pack_in, true, 3, 0, engine_.stream()};
    int const parts = engine_.plan().parts_per_stage();
    Tensor hidden;
    for (int part = 0; part < parts; ++part) {
      ModelPart const& mine = engine_.model().parts()[static_cast<std::size_t>(part)];
      Stream const input = mine.allocate_input(context);
      int const previous = (pipeline.rank() + pipeline.size() - 1) % pipeline.size();
      for (Tensor const& tensor : {input.hidden, input.memory}) {
        if (!tensor.empty()) {
          pipeline.receive(tensor, previous);
        }
      }
      Saved saved;
      Stream const stream = mine.forward(context, input, saved, {0, 0}).stream;
      if (mine.ends_decoder()) {
        hidden = stream.hidden;
        continue;
      }
      for (Tensor const& tensor : {stream.hidden, stream.memory}) {
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
  Config config_;
  TestBench bench_;
  ParallelState parallel_;
  TrainingEngine engine_;
};

/// What one rank gives.
struct Expected {
  std::vector<double> output;  ///< of micro-batch 1 of step 0
  std::map<std::string, std::vector<double>> gradients, parameters;
  std::vector<double> losses, norms;
};

Expected one_rank(Variant const& variant) {
  LayoutRun run(variant, Layout{}, Communicator::self());
  Expected expected;
  expected.output = values(run.output(run.pack(0, 1)));
  for (int step = 0; step < steps; ++step) {
    expected.losses.push_back(run.accumulate(step));
    for (Parameter const& parameter : run.engine().parameters().all()) {
      if (step == 0) {
        expected.gradients[parameter.spec.name] = values(parameter.gradient);
      }
    }
    expected.norms.push_back(run.engine().update(run.rate(), step + 1));
  }
  for (Parameter const& parameter : run.engine().parameters().all()) {
    expected.parameters[parameter.spec.name] = values(parameter.value);
  }
  return expected;
}

Expected const& expected_of(Variant const& variant) {
  static std::map<Variant, Expected> known;
  auto const place = known.find(variant);
  return place != known.end() ? place->second : known.emplace(variant, one_rank(variant)).first->second;
}

/// This rank's rows of a whole pack's matrix.
std::vector<double> own_rows(std::vector<double> const& whole, Pack const& pack, StreamSplit const& split,
                             Communicator const& context_group) {
  TokenRows const& rows = pack.target_rows;
  std::size_t const columns = 16;
  std::vector<std::int32_t> places;
  if (context_group.size() > 1) {
    auto const from_whole = to_host<std::int32_t>(pack.target_context.from_whole);
    std::size_t begin = 0;
    for (int rank = 0; rank < context_group.rank(); ++rank) {
      begin += static_cast<std::size_t>(pack.target_context.shards[static_cast<std::size_t>(rank)].tokens);
    }
    auto const first = from_whole.begin() + static_cast<std::ptrdiff_t>(begin);
    places.assign(first, first + rows.tokens);
  } else {
    for (std::int64_t row = 0; row < rows.tokens; ++row) {
      places.push_back(static_cast<std::int32_t>(row));
    }
  }
  std::vector<double> own;
  Share const held = share(rows.tokens, split.rank, split.ranks);
  for (std::int64_t row = held.begin; row < held.end; ++row) {
    auto const from = whole.begin() + static_cast<std::ptrdiff_t>(columns) * places[static_cast<std::size_t>(row)];
    own.insert(own.end(), from, from + static_cast<std::ptrdiff_t>(columns));
  }
  return own;
}

class LayoutsTest : public DistTest {
 protected:
  void compare(Variant const& variant, Layout const& layout) {
    SCOPED_TRACE(describe(variant) + ", " + describe(layout));
    Expected const& expected = expected_of(variant);
    LayoutRun run(variant, layout, world_);
    compare_output(run, expected);
    for (int step = 0; step < steps; ++step) {
      double const loss = run.accumulate(step);
      auto const index = static_cast<std::size_t>(step);
      EXPECT_NEAR(loss, expected.losses[index], tolerance * expected.losses[index]) << "step " << step;
      if (step == 0 && !layout.shard_optimizer) {
        compare_parameters(run, expected.gradients, true);
      }
      double const norm = run.engine().update(run.rate(), step + 1);
      EXPECT_NEAR(norm, expected.norms[index], 100 * tolerance * expected.norms[index]) << "step " << step;
    }
    compare_parameters(run, expected.parameters, false);
  }

  void compare_output(LayoutRun& run, Expected const& expected) {
    Pack const pack = run.pack(0, 1);
    Tensor const output = run.output(pack);
    if (!output.empty()) {
      auto const rows = own_rows(expected.output, pack, run.engine().stream(), run.context());
      EXPECT_LE(relative_error(values(output), rows), tolerance) << "the last layer's output";
    }
  }

  static void compare_parameters(LayoutRun& run, std::map<std::string, std::vector<double>> const& expected,
                                 bool gradients) {
    for (Parameter const& parameter : run.engine().parameters().all()) {
      auto const part = local_part(expected.at(parameter.spec.name), parameter);
      auto const actual = values(gradients ? parameter.gradient : parameter.value);
      // A gradient that is zero but for rounding (of biases that a softmax does not see) is compared absolutely.
      double worst = 0;
      double largest = 1e-3;
      for (std::size_t index = 0; index < part.size(); ++index) {
        worst = std::max(worst, std::abs(part[index] - actual[index]));
        largest = std::max(largest, std::abs(part[index]));
      }
      EXPECT_EQ(part.size(), actual.size());
      EXPECT_LE(worst, (gradients ? 1 : 1000) * tolerance * largest)
          << parameter.spec.name << (gradients ? ": gradient" : ": value");
    }
  }
};

TEST_F(LayoutsTest, EveryLayoutOfTheRanksTrainsAsOneRank) {
  int runs = 0;
  auto const layouts = layouts_on(world_.size());
  for (Layout const& layout : layouts) {
    for (Variant const& variant : all_variants()) {
      compare(variant, layout);
      ++runs;
    }
  }
  if (world_.rank() == 0) {
    fmt::print("{} layouts of {} ranks, each with {} kinds of model: {} runs of {} steps\n", layouts.size(),
               world_.size(), all_variants().size(), runs, steps);
  }
}

}  // namespace
}  // namespace heddle
