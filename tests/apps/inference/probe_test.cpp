#include "inference/probe.hpp"

#include <heddle/core/attention/attention_positions.hpp>

#include "golden_model.hpp"
#include "inspection/model/observed_model.hpp"
#include "kernel_test_support.hpp"

namespace heddle {
namespace {

constexpr std::int64_t heads = 4;
constexpr std::int64_t key_heads = 2;
constexpr std::int64_t head_dim = 3;  // several passes for the keys of a sequence
constexpr std::int64_t prefix = 2;

class ProbeTest : public KernelTest {
 protected:
  AttentionCall call(AttentionMask const& mask, DType dtype = DType::float32) const {
    AttentionCall call;
    call.q = random_tensor(dtype, {8, heads * head_dim}, 1);
    call.k = random_tensor(dtype, {13, key_heads * head_dim}, 2);
    call.v = random_tensor(dtype, {13, key_heads * head_dim}, 3);
    call.queries = sequences_of({5, 3});
    call.keys = sequences_of({5, 8});
    call.heads = heads;
    call.kv_heads = key_heads;
    call.scale = 1.5;
    call.mask = mask;
    if (mask.is(MaskKind::prefix)) {
      call.prefix_length = int_tensor({prefix, prefix});
    }
    return call;
  }
  static std::shared_ptr<Attention> reference(TestBench const& bench) {
    return std::static_pointer_cast<Attention>(bench.registries().kernels.of<Attention>().find("reference"));
  }

  TestBench bench_{ModelConfig(), DType::float32};
};

/// softmax(scale q · k + bias) over the visible keys, straight from the formula.
std::vector<double> expected_weights(AttentionCall const& call, std::int64_t query_row, std::int64_t key_begin,
                                     std::int64_t keys, std::int64_t position, std::int64_t head) {
  auto const q = values(call.q);
  auto const k = values(call.k);
  auto const bias = call.bias.empty() ? std::vector<double>() : values(call.bias);
  auto const reach = call.bias.empty() ? 0 : call.bias.dim(1) / 2;
  std::vector<double> weights;
  double sum = 0;
  for (std::int64_t key = 0; key < keys; ++key) {
    double score = 0;
    for (std::int64_t d = 0; d < head_dim; ++d) {
      auto const of_query = static_cast<std::size_t>((query_row * heads + head) * head_dim + d);
      auto const of_key =
          static_cast<std::size_t>(((key_begin + key) * key_heads + head / (heads / key_heads)) * head_dim + d);
      score += call.scale * q[of_query] * k[of_key];
    }
    if (!bias.empty()) {
      std::int64_t const distance = std::clamp(key - position, -reach, reach);
      score += bias[static_cast<std::size_t>(head * call.bias.dim(1) + reach + distance)];
    }
    weights.push_back(call.mask.sees(prefix, position, key) ? std::exp(score) : 0);
    sum += weights.back();
  }
  for (double& weight : weights) {
    weight /= sum;
  }
  return weights;
}

void expect_weights(AttentionCall const& call, std::vector<SequenceAttention> const& sequences,
                    double tolerance = 1e-14) {
  ASSERT_EQ(sequences.size(), 2U);
  std::int64_t query_begin = 0;
  std::int64_t key_begin = 0;
  for (SequenceAttention const& sequence : sequences) {
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t query = 0; query < sequence.queries; ++query) {
        auto const expected = expected_weights(call, query_begin + query, key_begin, sequence.keys,
                                               query + sequence.keys - sequence.queries, head);
        double sum = 0;
        for (std::int64_t key = 0; key < sequence.keys; ++key) {
          double const weight =
              sequence.weights[static_cast<std::size_t>((head * sequence.queries + query) * sequence.keys + key)];
          EXPECT_NEAR(weight, expected[static_cast<std::size_t>(key)], tolerance);
          sum += weight;
        }
        EXPECT_NEAR(sum, 1, tolerance);
      }
    }
    query_begin += sequence.queries;
    key_begin += sequence.keys;
  }
}

TEST_F(ProbeTest, WeightsAreTheSoftmaxOfTheScoresUnderEveryMask) {
  for (AttentionMask const& mask :
       {AttentionMask::bidirectional(), AttentionMask::causal(), AttentionMask::window(2, 0),
        AttentionMask::window(1, 2), AttentionMask::blocks(2, 1, 1), AttentionMask::blocks(2, 1, 0, 1),
        AttentionMask::prefix()}) {
    SCOPED_TRACE(describe(mask));
    AttentionCall const call = this->call(mask);
    expect_weights(call, attention_weights(execution_, *reference(bench_), call));
    expect_weights(call, attention_weights(execution_, bench_.registries().kernels.of<Attention>(), call), 1e-6);
  }
}

