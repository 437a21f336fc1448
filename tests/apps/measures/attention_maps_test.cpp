#include "measures/attention_maps.hpp"

#include <heddle/core/config/config.hpp>
#include <heddle/core/training/micro_batch_source.hpp>
#include <heddle/dist/planning/dry_run.hpp>

#include "golden_model.hpp"
#include "inference/probe.hpp"
#include "test.hpp"
#include "test_ids.hpp"

namespace heddle {
namespace {

constexpr VocabularySizes vocabulary{20, 20, true};

Config tiny_config(std::string const& keys = "") {
  Config config = parse_config("[model]\ndecoder_layers = 2\nencoder_layers = 1\n" + keys, "test");
  config.model.d_model = 8;
  config.model.d_ff = 8;
  config.model.heads = 4;
  config.model.dropout = 0.3;
  return config;
}

class AttentionMapsTest : public testing::Test {
 protected:
  explicit AttentionMapsTest(Config config = tiny_config())
      : config_(std::move(config)),
        bench_(config_.model, DType::float32),
        engine_({config_, bench_.registries(), parallel_, bench_.execution(), vocabulary}) {
    engine_.parameters().initialize(7);
  }
  AttentionView view() {
    return view_attention({config_, bench_.registries(), engine_, parallel_, bench_.execution(), vocabulary}, pack_);
  }
  static void fill_with_zeros(ParameterSet& parameters) {
    std::vector<float> const zeros(static_cast<std::size_t>(parameters.values().size()));
    copy_from_host(parameters.values(), zeros.data());
    parameters.bump_versions();
  }
  /// The mean over heads of the weights that the engine's own calls have, where it is built with a probe.
  std::vector<double> expected(std::size_t call, std::uint64_t seed) {
    Registries registries = bench_.registries();
    Config config = config_;
    auto const probe = install_probe<AttentionProbe, Attention>(registries.kernels, config.kernels);
    TrainingEngine engine({config, registries, parallel_, bench_.execution(), vocabulary});
    engine.parameters().initialize(seed);
    probe->start();
    engine.evaluate(RepeatedPack(make_pack(std::span(&pair_, 1), test_ids)));
    auto const calls = probe->stop();
    SequenceAttention const& sequence = calls.at(call).sequences.front();
    auto const size = static_cast<std::size_t>(sequence.queries * sequence.keys);
    std::vector<double> mean(size);
    for (std::size_t index = 0; index < sequence.weights.size(); ++index) {
      mean[index % size] += sequence.weights[index] / 4;
    }
    return mean;
  }

