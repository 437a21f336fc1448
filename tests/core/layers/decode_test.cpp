#include "golden_file.hpp"
#include "golden_model.hpp"
#include "kernel_test_support.hpp"
#include "test_ids.hpp"
#include "test_scores.hpp"

namespace heddle {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::int32_t capacity = 6;

Tensor integers(Ids const& ids) {
  return from_host<std::int32_t>(ids, {static_cast<std::int64_t>(ids.size())});
}

ModelConfig small_model(NormPlacement norm, Positions positions, std::string const& tables) {
  ModelConfig config = parse_config(tables, "test").model;
  config.encoder.layers = 2;
  config.decoder.layers = 2;
  config.d_model = 8;
  config.d_ff = 12;
  config.heads = 2;
  config.max_length = 8;
  config.norm = norm;
  config.positions = positions;
  config.max_distance = 3;
  config.position_buckets = 4;
  if (norm == NormPlacement::pre) {
    config.position_layout = PairLayout::halves;
  }
  config.dropout = 0.3;  // not active outside training
  if (norm == NormPlacement::both) {
    config.norm_kind = NormKind::rms;
    config.embedding_norm = true;
    config.decoder.settings = {{"self_attention.query_key_norm", {true, "test"}},
                               {"cross_attention.query_key_norm", {true, "test"}}};
  }
  return config;
}

/// Two sentences with two hypotheses each, extended token by token.
class DecodeTest : public testing::TestWithParam<std::tuple<NormPlacement, Positions, std::string>> {
 protected:
  DecodeTest() {
    LayerContext context = test_.bench.context(pack_);
    encoder_output_ = test_.model.encode(context);
  }

  std::int64_t rows() const { return static_cast<std::int64_t>(histories_.size()); }

  DecodeStep step() const {
    Ids query, key, source, source_length, written, copied, copies;
    Ids const begins = to_host<std::int32_t>(pack_.source_rows.sequences.begin);
    Ids const lengths = to_host<std::int32_t>(pack_.source_rows.sequences.length);
    for (std::size_t row = 0; row < places_.size(); ++row) {
      query.push_back(static_cast<std::int32_t>(row));
      key.push_back(places_[row] * capacity);
      source.push_back(begins[static_cast<std::size_t>(places_[row] / 2)]);
      source_length.push_back(lengths[static_cast<std::size_t>(places_[row] / 2)]);
      written.push_back(key.back() + time_);
      for (std::int32_t at = 0; places_[row] != parents_[row] && at < time_; ++at) {
        copied.push_back(parents_[row] * capacity + at);
        copies.push_back(key.back() + at);
      }
    }
    std::int64_t const source_rows = pack_.source_rows.tokens;
    Ids sources(static_cast<std::size_t>(source_rows));
    std::iota(sources.begin(), sources.end(), 0);
    return {
        .first = time_ == 0,
        .queries = {integers(query), integers(Ids(query.size(), 1)), rows(), 1},
        .keys = {integers(key), integers(Ids(query.size(), time_ + 1)), rows(), time_ + 1},
        .encoder_output = {integers(source), integers(source_length), rows(), pack_.source_rows.sequences.max_length},
        .position = integers(Ids(query.size(), time_)),
        .tokens = {4 * capacity, integers(written)},
        .copied = copied.empty() ? Tensor() : integers(copied),
        .copies = copied.empty() ? Tensor() : integers(copies),
        .encoder_rows = {source_rows, integers(sources)},
        .states = {4, integers(places_)},
        .previous_state = integers(parents_)};
  }

  /// Logits after each hypothesis's newest token.
  std::vector<double> decode() {
    Ids newest;
    Ids row;
    for (Ids const& history : histories_) {
      row.push_back(static_cast<std::int32_t>(newest.size()));
      newest.push_back(history.empty() ? test_ids.target.begin : history.back());
    }
    DecodeStep const decode_step = step();
    parents_ = places_;
    LayerContext context = test_.bench.context(pack_);
    return values(test_.model.decode(
        context,
        {{integers(newest), Tensor()}, {decode_step.queries, Tensor(), decode_step.position, rows()}, integers(row)},
        decode_step.first ? encoder_output_ : Tensor(), decode_step, caches_));
  }

  /// The same logits from whole prefixes.
  std::vector<double> full_prefix_logits() {
    std::vector<Sample> pairs;
    for (std::size_t row = 0; row < histories_.size(); ++row) {
      pairs.push_back(
          {static_cast<std::int32_t>(row), sources_[static_cast<std::size_t>(places_[row] / 2)], histories_[row]});
    }
    Pack const pack = make_pack(pairs, test_ids);
    LayerContext context = test_.bench.context(pack);
    auto const logits = values(test_.model.logits(context));
    auto const vocabulary = static_cast<std::ptrdiff_t>(vocabulary_);
    std::vector<double> last;
    for (std::ptrdiff_t row = 0; row < rows(); ++row) {
      auto const end = logits.begin() + (row + 1) * (time_ + 1) * vocabulary;
      last.insert(last.end(), end - vocabulary, end);
    }
    return last;
  }

  void extend(Ids const& tokens) {
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      histories_[row].push_back(tokens[row]);
    }
    ++time_;
  }