TEST_F(ProbeTest, WeightsIncludeBiasesAndAreThoseOfBfloat16Activations) {
  AttentionCall call = this->call(AttentionMask::causal(), DType::bfloat16);
  call.bias = random_tensor(DType::float32, {heads, 7}, 4);
  expect_weights(call, attention_weights(execution_, *reference(bench_), call));
}

TEST_F(ProbeTest, RefusesCallsThatContinueOthers) {
  AttentionCall call = this->call(AttentionMask::bidirectional());
  call.accumulate = true;
  EXPECT_THROW(attention_weights(execution_, *reference(bench_), call), Error);
}

TEST_F(ProbeTest, TheProbeGivesTheReferencesResultAndKeepsItsCalls) {
  AttentionProbe probe(reference(bench_));
  AttentionCall const call = this->call(AttentionMask::causal());
  Tensor const output = Tensor::allocate(DType::float32, call.q.shape());
  Tensor const expected = Tensor::allocate(DType::float32, call.q.shape());
  Tensor const log_sum_exp = Tensor::allocate(DType::float32, {8, heads});
  probe.forward(execution_, call, output, log_sum_exp);
  EXPECT_TRUE(probe.stop().empty());
  probe.start();
  probe.forward(execution_, call, output, log_sum_exp);
  auto const calls = probe.stop();
  ASSERT_EQ(calls.size(), 1U);
  expect_weights(call, calls.front().sequences);
  reference(bench_)->forward(execution_, call, expected, log_sum_exp);
  expect_same_bits(output, expected, "output");
}

TEST_F(ProbeTest, TheProbeOfAllImplementationsUsesTheFastestForActivationsAndWeights) {
  auto const& kernels = bench_.registries().kernels.of<Attention>();
  AttentionProbe probe(kernels);
  for (DType const dtype : {DType::float32, DType::bfloat16}) {
    AttentionCall const call = this->call(AttentionMask::causal(), dtype);
    Tensor const output = Tensor::allocate(dtype, call.q.shape());
    Tensor const expected = Tensor::allocate(dtype, call.q.shape());
    Tensor const log_sum_exp = Tensor::allocate(DType::float32, {8, heads});
    probe.start();
    probe.forward(execution_, call, output, log_sum_exp);
    auto const calls = probe.stop();
    ASSERT_EQ(calls.size(), 1U);
    expect_weights(call, calls.front().sequences, 1e-6);
    kernels.select("auto", call.problem())->forward(execution_, call, expected, log_sum_exp);
    expect_same_bits(output, expected, "output");
  }
}

TEST(Positions, RotaryTableIsTheTurnThatLayersMake) {
  ModelConfig config;
  config.d_model = 12;
  config.heads = 2;
  config.positions = Positions::rotary;
  config.rotary_base = 100;
  TestBench bench(config, DType::float64);
  LayerSpec const spec = bench.spec("encoder", Side::source);
  auto const positions = make_attention_positions({spec, 2, {}});
  constexpr std::int64_t columns = 6;
  positions->add_layer(spec, 2, columns);
  constexpr std::int64_t rows = 9;
  std::vector<double> units;
  std::vector<std::int32_t> at;
  for (std::int64_t row = 0; row < rows; ++row) {
    at.push_back(static_cast<std::int32_t>(row));
    for (std::int64_t column = 0; column < columns; ++column) {
      units.push_back(column % 2 == 0 ? 1 : 0);
    }
  }
  Tensor const matrix = tensor_of(units, DType::float64, {rows, columns});
  Pack const pack;
  LayerContext context = bench.context(pack);
  positions->rotate(context, matrix, columns, int_tensor(at), false);
  auto const turned = values(matrix);
  auto const table = rotary_table(rows, columns, config.rotary_base);
  ASSERT_EQ(table.size(), static_cast<std::size_t>(rows * columns / 2));
  for (std::size_t i = 0; i < table.size(); ++i) {
    EXPECT_NEAR(table[i], turned[2 * i], 1e-14);
  }
}

TEST(Masks, SublayersWithTheSameMaskShareAPicture) {
  std::vector<AttentionSublayer> const sublayers{
      {"encoder.layers.0.self_attention"}, {"decoder.layers.0.self_attention"}, {"decoder.layers.0.cross_attention"}};
  auto const masks = masks_to_json({.sublayers = sublayers,
                                    .calls = {{.mask = AttentionMask::bidirectional()},
                                              {.mask = AttentionMask::window(300, 0)},
                                              {.mask = AttentionMask::bidirectional()}},
                                    .added = {}});
  ASSERT_EQ(masks.size(), 2U);
  EXPECT_EQ(masks[0].at("sublayers").as_array(), (boost::json::array{sublayers[0].path, sublayers[2].path}));
  EXPECT_EQ(masks[1].at("mask").as_string(), "window(300, 0)");
  EXPECT_GE(masks[1].at("positions").as_int64(), 1200);
  EXPECT_LE(masks[1].at("matrix").at("rows").as_int64(), 48);
}

}  // namespace
}  // namespace heddle