  Config config_;
  TestBench bench_;
  ParallelState parallel_;
  TrainingEngine engine_;
  Sample const pair_{0, {5, 9, 4, 7}, {6, 3}};
  Pack const pack_ = make_pack(std::span(&pair_, 1), test_ids);
};

TEST_F(AttentionMapsTest, AreThoseOfTheModelThatTrains) {
  for (std::uint64_t const seed : {7U, 8U}) {
    engine_.parameters().initialize(seed);
    auto const found = view().maps;
    ASSERT_THAT(found, SizeIs(2));
    EXPECT_EQ(found[0].path, "decoder.layers.0.cross_attention");
    EXPECT_EQ(found[1].path, "decoder.layers.1.cross_attention");
    for (AttentionMap const& map : found) {
      ASSERT_EQ(map.queries, 3) << "the start token and the target's tokens";
      ASSERT_EQ(map.keys, 5) << "the source's tokens and end";
      for (auto row = map.weights.begin(); row != map.weights.end(); row += map.keys) {
        EXPECT_NEAR(std::accumulate(row, row + map.keys, 0.0), 1, 1e-6);
      }
    }
    // The encoder's layer is call 0, then each layer of the decoder attends to itself first.
    EXPECT_THAT(found[0].weights, Pointwise(DoubleNear(1e-6), expected(2, seed)));
    EXPECT_THAT(found[1].weights, Pointwise(DoubleNear(1e-6), expected(4, seed)));
  }
}

TEST_F(AttentionMapsTest, ChangeNothingInTheModelThatTrains) {
  auto const before = to_host<float>(engine_.parameters().values());
  auto const kernels = bench_.registries().kernels.of<Attention>().names();
  view();
  EXPECT_EQ(to_host<float>(engine_.parameters().values()), before);
  EXPECT_EQ(bench_.registries().kernels.of<Attention>().names(), kernels) << "the probe is not registered";
}

/// The mean over four heads and all queries of the entropy of a call's weights, as a part of the largest possible one.
double mean_entropy(SequenceAttention const& sequence, bool causal) {
  double sum = 0;
  double rows = 0;
  for (std::int64_t row = 0; row < 4 * sequence.queries; ++row) {
    std::int64_t const keys = causal ? row % sequence.queries + 1 : sequence.keys;
    double entropy = 0;
    for (std::int64_t key = 0; key < keys; ++key) {
      double const weight = sequence.weights[static_cast<std::size_t>(row * sequence.keys + key)];
      entropy -= weight * std::log(weight);
    }
    sum += keys > 1 ? entropy / std::log(static_cast<double>(keys)) : 0;
    rows += keys > 1 ? 1 : 0;
  }
  return sum / rows;
}

TEST_F(AttentionMapsTest, HaveTheEntropiesOfTheirWeights) {
  Registries registries = bench_.registries();
  Config config = config_;
  auto const probe = install_probe<AttentionProbe, Attention>(registries.kernels, config.kernels);
  TrainingEngine engine({config, registries, parallel_, bench_.execution(), vocabulary});
  engine.parameters().initialize(7);
  probe->start();
  engine.evaluate(RepeatedPack(pack_));
  auto const calls = probe->stop();
  auto const found = view().entropies;
  std::vector<std::string> const paths{"encoder.layers.0.self_attention", "decoder.layers.0.self_attention",
                                       "decoder.layers.0.cross_attention", "decoder.layers.1.self_attention",
                                       "decoder.layers.1.cross_attention"};
  ASSERT_THAT(found, SizeIs(paths.size()));
  for (std::size_t index = 0; index < paths.size(); ++index) {
    bool const own = paths[index].starts_with("decoder") && paths[index].ends_with("self_attention");
    EXPECT_EQ(found[index].path, paths[index]);
    EXPECT_EQ(found[index].of_source, !own);
    EXPECT_NEAR(found[index].mean, mean_entropy(calls.at(index).sequences.front(), own), 1e-6) << paths[index];
    EXPECT_LT(found[index].mean, 1);
  }
}

TEST_F(AttentionMapsTest, AreUniformWhereScoresAreEqual) {
  EXPECT_EQ(uniform_attention(view().entropies), std::nullopt) << "a model as it is initialised";
  fill_with_zeros(engine_.parameters());
  for (AttentionEntropy const& each : view().entropies) {
    EXPECT_NEAR(each.mean, 1, 1e-6);
  }
  expect_contains(uniform_attention(view().entropies).value_or(""), "the cross-attention is almost uniform");
}

TEST(UniformAttentionTest, IsWarnedAboutWhereAllLayersOfAKindAre) {
  AttentionEntropy const encoder{"encoder.layers.0.self_attention", 0.7, true};
  AttentionEntropy const flat_encoder{"encoder.layers.0.self_attention", 0.999, true};
  AttentionEntropy const own{"decoder.layers.0.self_attention", 1, false};
  AttentionEntropy const cross{"decoder.layers.0.cross_attention", 0.6, true};
  AttentionEntropy const flat_cross{"decoder.layers.1.cross_attention", 0.999, true};
  auto const warned = [](std::vector<AttentionEntropy> const& all) { return uniform_attention(all).value_or(""); };
  EXPECT_EQ(warned({}), "");
  EXPECT_EQ(warned({encoder, own, cross, flat_cross}), "") << "one layer of two reads the source";
  EXPECT_EQ(warned({own}), "") << "decoder-only";
  expect_contains(warned({encoder, own, flat_cross}), "the cross-attention is almost uniform");
  expect_contains(warned({flat_encoder, own, cross}), "the encoder's self-attention is almost uniform");
}

class RecomputedMapsTest : public AttentionMapsTest {
 protected:
  RecomputedMapsTest() : AttentionMapsTest(tiny_config("recompute = \"layer\"\n")) {}
};

TEST_F(RecomputedMapsTest, AreThoseOfLayersThatKeepNothing) {
  auto const found = view().maps;
  ASSERT_THAT(found, SizeIs(2));
  EXPECT_THAT(found[1].weights, Pointwise(DoubleNear(1e-6), expected(4, 7)));
}

class DecoderOnlyMapsTest : public AttentionMapsTest {
 protected:
  DecoderOnlyMapsTest() : AttentionMapsTest(tiny_config("stacks = [\"decoder\"]\n")) {}
};

TEST_F(DecoderOnlyMapsTest, DoNotExist) {
  EXPECT_THAT(view().maps, IsEmpty());
}

TEST(AttentionMapTest, EachWeightIsASquare) {
  GreyImage const image = draw({"a", 1, 2, {0.2, 1}});
  EXPECT_EQ(image.width, 24);
  EXPECT_EQ(image.height, 12);
  ASSERT_THAT(image.pixels, SizeIs(24 * 12));
  for (std::size_t pixel = 0; pixel < image.pixels.size(); ++pixel) {
    ASSERT_EQ(image.pixels[pixel], pixel % 24 < 12 ? 51 : 255) << pixel;
  }
}

TEST(AttentionMapTest, RanksThatHaveAPartOfTheModelOrOfASentenceHaveNone) {
  // The mesh of four ranks is pipeline x data x context x tensor.
  auto const has = [](MeshShape const& sizes, int rank) {
    return has_attention_maps(idle_parallel_state(Mesh(sizes, rank, 4), {}), {});
  };
  bool const on_host = kernel_memory_space() == MemorySpace::host;
  EXPECT_EQ(has({1, 2, 1, 2}, 0), on_host);
  EXPECT_EQ(has({1, 2, 1, 2}, 1), on_host) << "it has the other heads";
  EXPECT_FALSE(has({1, 2, 1, 2}, 2)) << "it has the same as rank 0";
  EXPECT_FALSE(has({2, 1, 1, 2}, 0));
  EXPECT_FALSE(has({1, 1, 2, 2}, 0));
}

TEST(AttentionMapTest, ALayoutThatMeasuresNothingSaysWhy) {
  if (kernel_memory_space() != MemorySpace::host) {
    GTEST_SKIP() << "nothing is measured on a device";
  }
  auto const reason = [](MeshShape const& sizes, ParallelConfig const& config = {}) {
    return unmeasured_attention(idle_parallel_state(Mesh(sizes, 0, 4), config), config).value_or("");
  };
  EXPECT_EQ(reason({1, 2, 1, 2}), "");
  EXPECT_EQ(reason({2, 1, 1, 2}), "with parallel.pipeline = 2 no rank has a whole forward pass of a sentence");
  EXPECT_EQ(reason({1, 1, 4, 1}), "with parallel.context = 4 no rank has a whole forward pass of a sentence");
  ParallelConfig sharded;
  sharded.shard_parameters = true;
  EXPECT_EQ(reason({1, 2, 1, 2}, sharded),
            "with parallel.shard_parameters or parallel.expert no rank has all parameters");
}

}  // namespace
}  // namespace heddle
