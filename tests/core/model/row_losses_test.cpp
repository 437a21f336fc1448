#include <heddle/core/config/config.hpp>
#include <heddle/core/model/built_in_layers.hpp>
#include <heddle/core/model/teacher.hpp>

#include "golden_model.hpp"
#include "kernel_test_support.hpp"
#include "test_ids.hpp"

namespace heddle {
namespace {

constexpr double smoothed = 0.1;

ModelConfig row_loss_model(std::string const& keys = "") {
  return parse_config(
             "[model]\nencoder_layers = 2\ndecoder_layers = 2\nd_model = 8\nd_ff = 12\nheads = 2\n"
             "max_length = 8\n" +
                 keys,
             "test")
      .model;
}

Pack unweighted_pack() {
  std::vector<Sample> const pairs{{0, {5, 9, 3}, {7, 4, 3, 8}}, {1, {8}, {10, 6, 6}}, {4, {9, 9}, {}}};
  return make_pack(pairs, test_ids);
}

std::vector<double> weights_of(Pack const& pack) {
  std::vector<double> weights;
  for (std::int64_t row = 0; row < pack.target_rows.tokens; ++row) {
    weights.push_back(0.25 * static_cast<double>(1 + row % 5));
  }
  return weights;
}

/// Rows with weights, of which every fourth predicts nothing.
Pack weighted_pack() {
  Pack pack = unweighted_pack();
  auto ids = to_host<std::int32_t>(pack.target_output.id);
  for (std::size_t row = 1; row < ids.size(); row += 4) {
    ids[row] = -1;
  }
  pack.target_output.id = int_tensor(ids);
  pack.target_output.weight = tensor_of(weights_of(pack), DType::float32, {pack.target_rows.tokens});
  return pack;
}

TEST(RowLosses, TheZLossHasItsGradient) {
  constexpr double z_loss = 0.05;
  TestModel test(row_loss_model("output_bias = true"), {11, 11, true}, DType::float64);
  Pack const pack = weighted_pack();
  LayerContext context = test.bench.context(pack, true);
  test.bench.zero_gradients();
  LossSums const sums = test.model.forward_backward(context, {smoothed, 0.5, {}, z_loss});
  EXPECT_GT(sums.smoothed, test.model.forward(context, smoothed).smoothed + 0.1);
  EXPECT_EQ(sums.negative_log_likelihood, test.model.forward(context, smoothed).negative_log_likelihood);
  for (std::string const name : {"output.bias", "decoder.layers.1.feed_forward.down.weight"}) {
    Parameter const& parameter = *test.bench.parameters().find(name);
    expect_gradient([&] { return 0.5 * test.model.forward(context, smoothed, z_loss).smoothed; }, parameter.value,
                    parameter.gradient, name.c_str());
  }
}

/// Against the definition in float64, from the logits.
TEST(RowLosses, LossesOfRowsHaveTheirWeights) {
  TestModel test(row_loss_model(), {11, 11, true}, DType::float64);
  Pack const pack = weighted_pack();
  LayerContext context = test.bench.context(pack);
  auto const logits = values(test.model.logits(context));
  auto const ids = to_host<std::int32_t>(pack.target_output.id);
  auto const weights = weights_of(pack);
  LossSums expected;
  for (std::size_t row = 0; row < ids.size(); ++row) {
    if (ids[row] < 0) {
      continue;
    }
    double sum = 0;
    double all = 0;
    for (std::size_t column = 0; column < 11; ++column) {
      sum += std::exp(logits[11 * row + column]);
      all += logits[11 * row + column];
    }
    double const of_target = std::log(sum) - logits[11 * row + static_cast<std::size_t>(ids[row])];
    double const of_all = std::log(sum) - all / 11;
    expected += {weights[row] * ((1 - smoothed) * of_target + smoothed * of_all), weights[row] * of_target, 1};
  }
  LossSums const sums = test.model.forward(context, smoothed);
  EXPECT_NEAR(sums.smoothed, expected.smoothed, 1e-12);
  EXPECT_NEAR(sums.negative_log_likelihood, expected.negative_log_likelihood, 1e-12);
  EXPECT_EQ(sums.tokens, expected.tokens);
  EXPECT_LT(sums.tokens, pack.target_rows.tokens);
  test.bench.zero_gradients();
  test.model.forward_backward(context, {smoothed, 0.5});
  Parameter const& table = *test.bench.parameters().find("embedding.weight");
  expect_gradient([&] { return 0.5 * test.model.forward(context, smoothed).smoothed; }, table.value, table.gradient,
                  "embedding.weight");
}

/// Two passes of each pair, with weights and rows that predict nothing.
Pack two_passes() {
  PackFields fields;
  fill_tokens(fields, std::vector<Sample>{{0, {5, 9, 3}, {7, 4, 3, 8}}, {1, {8}, {10, 6, 6}}, {2, {9, 9}, {}}},
              test_ids);
  std::size_t const rows = fields.target.id.size();
  for (std::size_t row = 0; row < rows; ++row) {
    fields.target.weight.push_back(0.25F * static_cast<float>(1 + row % 5));
    fields.target.output[row] = row % 4 == 1 ? -1 : fields.target.output[row];
  }
  add_second_pass(fields, 3);
  return make_pack(fields);
}

double log_sum(std::span<double const> logits) {
  double sum = 0;
  std::ranges::for_each(logits, [&](double logit) { sum += std::exp(logit); });
  return std::log(sum);
}

/// Against the definition of R-Drop: the mean of both divergences of each pair of rows, from the probabilities.
TEST(RowLosses, TwoPassesHaveTheirDivergence) {
  constexpr double r_drop = 3;
  for (std::string const keys : {"dropout = 0.3", "dropout = 0.2\noutput_bias = true\nlogit_cap = 2.0"}) {
    TestModel test(row_loss_model(keys), {11, 11, true}, DType::float64);
    Pack const pack = two_passes();
    LayerContext context = test.bench.context(pack, true);
    std::vector<double> const logits = values(test.model.logits(context));
    auto const ids = to_host<std::int32_t>(pack.target_output.id);
    std::vector<double> const weights = values(pack.target_output.weight);
    std::size_t const half = ids.size() / 2;
    double divergence = 0;
    for (std::size_t row = 0; row < half; ++row) {
      std::span const first = std::span(logits).subspan(11 * row, 11);
      std::span const second = std::span(logits).subspan(11 * (row + half), 11);
      for (std::size_t column = 0; ids[row] >= 0 && column < 11; ++column) {
        double const p = first[column] - log_sum(first);
        double const q = second[column] - log_sum(second);
        divergence += weights[row] / 2 * (std::exp(p) * (p - q) + std::exp(q) * (q - p));
      }
    }
    ASSERT_GT(divergence, 0.01) << "the passes have other dropout";
    test.bench.zero_gradients();
    OutputLoss::Training const training{.label_smoothing = smoothed, .scale = 0.5, .r_drop = r_drop};
    LossSums const plain = test.model.forward_backward(context, {smoothed, 0.5});
    test.bench.zero_gradients();
    LossSums const sums = test.model.forward_backward(context, training);
    EXPECT_NEAR(sums.smoothed, plain.smoothed + r_drop * divergence, 1e-10) << keys;
    EXPECT_NEAR(sums.negative_log_likelihood, plain.negative_log_likelihood, 1e-12) << keys;
    std::map<std::string, Tensor> gradients;  // copies, as each call of the loss adds to the parameters' own
    for (std::string const name : {"embedding.weight", "decoder.layers.1.feed_forward.down.weight"}) {
      Tensor const& gradient = test.bench.parameters().find(name)->gradient;
      gradients[name] = from_doubles(values(gradient), DType::float64, gradient.shape());
    }
    for (auto const& [name, gradient] : gradients) {
      expect_gradient([&] { return 0.5 * test.model.forward_backward(context, training).smoothed; },
                      test.bench.parameters().find(name)->value, gradient, name.c_str());
    }
  }
}

/// The sum over the rows of a pack of KL(teacher || student), times the rows' weights, from logits of 11 columns.
double taught(std::vector<double> const& teacher, std::vector<double> const& student, Pack const& pack) {
  auto const ids = to_host<std::int32_t>(pack.target_output.id);
  std::vector<double> const weights = values(pack.target_output.weight);
  double sum = 0;
  for (std::size_t row = 0; row < ids.size(); ++row) {
    std::span const of_teacher = std::span(teacher).subspan(11 * row, 11);
    std::span const of_student = std::span(student).subspan(11 * row, 11);
    for (std::size_t column = 0; ids[row] >= 0 && column < 11; ++column) {
      double const q = of_teacher[column] - log_sum(of_teacher);
      sum += weights[row] * std::exp(q) * (q - of_student[column] + log_sum(of_student));
    }
  }
  return sum;
}

/// Against the definition of word-level distillation, with teachers of other sizes than the student.
TEST(RowLosses, TeachersShareTheLoss) {
  constexpr double weight = 0.4;
  constexpr VocabularySizes sizes{11, 11, true};
  std::string const of_teachers = "[model]\nd_ff = 12\nmax_length = 8\n";
  Config config;
  config.train.teacher_weight = weight;
  config.teachers = {parse_config(of_teachers + "d_model = 12\nheads = 3\nlogit_cap = 4.0", "test").model,
                     parse_config(of_teachers + "d_model = 8\nheads = 2\nnorm = \"pre\"", "test").model};
  for (double const r_drop : {0.0, 2.0}) {
    TestModel test(row_loss_model("dropout = 0.2\noutput_bias = true\nlogit_cap = 2.0"), sizes, DType::float64);
    Pack const pack = r_drop > 0 ? two_passes() : weighted_pack();
    LayerContext context = test.bench.context(pack, true);
    OutputLoss::Training const training{.label_smoothing = smoothed, .scale = 0.5, .r_drop = r_drop};
    auto const loss = [&](OutputLoss::Training const& of) {
      test.bench.zero_gradients();
      return test.model.forward_backward(context, of).smoothed;
    };
    double const plain = loss({smoothed, 0.5});
    double const divergence = loss(training) - plain;
    std::vector<double> const student = values(test.model.logits(context));
    std::deque<Teacher> teachers =
        make_teachers(test.model, test.bench.spec("", Side::target), test.bench.registries().layers, sizes, config);
    ASSERT_EQ(teachers.size(), 2U);
    double expected = (1 - weight) * plain + divergence;
    for (std::size_t index = 0; index < 2; ++index) {
      TestModel alone(config.teachers[index], sizes, DType::float64);
      teachers[index].parameters().allocate(DType::float64);
      for (Parameter const& parameter : teachers[index].parameters().all()) {
        copy_from_doubles(parameter.value, values(alone.bench.parameters().find(parameter.spec.name)->value));
      }
      LayerContext without_dropout = alone.bench.context(pack);
      double const its = taught(values(alone.model.logits(without_dropout)), student, pack);
      EXPECT_GT(its, 0.01);
      expected += weight / 2 * its;
    }
    EXPECT_NEAR(loss(training), expected, 1e-10);
    EXPECT_EQ(test.model.forward(context, smoothed).smoothed, plain) << "a loss without a gradient has no teachers";
    loss(training);
    std::map<std::string, Tensor> gradients;
    for (std::string const name : {"embedding.weight", "output.bias", "decoder.layers.1.feed_forward.down.weight"}) {
      Tensor const& gradient = test.bench.parameters().find(name)->gradient;
      gradients[name] = from_doubles(values(gradient), DType::float64, gradient.shape());
    }
    for (auto const& [name, gradient] : gradients) {
      expect_gradient([&] { return 0.5 * loss(training); }, test.bench.parameters().find(name)->value, gradient,
                      name.c_str());
    }
  }
}

TEST(RowLosses, ATeacherPredictsWhatItsStudentDoes) {
  LayerRegistry layers;
  register_built_in_layers(layers);
  auto const described = [&](std::string const& keys) {
    return describe_model(parse_config("[model]\nd_model = 8\nheads = 2\n" + keys, "test").model, layers);
  };
  EXPECT_TRUE(predicts_alike(described("encoder_layers = 1"), described("norm = \"pre\"")));
  EXPECT_FALSE(predicts_alike(described("stacks = [\"decoder\"]"), described("")));
  EXPECT_FALSE(predicts_alike(described("stacks = [\"decoder\"]"), described("stacks = [\"encoder\"]")));
}

TEST(RowLosses, EachRowCounts) {
  TestModel test(row_loss_model(), {11, 11, true}, DType::float64);
  Pack const pack = unweighted_pack();
  LayerContext context = test.bench.context(pack);
  LossSums const sums = test.model.forward(context, smoothed);
  EXPECT_EQ(sums.tokens, pack.target_rows.tokens);
}

TEST(RowLosses, EachTokenHasItsOwn) {
  TestModel test(row_loss_model(), {11, 11, true}, DType::float64);
  Pack const pack = weighted_pack();
  LayerContext context = test.bench.context(pack);
  std::vector<double> const losses = test.model.token_losses(context);
  auto const logits = values(test.model.logits(context));
  auto const ids = to_host<std::int32_t>(pack.target_output.id);
  auto const weights = weights_of(pack);
  ASSERT_EQ(losses.size(), ids.size());
  for (std::size_t row = 0; row < ids.size(); ++row) {
    double sum = 0;
    for (std::size_t column = 0; column < 11; ++column) {
      sum += std::exp(logits[11 * row + column]);
    }
    double const expected =
        ids[row] < 0 ? 0 : weights[row] * (std::log(sum) - logits[11 * row + static_cast<std::size_t>(ids[row])]);
    EXPECT_NEAR(losses[row], expected, 1e-12) << row;
  }
}

}  // namespace
}  // namespace heddle
