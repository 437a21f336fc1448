#include <heddle/core/config/config.hpp>
#include <heddle/core/model/pipeline_plan.hpp>

#include "golden_model.hpp"
#include "kernel_test_support.hpp"
#include "test_ids.hpp"

namespace heddle {
namespace {

ModelConfig tied_model(std::string const& decoder, std::int64_t layers = 4) {
  return parse_config("[model]\nencoder_layers = 1\ndecoder_layers = " + std::to_string(layers) +
                          "\nd_model = 8\nd_ff = 12\nheads = 2\nmax_length = 8\ndropout = 0.0\n[model.decoder]\n" +
                          decoder,
                      "test")
      .model;
}

std::set<std::string> decoder_layers(ParameterSet const& parameters) {
  std::set<std::string> found;
  for (Parameter const& parameter : parameters.all()) {
    if (std::string const& name = parameter.spec.name; name.starts_with("decoder.layers.")) {
      found.insert(name.substr(0, name.find('.', std::string("decoder.layers.").size())));
    }
  }
  return found;
}

TEST(TiedLayers, TheirGradientsAreThoseOfEqualLayersSummed) {
  constexpr VocabularySizes vocabulary{11, 11, true};
  TestModel tied(tied_model("tied_layers = [1, 1, 4, 4]"), vocabulary, DType::float64);
  TestModel free(tied_model(""), vocabulary, DType::float64);
  EXPECT_THAT(decoder_layers(tied.bench.parameters()), testing::ElementsAre("decoder.layers.0", "decoder.layers.3"));
  std::map<std::string, std::vector<double>> sums;
  std::vector<Sample> const pairs{{0, {5, 9, 3}, {7, 4}}, {1, {8}, {10, 6, 6}}};
  Pack const pack = make_pack(pairs, test_ids);
  auto const owner_of = [](std::string name) {
    for (auto const& [from, to] : {std::pair("layers.1.", "layers.0."), std::pair("layers.2.", "layers.3.")}) {
      if (std::size_t const at = name.find(from); at != name.npos && name.starts_with("decoder.")) {
        name.replace(at, std::string(from).size(), to);
      }
    }
    return name;
  };
  for (Parameter& parameter : free.bench.parameters().all()) {
    copy_from_doubles(parameter.value, values(tied.bench.parameters().find(owner_of(parameter.spec.name))->value));
  }
  free.bench.parameters().bump_versions();
  double losses[2];
  for (TestModel* const test : {&free, &tied}) {
    LayerContext context = test->bench.context(pack);
    test->bench.zero_gradients();
    losses[test == &tied] = test->model.forward_backward(context, {0, 1}).smoothed;
  }
  EXPECT_DOUBLE_EQ(losses[0], losses[1]);
  for (Parameter const& parameter : free.bench.parameters().all()) {
    std::vector<double> const gradient = values(parameter.gradient);
    auto& sum = sums[owner_of(parameter.spec.name)];
    sum.resize(gradient.size());
    std::ranges::transform(sum, gradient, sum.begin(), std::plus());
  }
  EXPECT_EQ(sums.size(), tied.bench.parameters().all().size());
  for (Parameter const& parameter : tied.bench.parameters().all()) {
    EXPECT_THAT(values(parameter.gradient),
                testing::Pointwise(testing::DoubleNear(1e-12), sums.at(parameter.spec.name)))
        << parameter.spec.name;
  }
}

TEST(TiedLayers, ListsThatCannotBeFollowedAreNamed) {
  auto const described = [](std::string const& decoder) { return [decoder] { description_of(tied_model(decoder)); }; };
  EXPECT_NO_THROW(described("tied_layers = [4, 4, 4, 4]")());
  expect_config_error(
      described("tied_layers = [1, 1]"),
      "model.decoder.tied_layers = [1, 1]: expected for each of the 4 layers of the decoder the number, 1 "
      "to 4, of the layer");
  expect_config_error(described("tied_layers = [1, 1, 5, 5]"), "the number, 1 to 4");
  expect_config_error(described("tied_layers = [1, 1, 0, 0]"), "a list of integers, each 1 to");
  expect_config_error(described("tied_layers = [1, 1, 2, 2]\n[model.decoder.layer.2]\nheads = 4"),
                      "layers 1 and 2 of the decoder have the same parameters, but not the same keys");
}

TEST(TiedLayers, APipelineIsCutBetweenThem) {
  ModelDescription const model = description_of(tied_model("tied_layers = [1, 1, 1, 2]"));
  ParallelConfig parallel;
  parallel.pipeline = 3;
  PipelinePlan const plan = plan_pipeline(model, parallel, 8);
  EXPECT_EQ(plan.layers(0), (IndexRange{0, 1}));
  EXPECT_EQ(plan.layers(1), (IndexRange{1, 4}));
  parallel.pipeline = 4;
  expect_config_error(
      [&] { plan_pipeline(model, parallel, 8); },
      "parallel.pipeline = 4: tied layers have their parameters on one stage, and the encoder's 1 and the "
      "decoder's 4 layers can be cut into 3 parts; expected 3 or less");
  parallel.pipeline = 2;
  parallel.stage_layers = {2, 3};
  expect_config_error([&] { plan_pipeline(model, parallel, 8); }, "a stage would begin with decoder layer 2");
}

}  // namespace
}  // namespace heddle
