#include <heddle/io/samples/sample_source.hpp>

#include "dataset_fixture.hpp"

namespace heddle {
namespace {

class SampleSourceTest : public testing::Test {
 protected:
  SampleSourceTest() {
    register_tasks(tasks_);
    write_sentences(directory_ / "pairs.h5", 5);
    write_lines("lines.h5", separate_vocabulary().source);
  }

  void write_lines(char const* name, Tokenizer const& tokenizer) const {
    DatasetWriter writer(directory_ / name, tokenizer);
    writer.add(sentence(1, 50));
    writer.commit();
  }
  std::unique_ptr<SampleSource> samples(Dataset const& dataset, SampleUse const& use = {}) const {
    return samples_for(config_, tasks_.of(config_), dataset, use);
  }
  std::string refusal(char const* name) const {
    Dataset const dataset = Dataset::open(directory_ / name);
    return message_of<ConfigError>([&] { samples(dataset); });
  }

  static Pack pack(SampleSource const& source, std::int64_t index, std::int32_t number) {
    PackFields tokens;
    source.read(0, {&index, 1}, number, tokens);
    return make_pack(tokens);
  }

  TemporaryDirectory directory_;
  TaskRegistry tasks_;
  Config config_;
};

TEST_F(SampleSourceTest, AModelLearnsFromWhatItsStacksRead) {
  Dataset const dataset = Dataset::open(directory_ / "pairs.h5");
  auto const pairs = samples(dataset);
  EXPECT_EQ(pairs->cost(0, 2).source, 4);
  EXPECT_EQ(pairs->describe(), "5 sentence pairs");
  EXPECT_EQ(pairs->totals(0, 6).usable, 3);
  EXPECT_EQ(to_host<std::int32_t>(pack(*pairs, 2, 7).source_rows.sample), (std::vector<int32_t>{7, 7, 7, 7}));
  config_.model.stacks = {"decoder"};
  auto const targets = samples(dataset);
  EXPECT_EQ(targets->window(0, 0).size(), 5U);
  EXPECT_EQ(targets->totals(0, 6).longest, 6);
  EXPECT_EQ(targets->cost(0, 2).longer(), 7);
  EXPECT_EQ(targets->cost(0, 2).source, 0);
  EXPECT_EQ(pack(*targets, 2, 7).target_rows.tokens, 7);
  Dataset const text = Dataset::open(directory_ / "lines.h5");
  EXPECT_EQ(samples(text)->cost(0, 0).target, 3);
}

TEST_F(SampleSourceTest, SourcesArePrefixesOfTargets) {
  config_.model.stacks = {"decoder"};
  Dataset const separate = Dataset::open(directory_ / "pairs.h5");
  expect_config_error([&] { samples(separate, {.prefixes = true}); },
                      "pairs.h5 have vocabularies of their own; `heddle prepare` without --separate-vocab");
  Tokenizer const& tokenizer = separate_vocabulary().source;
  DatasetWriter writer(directory_ / "joint.h5", {tokenizer, tokenizer});
  for (int64_t pair = 0; pair < 3; ++pair) {
    writer.add(sentence(pair, 50), sentence(pair + 3, 50));
  }
  writer.commit();
  Dataset const dataset = Dataset::open(directory_ / "joint.h5");
  SpecialIds const ids = dataset.vocabulary().special_ids().target;
  auto const prefixed = samples(dataset, {.prefixes = true});
  std::int64_t const index = 2;
  auto const source = dataset.source(index);
  auto const target = dataset.target(index);
  Pack const pack = SampleSourceTest::pack(*prefixed, index, 7);
  std::vector<int32_t> input{ids.begin};
  input.insert(input.end(), source.begin(), source.end());
  input.push_back(ids.end);
  std::vector<int32_t> output(input.size() - 1, -1);
  EXPECT_THAT(to_host<std::int32_t>(pack.target_rows.prefix_length), ElementsAre(std::ssize(input)));
  input.insert(input.end(), target.begin(), target.end());
  output.insert(output.end(), target.begin(), target.end());
  output.push_back(ids.end);
  EXPECT_EQ(to_host<std::int32_t>(pack.target_input.id), input);
  EXPECT_EQ(to_host<std::int32_t>(pack.target_output.id), output);
  EXPECT_TRUE(pack.target_output.weight.empty());
  EXPECT_EQ(prefixed->cost(0, index).longer(), std::ssize(input));
  EXPECT_EQ(prefixed->predicted(0, index), std::ssize(target) + 1);
  EXPECT_EQ(prefixed->totals(0, 100).longest, std::ssize(input));
}

TEST_F(SampleSourceTest, HaveTheFieldsThatAreAskedFor) {
  write_fields(directory_ / "fields.h5", 12);
  Dataset const dataset = Dataset::open(directory_ / "fields.h5");
  Pack const plain = pack(*samples(dataset), 11, 0);
  EXPECT_TRUE(plain.alignment.begin.empty());
  EXPECT_TRUE(plain.target_output.weight.empty());
  CorpusConfig corpus;
  corpus.tag = "one";
  auto const tag = static_cast<std::int32_t>(dataset.source_tokenizer().encode("one").size());
  ASSERT_GT(tag, 0);
  Pack const rich = pack(*samples(dataset, {.fields = dataset.fields(), .corpus = corpus}), 11, 0);
  // Pair 11 has 5 and 1 tokens, three links, all to target token 0, and a weight for its token and its end.
  EXPECT_THAT(to_host<std::int32_t>(rich.alignment.begin), ElementsAre(0, 3, 3));
  EXPECT_THAT(to_host<std::int32_t>(rich.alignment.position), ElementsAre(tag, tag + 1, tag + 2));
  EXPECT_THAT(to_host<float>(rich.target_output.weight), ElementsAre(0, 0.25F));
  config_.model.stacks = {"decoder"};
  Pack const targets = pack(*samples(dataset, {.fields = {SampleField::weights}}), 11, 0);
  EXPECT_THAT(to_host<float>(targets.target_output.weight), ElementsAre(0, 0.25F));
}

TEST_F(SampleSourceTest, AnEncoderReadsPairsAsTwoTexts) {
  Tokenizer const tokenizer = train_tokenizer(english_number, 61, true);
  DatasetWriter writer(directory_ / "joint.h5", {tokenizer, tokenizer});
  for (int64_t pair = 0; pair < 3; ++pair) {
    writer.add(sentence(pair, 50), sentence(pair + 3, 50));
  }
  writer.commit();
  Dataset const dataset = Dataset::open(directory_ / "joint.h5");
  SpecialIds const ids = tokenizer.special_ids();
  config_.model.stacks = {"encoder"};
  for (std::int64_t const types : {0, 2}) {
    config_.model.token_types = types;
    auto const joined = samples(dataset, {.training = false});
    Pack const pack = SampleSourceTest::pack(*joined, 1, 7);
    std::vector<int32_t> tokens{ids.begin};
    std::vector<int32_t> const first = dataset.source(1);
    tokens.insert(tokens.end(), first.begin(), first.end());
    tokens.insert(tokens.end(), types == 2 ? 1 : 2, ids.end);
    auto const second = static_cast<int32_t>(tokens.size());
    std::vector<int32_t> const other = dataset.target(1);
    tokens.insert(tokens.end(), other.begin(), other.end());
    tokens.push_back(ids.end);
    // Tokens that are predicted may be read as others, special ones are neither.
    std::vector<int32_t> read = to_host<std::int32_t>(pack.source.id);
    std::vector<int32_t> const output = to_host<std::int32_t>(pack.source_output.id);
    ASSERT_EQ(read.size(), tokens.size());
    int64_t predicted = 0;
    for (std::size_t place = 0; place < read.size(); ++place) {
      bool const special = tokens[place] == ids.begin || tokens[place] == ids.end;
      EXPECT_TRUE(output[place] < 0 || (!special && output[place] == tokens[place]));
      predicted += output[place] >= 0 ? 1 : 0;
      read[place] = output[place] >= 0 ? output[place] : read[place];
    }
    EXPECT_EQ(read, tokens);
    EXPECT_EQ(joined->predicted(0, 1), predicted);
    EXPECT_GE(predicted, 1);
    EXPECT_EQ(joined->cost(0, 1).longer(), std::ssize(tokens));
    EXPECT_THAT(to_host<std::int32_t>(pack.source_rows.prefix_length), ElementsAre(second));
    EXPECT_EQ(joined->totals(0, 100).usable, 3);
    EXPECT_EQ(joined->totals(0, std::ssize(tokens) - 1).left_out, 2);
    EXPECT_EQ(joined->describe(), "3 pairs of texts, each joined into a sequence");
  }
}

TEST_F(SampleSourceTest, AModelAndADatasetThatDoNotFitAreNamed) {
  expect_contains(refusal("lines.h5"), {"model.stacks = [\"encoder\", \"decoder\"] is trained on sentence pairs, but ",
                                        "lines.h5 has lines of text; make pairs with `heddle prepare --source"});
  config_.model.stacks = {"encoder"};
  expect_contains(refusal("pairs.h5"), {"model.stacks = [\"encoder\"] reads sources and targets as one ",
                                        "pairs.h5 have vocabularies of their own"});
  expect_contains(refusal("lines.h5"), "lines.h5 has no piece <mask>; `heddle prepare --text");
  write_lines("masks.h5", train_tokenizer(english_number, 61, true));
  Dataset const masks = Dataset::open(directory_ / "masks.h5");
  EXPECT_EQ(samples(masks)->cost(0, 0).source, 3);
  EXPECT_GT(masks.vocabulary().special_ids().source.mask, 0);
}

}  // namespace
}  // namespace heddle