  /// Hypothesis i continues the former hypothesis parents[i], at the place places[i].
  void reorder(Ids const& parents, Ids const& places) {
    Ids parent_places;
    std::vector<Ids> histories;
    for (std::int32_t const parent : parents) {
      parent_places.push_back(places_[static_cast<std::size_t>(parent)]);
      histories.push_back(histories_[static_cast<std::size_t>(parent)]);
    }
    histories_ = histories;
    places_ = places;
    parents_ = parent_places;
  }

  static constexpr std::int64_t vocabulary_ = 11;
  TestModel test_{small_model(std::get<0>(GetParam()), std::get<1>(GetParam()), std::get<2>(GetParam())),
                  {vocabulary_, vocabulary_, true},
                  DType::float64};
  std::vector<SampleSide> sources_{{5, 9, 3}, {4}};
  std::vector<Ids> histories_{4};
  Ids places_{0, 1, 2, 3};   ///< of the hypotheses, in the caches; two for each sentence
  Ids parents_{0, 1, 2, 3};  ///< places of the hypotheses that they continue in the next step
  std::int32_t time_ = 0;
  Pack pack_ = make_source_pack(sources_, test_ids.source);
  std::vector<DecodeCache> caches_ = test_.model.make_caches();
  Tensor encoder_output_;
};

TEST_P(DecodeTest, StepByStepEqualsWholePrefixes) {
  std::vector<Ids> const tokens{{3, 4, 5, 6}, {7, 7, 8, 3}, {9, 10, 3, 4}, {5, 6, 5, 6}};
  for (Ids const& next : tokens) {
    EXPECT_LE(relative_error(decode(), full_prefix_logits()), 1e-13) << "at " << time_;
    extend(next);
  }
  EXPECT_LE(relative_error(decode(), full_prefix_logits()), 1e-13) << "at " << time_;
}

TEST_P(DecodeTest, ReorderedHypothesesKeepTheirPast) {
  decode();
  extend({3, 4, 5, 6});
  decode();
  reorder({1, 1, 3, 2}, {1, 0, 3, 2});
  extend({7, 8, 9, 10});
  EXPECT_LE(relative_error(decode(), full_prefix_logits()), 1e-13);
  reorder({1, 0, 3, 3}, {0, 1, 2, 3});
  extend({3, 3, 4, 5});
  EXPECT_LE(relative_error(decode(), full_prefix_logits()), 1e-13);
}

TEST_P(DecodeTest, FewerHypothesesGoOn) {
  decode();
  extend({3, 4, 5, 6});
  decode();
  reorder({1, 0}, {1, 0});  // both of the first sentence
  extend({7, 8});
  EXPECT_LE(relative_error(decode(), full_prefix_logits()), 1e-13);
}

INSTANTIATE_TEST_SUITE_P(Models, DecodeTest,
                         testing::Combine(testing::Values(NormPlacement::post, NormPlacement::pre, NormPlacement::both),
                                          testing::Values(Positions::sinusoidal, Positions::learned, Positions::none,
                                                          Positions::rotary, Positions::relative,
                                                          Positions::relative_buckets, Positions::alibi),
                                          testing::Values("")));

/// Options of the attention layers.
INSTANTIATE_TEST_SUITE_P(
    Attention, DecodeTest,
    testing::Combine(testing::Values(NormPlacement::pre), testing::Values(Positions::sinusoidal),
                     testing::Values("[model.decoder]\nself_attention = { window = 1 }",
                                     "[model.decoder]\nself_attention = { window = 1, block = 2, global_tokens = 1 }",
                                     "[model.decoder]\nself_attention = { soft_cap = 0.5, kv_heads = 1 }\n"
                                     "cross_attention = { score = \"dot_product\" }",
                                     "[model.decoder]\nself_attention = { score = \"additive\" }\n"
                                     "cross_attention = { score = \"additive\" }",
                                     scores_run
                                         ? "[model.decoder]\nself_attention = { score = \"logistic\", kv_heads = 1 }\n"
                                           "cross_attention = { score = \"cubic\" }"
                                         : "",
                                     "[model.decoder]\nself_attention = { score = \"linear\" }",
                                     "[model.decoder]\nself_attention = { score = \"linear\", kv_heads = 1 }\n"
                                     "cross_attention = { score = \"linear\", query_key_norm = true }")));

/// Students (Kim et al. 2019), and tied layers.
INSTANTIATE_TEST_SUITE_P(
    Students, DecodeTest,
    testing::Combine(testing::Values(NormPlacement::post, NormPlacement::pre), testing::Values(Positions::sinusoidal),
                     testing::Values("[model.decoder]\nsublayers = [\"ssru\", \"cross_attention\", \"feed_forward\"]",
                                     "[model.decoder]\nsublayers = [\"average_attention\", \"cross_attention\"]",
                                     "[model.decoder]\ntied_layers = [1, 1]")));

/// OLMo 2 and Gemma 2.
INSTANTIATE_TEST_SUITE_P(
    Decoders, DecodeTest,
    testing::Combine(
        testing::Values(NormPlacement::output), testing::Values(Positions::rotary),
        testing::Values("[model]\nlogit_cap = 0.8\n[model.decoder]\n"
                        "self_attention = { joint_query_key_norm = true, kv_heads = 1, biases = \"qkv\" }\n"
                        "cross_attention = { joint_query_key_norm = true }\n"
                        "[model.decoder.layer.1]\nself_attention = { window = 1 }")));

}  // namespace
}  // namespace heddle
