#include <heddle/core/attention/attention_positions.hpp>
#include <heddle/core/layers/token_embedding.hpp>

#include "golden_model.hpp"
#include "kernel_test_support.hpp"

namespace heddle {
namespace {

/// The positions of one stack, without layers.
class StackPositions {
 public:
  StackPositions(ModelConfig const& config, Side side, std::int64_t heads)
      : bench_(config, DType::float64),
        spec_(bench_.spec("stack", side)),
        positions_(make_attention_positions({.stack = spec_, .heads = heads, .stages = {}})) {
    bench_.allocate();
  }

  /// [heads, 2 r + 1]
  Tensor bias() {
    LayerContext context = bench_.context(pack_);
    return positions_->bias(context);
  }
  AttentionPositions& positions() { return *positions_; }
  LayerSpec const& spec() const { return spec_; }
  TestBench& bench() { return bench_; }

 private:
  TestBench bench_;
  LayerSpec spec_;
  std::shared_ptr<AttentionPositions> positions_;
  Pack pack_;
};

ModelConfig config_with(Positions positions) {
  ModelConfig config;
  config.positions = positions;
  config.max_length = 5;
  return config;
}

// The values of get_slopes in the code of Press et al. 2022.
TEST(Alibi, SlopesAreThoseOfThePaper) {
  std::map<std::int64_t, std::vector<double>> const exponents{
      {1, {-8}},
      {2, {-4, -8}},
      {6, {-2, -4, -6, -8, -1, -3}},
      {8, {-1, -2, -3, -4, -5, -6, -7, -8}},
      {12, {-1, -2, -3, -4, -5, -6, -7, -8, -0.5, -1.5, -2.5, -3.5}}};
  for (auto const& [heads, expected] : exponents) {
    StackPositions stack(config_with(Positions::alibi), Side::target, heads);
    Tensor const bias = stack.bias();
    ASSERT_EQ(bias.shape(), (Shape{heads, 9}));
    auto const table = values(bias);
    for (std::size_t head = 0; head < expected.size(); ++head) {
      double const slope = std::exp2(expected[head]);
      for (std::size_t column = 0; column < 9; ++column) {
        EXPECT_DOUBLE_EQ(table[9 * head + column], -slope * std::abs(static_cast<double>(column) - 4))
            << head << " of " << heads << " at " << column;
      }
    }
    EXPECT_TRUE(stack.bench().parameters().all().empty());
  }
}

TEST(Alibi, HeadsAreThoseOfTheStack) {
  StackPositions stack(config_with(Positions::alibi), Side::source, 8);
  stack.positions().add_layer(stack.spec(), 8, 4);
  expect_config_error([&] { stack.positions().add_layer(stack.spec().named("stack.layers.3.self_attention"), 4, 4); },
                      {"model.heads = 4", "\"alibi\"", "stack.layers.3.self_attention"});
}

/// The buckets at the distances -max_distance … max_distance, read from a bias whose weights are the buckets' numbers.
std::vector<int> buckets(Side side, std::int64_t count, std::int64_t max_distance) {
  ModelConfig config = config_with(Positions::relative_buckets);
  config.position_buckets = count;
  config.max_distance = max_distance;
  StackPositions stack(config, side, 2);
  std::vector<double> numbers;
  for (std::int64_t index = 0; index < 2 * count; ++index) {
    numbers.push_back(static_cast<double>(index));
  }
  copy_from_doubles(stack.bench().parameters().find("stack.attention_bias.weight")->value, numbers);
  auto const bias = values(stack.bias());
  std::vector<int> result;
  for (std::size_t column = 0; column < bias.size() / 2; ++column) {
    result.push_back(static_cast<int>(bias[column]));
    EXPECT_EQ(bias[bias.size() / 2 + column], bias[column] + static_cast<double>(count));
  }
  return result;
}

/// Fills distances -max_distance … max_distance with the bucket of the last border at or below each.
std::vector<int> from_borders(std::int64_t max_distance, int first, std::map<std::int64_t, int> const& borders) {
  std::vector<int> result;
  int bucket = first;
  for (std::int64_t distance = -max_distance; distance <= max_distance; ++distance) {
    auto const border = borders.find(distance);
    bucket = border == borders.end() ? bucket : border->second;
    result.push_back(bucket);
  }
  return result;
}

// Borders printed by T5's function _relative_position_bucket under PyTorch 2.15.
TEST(RelativeBuckets, AreThoseOfT5) {
  EXPECT_EQ(buckets(Side::source, 32, 128),
            from_borders(128, 15, {{-90, 14}, {-63, 13}, {-45, 12}, {-31, 11}, {-22, 10}, {-15, 9}, {-11, 8}, {-7, 7},
                                   {-6, 6},   {-5, 5},   {-4, 4},   {-3, 3},   {-2, 2},   {-1, 1},  {0, 0},   {1, 17},
                                   {2, 18},   {3, 19},   {4, 20},   {5, 21},   {6, 22},   {7, 23},  {8, 24},  {12, 25},
                                   {16, 26},  {23, 27},  {32, 28},  {46, 29},  {64, 30},  {91, 31}}));
  EXPECT_EQ(
      buckets(Side::target, 32, 128),
      from_borders(128, 31, {{-112, 30}, {-98, 29}, {-86, 28}, {-76, 27}, {-66, 26}, {-58, 25}, {-51, 24}, {-45, 23},
                             {-39, 22},  {-34, 21}, {-30, 20}, {-26, 19}, {-23, 18}, {-20, 17}, {-18, 16}, {-15, 15},
                             {-14, 14},  {-13, 13}, {-12, 12}, {-11, 11}, {-10, 10}, {-9, 9},   {-8, 8},   {-7, 7},
                             {-6, 6},    {-5, 5},   {-4, 4},   {-3, 3},   {-2, 2},   {-1, 1},   {0, 0}}));
  EXPECT_EQ(buckets(Side::source, 8, 20), from_borders(20, 3, {{-6, 2}, {-1, 1}, {0, 0}, {1, 5}, {2, 6}, {7, 7}}));
  EXPECT_EQ(buckets(Side::target, 8, 20),
            from_borders(20, 7, {{-13, 6}, {-8, 5}, {-5, 4}, {-3, 3}, {-2, 2}, {-1, 1}, {0, 0}}));
}

TEST(RelativeBuckets, MoreBucketsThanDistancesAreRefused) {
  ModelConfig config = config_with(Positions::relative_buckets);
  config.max_distance = 16;
  expect_config_error([&] { StackPositions(config, Side::target, 2); },
                      {"model.max_distance = 16", "model.position_buckets"});
  StackPositions(config, Side::source, 2);
}

/// As in tensor2tensor: the sines of all frequencies, then their cosines; the last wavelength is 10000 * 2π.
TEST(Sinusoids, InHalvesSinesPrecedeCosines) {
  ModelConfig config = config_with(Positions::sinusoidal);
  config.position_layout = PairLayout::halves;
  config.d_model = 8;
  config.dropout = 0;
  TestBench bench(config, DType::float64);
  Parameter& table =
      bench.parameters().reserve({"table", {{11, 8}, Placement::sharded_along(0)}, Initializer::zeros()});
  LayerSpec spec = bench.spec("encoder", Side::source);
  spec.table = &table;
  TokenEmbedding const embedding(spec);
  bench.allocate();
  copy_from_doubles(table.value, std::vector<double>(88));
  Pack const pack = make_source_pack(std::vector<SampleSide>{{5, 9, 3}}, {.end = 2});
  LayerContext context = bench.context(pack);
  Saved saved;
  auto const rows = values(embedding.forward(context, saved));
  ASSERT_EQ(rows.size(), 32U);
  for (std::size_t index = 0; index < rows.size(); ++index) {
    std::size_t const column = index % 8;
    double const angle = static_cast<double>(index / 8) * std::pow(10000.0, -static_cast<double>(column % 4) / 3);
    EXPECT_NEAR(rows[index], column < 4 ? std::sin(angle) : std::cos(angle), 1e-15) << index;
  }
}

/// Llama's layout and base: pair i is in the columns i and i + head_dim / 2.
TEST(Rotary, InHalvesPairsAreHalfAHeadApart) {
  ModelConfig config = config_with(Positions::rotary);
  config.position_layout = PairLayout::halves;
  config.rotary_base = 500;
  StackPositions stack(config, Side::source, 2);
  stack.positions().add_layer(stack.spec(), 2, 6);
  Tensor const row = random_tensor(DType::float64, {1, 12}, 1);
  auto const before = values(row);
  Pack const pack;
  LayerContext context = stack.bench().context(pack);
  stack.positions().rotate(context, row, 6, int_tensor({3}), false);
  auto const after = values(row);
  for (std::size_t head = 0; head < 2; ++head) {
    for (std::size_t pair = 0; pair < 3; ++pair) {
      double const angle = 3 * std::pow(500.0, -static_cast<double>(pair) / 3);
      double const first = before[6 * head + pair];
      double const second = before[6 * head + pair + 3];
      EXPECT_NEAR(after[6 * head + pair], first * std::cos(angle) - second * std::sin(angle), 1e-14);
      EXPECT_NEAR(after[6 * head + pair + 3], first * std::sin(angle) + second * std::cos(angle), 1e-14);
    }
  }
}

}  // namespace
}  // namespace heddle
