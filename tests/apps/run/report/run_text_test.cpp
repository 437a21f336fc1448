#include "run/report/run_text.hpp"

#include <heddle/core/model/built_in_layers.hpp>

#include "test.hpp"

namespace heddle {
namespace {

TEST(RunWords, AShareOfTheDataThatIsLeftOutIsAWarning) {
  EXPECT_EQ(left_out_warning("data.train", {.usable = 29, .left_out = 2971}, 8),
            "data.train: 99 % are left out, 2,971 of 3,000: longer than model.max_length = 8; set "
            "model.max_length higher to use them");
  expect_contains(left_out_warning("data.valid", {.usable = 99, .left_out = 1}, 8), "data.valid: 1 % are left out");
  EXPECT_EQ(left_out_warning("data.train", {.usable = 1000, .left_out = 9}, 8), "");
  EXPECT_EQ(left_out_warning("data.train", {}, 8), "");
}

TEST(RunWords, EachCorpusHasItsWarning) {
  auto const samples = [](std::size_t long_ones) {
    std::vector<Sample> pairs(10, {0, {5, 6}, {7}});
    pairs.insert(pairs.end(), long_ones, {0, std::vector<std::int32_t>(20, 5), {7}});
    return std::make_shared<MemorySamples>(std::move(pairs), SideIds());
  };
  Mixture const mixture({{.samples = samples(0), .name = "news"}, {.samples = samples(30), .name = "web"}});
  EXPECT_THAT(warnings_about(mixture, 8),
              ElementsAre(HasSubstr("data.corpus.web: 75 % are left out, 30 of 40: longer than")));
  EXPECT_THAT(warnings_about(Mixture(*samples(10)), 8), ElementsAre(HasSubstr("data.train: 50 % are left")));
}

TEST(RunWords, ARunEndsWithTheBestOfItsValidations) {
  LayerRegistry layers;
  register_built_in_layers(layers);
  ModelDescription const model = describe_model(ModelConfig(), layers);
  Ending ending;
  ending.state = "done";
  ending.step = ending.steps = 40;
  ending.directory = "run";
  ending.checkpoint = "run/checkpoints/step-00000040";
  expect_lacks(describe_end(ending, model, nullptr), "best");
  ending.best_step = 20;
  ending.best_value = 1.5;
  ending.best_values = {{Measure(), 1.5, 20}, {{"bleu", "", true}, 0, 0}};
  EXPECT_THAT(describe_end(ending, model, nullptr), EndsWith("\nbest: validation loss 1.5000 at step 20"));
  ending.best_values.back() = {{"bleu", "", true}, 33.125, 1200};
  EXPECT_THAT(describe_end(ending, model, nullptr),
              EndsWith("\nbest: validation loss 1.5000 at step 20; best BLEU 33.12 at step 1,200"));
  EXPECT_THAT(describe_finished(ending, model), EndsWith("; best BLEU 33.12 at step 1,200"));
  ending.best_measure = ending.best_values.back().measure;
  ending.best_value = 33.125;
  ending.best_values.push_back({{"loss", "medical"}, 2, 30});
  EXPECT_THAT(
      describe_end(ending, model, nullptr),
      EndsWith("\nbest: BLEU 33.12 at step 20; best validation loss 1.5000 at step 20\nbest medical loss 2.0000 "
               "at step 30"));
  expect_contains(describe_end(ending, model, nullptr), "heddle translate --checkpoint run < TEXT");
  ending.plugins = {"/a/x y.so"};
  expect_contains(describe_end(ending, model, nullptr),
                  "heddle translate --checkpoint run --plugin '/a/x y.so' < TEXT");
  ending.state = "stopped by SIGUSR1";
  ending.command = "heddle train run.toml";
  expect_contains(describe_end(ending, model, nullptr), "\nto resume: heddle train run.toml\n");
  ending.command = "";
  expect_contains(
      describe_end(ending, model, nullptr),
      "\nthe job resumes from there when it is queued again, which its script does unless it was cancelled\n");
  ending.state = "done";
  ending.from_text = true;
  ending.plugins.clear();
  expect_contains(describe_end(ending, model, nullptr), "heddle evaluate --checkpoint run --text TEXT");
  ModelConfig const decoder = parse_config("[model]\nstacks = [\"decoder\"]\n", "run.toml").model;
  expect_contains(describe_end(ending, describe_model(decoder, layers), nullptr),
                  "heddle generate --checkpoint run < TEXT");
}

}  // namespace
}  // namespace heddle
