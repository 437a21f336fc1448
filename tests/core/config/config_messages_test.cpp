#include <heddle/core/config/config.hpp>

#include "config/schema.hpp"
#include "test.hpp"

namespace heddle {
namespace {

std::string refused_file(std::string const& path) {
  return message_of<ConfigError>([&] { load_config(path); });
}

std::string refusal(std::string const& text, std::vector<std::string> const& overrides = {}) {
  return message_of<ConfigError>([&] { parse_config(text, "run.toml", overrides); });
}

TEST(ConfigFile, ThoseThatCannotBeReadAreNamed) {
  expect_contains(refused_file("/nonexistent/run.toml"), "/nonexistent/run.toml: does not exist; expected a TOML file");
  expect_contains(refused_file("/tmp"), "/tmp: is a directory; expected a TOML file");
  expect_contains(refused_file("/dev/zero"), "/dev/zero: is not a regular file");
}

TEST(ConfigFile, LargeOnesAreNotRead) {
  TemporaryDirectory const directory;
  auto const path = directory.write("large.toml", "");
  std::filesystem::resize_file(path, (std::uintmax_t{16} << 20) + 1);
  expect_contains(refused_file(path), "large.toml: is larger than 16 MiB");
  std::filesystem::resize_file(path, 0);
  EXPECT_EQ(load_config(path), Config());
}

TEST(Config, AStreamIsReadAloneAndOnce) {
  EXPECT_NO_THROW(parse_config("[data]\ntrain = \"-\"\n", "x"));
  expect_contains(
      refusal("[data]\ntrain = [\"a.tsv\", \"-\"]\n"),
      "run.toml:2:1: data.train: \"-\" is the standard input, which is read once and in its order; expected it alone");
  expect_contains(refusal("[data.corpus.web]\ntrain = \"-\"\n"), "run.toml:2:1: data.corpus.web.train: \"-\"");
  expect_contains(refusal("[data]\nvalid = \"-\"\n"), "run.toml:2:1: data.valid: \"-\"");
  expect_contains(refusal("[data.valid_sets]\nweb = \"-\"\n"), "run.toml:2:1: data.valid_sets.web: \"-\"");
  expect_contains(refusal("[data]\ntrain = \"-\"\n[train]\nepochs = 2\n"), "run.toml:4:1: train.epochs = 2 beside");
}

TEST(Config, TheTrainingDatasetIsOneFileOrSeveral) {
  EXPECT_EQ(parse_config("[data]\ntrain = \"a.h5\"\n", "x").data.train, std::vector<std::string>{"a.h5"});
  Config const two = parse_config("[data]\ntrain = [\"a.h5\", \"b.h5\"]\n", "x");
  EXPECT_EQ(two.data.train, (std::vector<std::string>{"a.h5", "b.h5"}));
  EXPECT_EQ(parse_config(to_toml(two), "x"), two);
  EXPECT_NE(to_toml(two).find("train = [\"a.h5\", \"b.h5\"]"), std::string::npos);
  EXPECT_TRUE(parse_config("[data]\ntrain = \"\"\n", "x").data.train.empty());
  for (char const* const wrong : {"[]", "[\"\"]", "3"}) {
    EXPECT_THROW(parse_config(std::string("[data]\ntrain = ") + wrong + "\n", "x"), ConfigError) << wrong;
  }
}

TEST(Config, ValidationSetsHaveNamesThatTheFileChooses) {
  Config const config =
      parse_config("[data]\nvalid = \"general.h5\"\n[data.valid_sets]\nmedical = \"m.h5\"\nlaw-2 = \"l.h5\"\n", "x",
                   {"data.valid_sets.web=w.h5"});
  EXPECT_EQ(config.data.valid, "general.h5");
  EXPECT_EQ(config.data.valid_sets,
            (std::map<std::string, std::string>{{"law-2", "l.h5"}, {"medical", "m.h5"}, {"web", "w.h5"}}));
  EXPECT_EQ(parse_config(to_toml(config), "x"), config);
  expect_lacks(to_toml(Config()), "valid_sets");
  std::vector<ConfigDifference> const found = differences(Config(), config);
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[1].key, "data.valid_sets.law-2");
  EXPECT_EQ(found[1].resume, ResumeRule::free);
  expect_contains(refusal("[data.valid_sets]\nmedical = 3\n"), "expected a non-empty string");
  expect_contains(refusal("[data.valid_sets]\n\"a/b\" = \"m.h5\"\n"), "any name of letters, digits, \"_\" and \"-\"");
  expect_contains(refusal("[data]\nvalid_sets = \"m.h5\"\n"), "expected a section: [data.valid_sets]");
  EXPECT_THAT(explain_config("data.valid_sets"), StartsWith("[data.valid_sets]"));
  expect_contains(refusal("", {"data.valid_set.x=m.h5"}), "did you mean data.valid_sets?");
  expect_contains(refusal("", {"data.corpora.x.train=m.h5"}),
                  {"expected one of: train, source, target, alignments, vocabulary, valid, valid_tag, ", "corpus"});
}

/// The tag of a set in a configuration of two corpora and two sets; "none" where no key says it.
std::string tag_of(std::string const& set, std::vector<std::string> const& overrides = {}) {
  Config const config = parse_config(
      "[data]\nvalid = \"v.h5\"\n[data.corpus.de]\ntrain = \"de.h5\"\ntag = \"<2de>\"\n[data.corpus.fr]\n"
      "train = \"fr.h5\"\n[data.valid_sets]\nde = \"d.h5\"\nfr = \"f.h5\"\nweb = \"w.h5\"\n",
      "run.toml", overrides);
  EXPECT_EQ(parse_config(to_toml(config), "x").data.valid_tags, config.data.valid_tags);
  auto const corpus = config.data.validation_corpus(set);
  return corpus ? corpus->tag : "none";
}

TEST(Config, AValidationSetHasItsOwnTagOrThatOfTheCorpusOfItsName) {
  EXPECT_EQ(tag_of("de"), "<2de>");
  EXPECT_EQ(tag_of("fr"), "") << "a corpus without a tag";
  EXPECT_EQ(tag_of("web"), "none");
  EXPECT_EQ(tag_of(""), "none");
  EXPECT_EQ(tag_of("de", {"data.valid_tags.de=<2at>"}), "<2at>");
  EXPECT_EQ(tag_of("de", {"data.valid_tags.de=\"\""}), "");
  EXPECT_EQ(tag_of("web", {"data.valid_tags.web=<2de>"}), "<2de>");
  EXPECT_EQ(tag_of("", {"data.valid_tag=<2de>"}), "<2de>");
  EXPECT_EQ(tag_of("", {"data.valid_tag=\"\""}), "");
  EXPECT_EQ(refusal("", {"data.valid_tags.de=x"}),
            "--set data.valid_tags.de=x: data.valid_tags.de is the tag of a validation set that data.valid_sets does "
            "not have; the tag of data.valid is data.valid_tag");
}

TEST(Config, ValidationSetsWithoutATagBesideCorporaWithOneAreWarnedAbout) {
  std::string const corpora =
      "[data.corpus.de]\ntrain = \"de.h5\"\ntag = \"<2de>\"\n[data.valid_sets]\nde = \"d.h5\"\nweb = \"w.h5\"\n";
  EXPECT_THAT(
      warnings_about(parse_config(corpora, "run.toml")),
      ElementsAre("data.valid is read without a tag, and run.toml:3:1: data.corpus.de.tag = \"<2de>\" is before "
                  "training sources: the model is judged on text of another form; set data.valid_tag, to "
                  "\"\" where the sources of data.valid need none",
                  StartsWith("data.valid_sets.web is read without a tag")));
  EXPECT_THAT(warnings_about(parse_config(corpora, "x", {"data.valid_tag=\"\"", "data.valid_tags.web=<2de>"})),
              IsEmpty());
  EXPECT_THAT(warnings_about(parse_config(corpora, "x", {"train.validate_every=0"})), IsEmpty());
  EXPECT_THAT(warnings_about(parse_config(corpora, "x", {"data.corpus.de.tag=\"\""})), IsEmpty());
}

TEST(Config, ASentenceThatDoesNotFitNamesTheKeyThatWasGiven) {
  EXPECT_EQ(refusal("", {"train.batch_tokens=512"}),
            "--set train.batch_tokens=512: a sentence of model.max_length = 1024 tokens does not fit into "
            "train.batch_tokens = 512; raise this or set max_length to 512 or less");
  expect_contains(refusal("", {"train.micro_batch_tokens=512"}),
                  "train.micro_batch_tokens = 512; raise this or set max_length");
  expect_contains(refusal("", {"model.max_length=5000"}),
                  "train.batch_tokens = 4096; raise this and train.micro_batch_tokens or set");
  expect_contains(refusal("", {"model.max_length=5000", "train.micro_batch_tokens=4000"}),
                  "train.micro_batch_tokens = 4000; raise this and train.batch_tokens or set");
}

TEST(Config, WholeNumbersMayBeWrittenWithAnExponent) {
  Config const config =
      parse_config("[train]\nsteps = 1e6\nseed = 2e3\n[model.decoder]\nself_attention = { kv_heads = 2.0 }", "run.toml",
                   {"train.batch_tokens=2.5e5", "parallel.tensor=2e0"});
  EXPECT_EQ(config.train.steps, 1000000);
  EXPECT_EQ(config.train.seed, 2000U);
  EXPECT_EQ(config.train.batch_tokens, 250000);
  EXPECT_EQ(config.parallel.tensor, 2);
  EXPECT_EQ(layer_options(config.model.decoder, "decoder", 0, "self_attention").integer("kv_heads", 1), 2);
  expect_contains(refusal("[train]\nsteps = 1e10"), "expected an integer, 1 to 2147483647");
  expect_contains(refusal("[train]\nsteps = 1e300"), "expected an integer, 1 to 2147483647");
  expect_contains(refusal("[train]\nsteps = 1.5e0"), "is the number 1.5; expected an integer");
  expect_contains(refusal("[train]\nsteps = inf"), "expected an integer");
}

TEST(Config, ANameThatIsProbablyMeantIsSaid) {
  EXPECT_EQ(refusal("[train]\nprecision = \"bf16\""),
            "run.toml:2:1: train.precision is the string \"bf16\"; expected \"float32\" or \"bfloat16\" or \"auto\"; "
            "did you mean "
            "\"bfloat16\"?");
  expect_contains(refusal("[train]\nprecision = \"fp32\""), "did you mean \"float32\"?");
  expect_contains(refusal("", {"model.norm=Pre"}), "did you mean \"pre\"?");
  expect_contains(refusal("[model.decoder]\nrecompute = \"Layer\""), "did you mean \"layer\"?");
  expect_lacks(refusal("[optimizer]\nname = \"lamb\""), "did you mean");
}

TEST(PluginsConfig, EachPathHasADigestOrNoneHas) {
  std::string const digest(64, 'e');
  Config const config =
      parse_config("[plugins]\npaths = [\"a.so\", \"b.so\"]\nsha256 = [\"\", \"" + digest + "\"]", "");
  EXPECT_EQ(config.plugins.sha256, (std::vector<std::string>{"", digest}));
  EXPECT_EQ(refusal("[plugins]\npaths = [\"a.so\", \"b.so\"]\nsha256 = [\"\"]"),
            "run.toml:3:1: plugins.sha256 has 1 digests for 2 plugins.paths; expected one for each, \"\" for any file");
  expect_contains(refusal("[plugins]\npaths = [\"a.so\"]\nsha256 = [\"E3B0\"]"),
                  "run.toml:3:1: plugins.sha256 has \"E3B0\"; expected 64 hexadecimal digits in lower case");
}

TEST(Warnings, AreGivenForAWarmUpThatIsMissingOrLongerThanTheRun) {
  Config config;
  config.train.steps = 1000;
  config.optimizer.warmup_steps = 1000;
  EXPECT_THAT(warnings_about(config), IsEmpty());
  config.optimizer.warmup_steps = 4000;
  EXPECT_THAT(warnings_about(config),
              ElementsAre(StartsWith("optimizer.warmup_steps = 4000 is longer than the run, train.steps = 1000: the "
                                     "learning rate grows up to the end and reaches only 0.25 of")));
  config.optimizer.warmup_steps = 0;
  EXPECT_THAT(warnings_about(config), ElementsAre(StartsWith("optimizer.warmup_steps = 0: ")));
}

TEST(ExplainConfig, KeysAndSectionsAreExplained) {
  expect_contains(explain_config("train.steps"), "optimizer updates");
  expect_lacks(explain_config("train.steps"), "seed");
  expect_contains(explain_config("train.steps"), "# a run that resumes may change it, and is then another run");
  expect_contains(explain_config("model.decoder.heads"), "# a run that resumes keeps it");
  EXPECT_THAT(explain_config("checkpoint"), StartsWith("[checkpoint]"));
  expect_contains(explain_config("model"), "[model.decoder]");
  EXPECT_THAT(explain_config("model.decoder"), StartsWith("# Stacks may differ"));
  expect_contains(explain_config("model.decoder.activation"), "activation = ");
  expect_contains(explain_config("model.encoder.layer.4-6.d_ff"), "d_ff = ");
  expect_contains(explain_config("model.decoder.layer.4-6.self_attention.window"), "`heddle kernels` lists them");
  expect_contains(explain_config("optimizer.group"), "[optimizer.group");
  auto const refusal = [](char const* name) { return message_of<UsageError>([&] { explain_config(name); }); };
  expect_contains(refusal("train.stepz"), "did you mean train.steps?");
  expect_contains(refusal("model.decoder.activatoin"), "there is no key or section");
  expect_contains(refusal("optimizer.momentum"),
                  "`heddle kernels` lists update rules and schedules with their options");
  expect_contains(refusal("keep"), "did you mean checkpoint.keep?");
}

/// The rule of each key in which the two texts differ.
std::vector<std::string> resume_rules(std::string const& before, std::string const& after) {
  std::vector<std::string> rules;
  for (ConfigDifference const& found : differences(parse_config(before, "before"), parse_config(after, "after"))) {
    rules.push_back(found.key + ": " + std::string(name_of(found.resume)));
  }
  return rules;
}

TEST(ResumeRules, BelongToKeys) {
  EXPECT_THAT(resume_rules("",
                           "[model]\nd_model = 64\ndropout = 0.2\nrecompute = \"layer\"\n[train]\nseed = 3\n"
                           "[optimizer]\nlearning_rate = 1\n[parallel]\ntensor = 2\n"),
              ElementsAre("model.d_model: identity", "model.dropout: trajectory", "model.recompute: free",
                          "train.seed: identity", "optimizer.learning_rate: trajectory", "parallel.tensor: free"));
}

TEST(ResumeRules, OfAStackAreThoseOfTheModel) {
  std::string const stack =
      "[model.decoder]\nrecompute = \"layer\"\ndropout = 0.2\nself_attention = { window = 3 }\n"
      "cross_attention = { guided_alignment_weight = 0.1 }\n"
      "[model.decoder.layer.\"1\"]\nactivation = \"gelu\"\n";
  std::vector<std::string> const rules{"model.decoder.dropout: trajectory", "model.decoder.recompute: free",
                                       "model.decoder.self_attention.window: identity",
                                       "model.decoder.cross_attention.guided_alignment_weight: trajectory",
                                       "model.decoder.layer.1.activation: identity"};
  EXPECT_THAT(resume_rules("", stack), testing::UnorderedElementsAreArray(rules));
  EXPECT_THAT(resume_rules(stack, ""), testing::UnorderedElementsAreArray(rules)) << "keys that are no longer set";
}

/// All keys by their ResumeRule, as the documentation lists them.
std::string describe_resume_rules() {
  constexpr std::size_t width = 120;
  Config defaults;
  ConfigTree const tree = config_tree(defaults);
  std::string text;
  for (std::string_view const rule : value_names<ResumeRule>) {
    text += fmt::format("{}\n", rule);
    for (ConfigTable const& table : tree.tables) {
      std::string line;
      for (ConfigKey const& key : table.keys) {
        if (table.holds_settings || name_of(key.resume) != rule) {
          continue;  // keys of settings are also those of another table
        }
        if (line.empty() || line.size() + key.description.name.size() + 1 >= width) {
          text += line + (line.empty() ? "" : "\n");
          line = fmt::format("  {:<14}", line.empty() ? table.header : "");
        }
        line += " " + key.description.name;
      }
      text += line + (line.empty() ? "" : "\n");
    }
  }
  return text;
}

TEST(ResumeRules, AreInTheDocumentation) {
  std::ifstream file(std::string(HEDDLE_TEST_DATA) + "/../../docs/reference/resuming.md");
  std::ostringstream text;
  text << file.rdbuf();
  expect_contains(text.str(), "```text\n" + describe_resume_rules() + "```");
}

TEST(ConfigMessages, WhatTrainingNeedsIsAskedForBefore) {
  Config config;
  EXPECT_THROW(require_supported(config), ConfigError) << "no run.directory";
  config.run.directory = "runs/x";
  EXPECT_THROW(require_supported(config), ConfigError) << "no data.train";
  config.data.train = {"train.h5"};
  EXPECT_THROW(require_supported(config), ConfigError) << "no data.valid";
  config.data.valid = "valid.h5";
  EXPECT_NO_THROW(require_supported(config));
  config.train.early_stopping = 5;
  EXPECT_NO_THROW(require_supported(config));
  config.train.validate_every = 0;
  expect_config_error([&] { require_supported(config); },
                      "early_stopping = 5 beside train.validate_every = 0: without validations nothing stops");
}

}  // namespace
}  // namespace heddle
