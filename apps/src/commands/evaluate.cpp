#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <exception>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/metrics/bleu.hpp>
#include <heddle/io/metrics/chrf.hpp>
#include <heddle/io/samples/batches.hpp>
#include <heddle/io/samples/text_samples.hpp>
#include <iostream>
#include <optional>

#include "command_line/text_command.hpp"
#include "commands.hpp"
#include "inference/translation.hpp"

namespace heddle {
namespace {

namespace po = boost::program_options;

struct EvaluateOptions {
  TrainedModelOptions model;
  GenerationOptions generation{.beam_size = 5};
  std::string source;
  std::string reference;
  std::string hypotheses;
  std::string text;
  std::string pair;
  std::string tokenize = "13a";
  std::string output;
  TextOptions text_options;
  Languages languages;

  /// To read this text.
  TextOptions reading(std::string const& input) const {
    return {input, text_options.window, text_options.invalid_utf8};
  }
};

CommandSyntax evaluate_syntax(EvaluateOptions& options) {
  CommandSyntax syntax;
  syntax.name = "evaluate";
  syntax.usage =
      "(--checkpoint DIRECTORY (--source TEXT --reference TEXT | --text TEXT) | --hypotheses TEXT --reference TEXT) "
      "[options]";
  syntax.summary = R"(Compares translations with reference translations: BLEU and chrF, the same numbers as
sacreBLEU's. With a model it translates the source itself, and reports the perplexity of the references:
e to the mean unsmoothed loss per target token, end tokens included. With --text it measures
a model that was trained on text: the perplexity of the text; for an encoder, perplexity and accuracy on its
masked tokens.)";
  auto const text = [](std::string& into) { return po::value(&into)->value_name("TEXT"); };
  syntax.options.add_options()                                                                                 //
      ("reference", text(options.reference), "reference translations, plain or gzip, one a line")              //
      ("source", text(options.source), "what to translate: line n belongs to the reference's line n")          //
      ("hypotheses", text(options.hypotheses), "translations to judge, instead of a checkpoint and a source")  //
      ("text", text(options.text),
       "compute the perplexity of a language model (or the masked accuracy of an encoder) on this text")   //
      ("pair", text(options.pair), "of an encoder: the second texts; line n belongs to line n of --text")  //
      ("tokenize", with_default(options.tokenize, "13a|none"),
       "words for BLEU: sacreBLEU's 13a, or none for text that is tokenised already")  //
      ("output", text(options.output), "write the model's translations to this file");
  add_language_options(syntax.options, options.languages);
  add_model_options(syntax.options, options.model);
  add_generation_options(syntax.options, options.generation, "sentence", "translation");
  add_text_options(syntax.options, options.text_options, "translated");
  return syntax;
}

void check_text_options(EvaluateOptions const& options) {
  if (options.model.checkpoint.empty()) {
    throw UsageError("evaluate: --text needs --checkpoint: the model to measure");
  }
  if (!options.model.ensemble.empty()) {
    throw UsageError("evaluate: --text measures one model; give one --checkpoint");
  }
  if (!options.pair.empty()) {
    require_equal_lines(options.reading(options.text), options.pair);
  }
  for (auto const& [name, value] : {std::pair<char const*, std::string const&>{"reference", options.reference},
                                    {"source", options.source},
                                    {"hypotheses", options.hypotheses},
                                    {"output", options.output}}) {
    if (!value.empty()) {
      throw UsageError(fmt::format(
          "evaluate: --{} belongs to translations, and --text to models that were trained on text: give only "
          "one of the two",
          name));
    }
  }
}

void check_options(EvaluateOptions const& options) {
  if (!options.text.empty()) {
    return check_text_options(options);
  }
  if (!options.pair.empty()) {
    throw UsageError("evaluate: --pair goes with --text: line n of both is one sample");
  }
  if (options.reference.empty()) {
    throw UsageError(
        "evaluate: --reference is missing: the right translations; or --text for a model that was trained on text");
  }
  bool const model = !options.model.checkpoint.empty();
  bool const hypotheses = !options.hypotheses.empty();
  if (model == hypotheses) {
    throw UsageError("evaluate: expected either --checkpoint with --source, or --hypotheses");
  }
  if (model == options.source.empty()) {
    throw UsageError(model ? "evaluate: --source is missing: the text that --checkpoint is to translate"
                           : "evaluate: --source goes with --checkpoint; --hypotheses are translated already");
  }
  if (hypotheses && !options.output.empty()) {
    throw UsageError("evaluate: --output goes with --checkpoint; --hypotheses are written already");
  }
  require_valid(options.generation);
}

class Scores {
 public:
  explicit Scores(std::string const& tokenize)
      : tokenize_(tokenize), bleu_(tokenize == "13a" ? BleuTokenization::mteval_13a : BleuTokenization::none) {}

  void add(std::string const& hypothesis, std::string const& reference) {
    bleu_.add(hypothesis, reference);
    chrf_.add(hypothesis, reference);
  }

  void print() const {
    std::string const bleu = bleu_.score().text();
    // sacreBLEU's own form: its signature stands in place of the name BLEU.
    std::cout << fmt::format("BLEU|nrefs:1|case:mixed|eff:no|tok:{}|smooth:exp|version:heddle-{}{}\n", tokenize_,
                             HEDDLE_VERSION, bleu.substr(bleu.find(' ')));
    std::cout << fmt::format("chrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:heddle-{} = {:.2f}\n",
                             HEDDLE_VERSION, chrf_.score());
  }

 private:
  std::string tokenize_;
  BleuCounter bleu_;
  ChrfCounter chrf_;
};

void print_perplexity(LossSums const& loss, std::string_view kind) {
  double const mean = loss.negative_log_likelihood / loss.weight;
  std::cout << fmt::format("perplexity = {:.6g} ({:.4f} nats for each of {} {}tokens)\n", std::exp(mean), mean,
                           readable_count(loss.tokens), kind);
}

/// The references' loss given their sources, over all pairs that fit the model, in packs of pairs of similar length.
class ReferenceLoss {
 public:
  explicit ReferenceLoss(TrainedModel& model) : model_(model) {}

  void add(SourceLine line) {
    lines_.push_back(std::move(line));
    if (std::ssize(lines_) == default_window) {
      compute();
    }
  }

  /// Computes the loss of the lines that were added since the last time.
  void compute() {
    Vocabulary const& vocabulary = model_.vocabulary();
    std::vector<SentencePair> pairs;
    for (SourceLine const& line : lines_) {
      pairs.push_back({static_cast<std::int32_t>(pairs.size()), model_.frame().source, model_.frame().target});
      append(pairs.back().source, vocabulary.source.encode(line.text));
      append(pairs.back().target, vocabulary.target.encode(line.reference));
    }
    lines_.clear();
    std::size_t const count = pairs.size();
    MemorySamples const samples(std::move(pairs), vocabulary.special_ids());
    GlobalBatch batch = all_samples(samples, model_.longest_source() + 1, SampleOrder::by_length);
    left_out_ += count - batch.samples.size();
    if (batch.samples.empty()) {
      return;
    }
    constexpr std::int64_t pack_tokens = 4096;
    loss_ += model_.loss(SampledMicroBatches(samples, std::move(batch), {.max_tokens = pack_tokens}));
  }

  void print() const {
    if (left_out_ > 0) {
      std::cerr << fmt::format("heddle: perplexity: {} pairs longer than the model takes are left out\n",
                               readable_count(left_out_));
    }
    if (loss_.tokens > 0) {
      print_perplexity(loss_, "target ");
    }
  }

 private:
  static void append(std::vector<std::int32_t>& tokens, std::vector<std::int32_t> const& more) {
    tokens.insert(tokens.end(), more.begin(), more.end());
  }

  TrainedModel& model_;
  std::vector<SourceLine> lines_;
  LossSums loss_;
  std::size_t left_out_ = 0;
};

void evaluate_hypotheses(EvaluateOptions const& options) {
  LineSource text(options.reading(options.hypotheses), options.reference);
  Scores scores(options.tokenize);
  for (SourceLine line; text.next(line);) {
    scores.add(line.text, line.reference);
  }
  scores.print();
  text.warn_of_invalid();
}

void evaluate_model(EvaluateOptions const& options) {
  TextOptions const reading = options.reading(options.source);
  require_equal_lines(reading, options.reference);
  LineSource text(reading, options.reference);
  auto const require = [](ModelDescription const& description) {
    require_translation(description, "heddle evaluate --source", commands_for(description));
  };
  auto const model = open_model(options.model, require);
  if (std::string const reason = no_translations(*model); !reason.empty()) {
    throw ConfigError("heddle evaluate --source measures translations: " + reason);
  }
  model->choose_languages(options.languages);
  std::optional<TextOutput> output;
  if (!options.output.empty()) {
    output.emplace(options.output, std::vector{options.source, options.reference});
  }
  std::exception_ptr not_written;  // reported last: the scores are useful without the translations
  Scores scores(options.tokenize);
  ReferenceLoss loss(*model);
  auto const judge = [&](TrainedModel const& judged, std::vector<GeneratedLine> lines) {
    std::string translated;
    for (GeneratedLine& line : lines) {
      std::string const translation = translations_of(judged, line).front().text;
      scores.add(translation, line.line.reference);
      translated += translation + "\n";
      loss.add(std::move(line.line));
    }
    try {
      if (output && !not_written) {
        output->write(translated);
      }
    } catch (Error const&) {
      not_written = std::current_exception();
    }
  };
  auto const encode = [](TrainedModel const& encoder, SourceLine const& line) {
    return encode_source(encoder, line.text);
  };
  convert_lines(*model, options.generation, text, {encode, judge}, {"evaluate", "first", "translated"});
  loss.compute();
  scores.print();
  loss.print();
  text.warn_of_invalid();
  if (not_written) {
    std::rethrow_exception(not_written);
  }
}

/// Lines as tokens, of one text, or of two texts of which line n belongs to line n.
using EncodedTexts = std::vector<std::vector<std::vector<std::int32_t>>>;

/// The next lines as tokens, as many as fit into a part of the texts; none at their end. Lines of which a text has no
/// token are left out.
EncodedTexts encode_part(Tokenizer const& tokenizer, std::deque<LineReader>& readers) {
  constexpr std::size_t max_lines = std::size_t{1} << 20;
  constexpr std::size_t max_tokens = std::size_t{1} << 24;
  EncodedTexts texts(readers.size());
  std::size_t tokens = 0;
  while (texts.front().size() < max_lines && tokens < max_tokens) {
    std::vector<std::vector<std::int32_t>> sample;
    for (LineReader& reader : readers) {
      std::string line;
      if (!reader.next(line)) {
        return texts;
      }
      sample.push_back(tokenizer.encode(line));
    }
    if (std::ranges::none_of(sample, [](auto const& ids) { return ids.empty(); })) {
      for (std::size_t text = 0; text < sample.size(); ++text) {
        tokens += sample[text].size();
        texts[text].push_back(std::move(sample[text]));
      }
    }
  }
  return texts;
}

/// The samples that a model's task makes of a text, or of two. Throws ConfigError if it makes none.
std::unique_ptr<SampleSource> samples_of(TrainedModel const& model, EncodedTexts texts, std::string const& name) {
  Config const& config = model.config();
  SampleUse const use{.training = false, .prefixes = model.needs_prefixes()};
  Tokenizer const& tokenizer = model.vocabulary().target;  // of a model that was trained on text both are the same
  auto lines = std::make_unique<MemoryLines>(std::move(texts.front()));
  if (texts.size() > 1) {
    if (model.task().pairs(use.prefixes) != PairForm::joined) {
      throw ConfigError(fmt::format("heddle evaluate --pair measures an encoder on two texts, but {} {}",
                                    place_of_task(config), model.task().meaning()));
    }
    return joined_samples(std::move(lines), std::make_unique<MemoryLines>(std::move(texts.back())),
                          text_rule(config, model.task(), tokenizer, use, name));
  }
  auto samples = text_samples(config, model.task(), std::move(lines), tokenizer, use, name);
  if (!samples) {
    throw ConfigError(
        fmt::format("heddle evaluate --text is for models trained on monolingual text, but {} is trained on pairs; "
                    "use --source and --reference",
                    place_of_task(config)));
  }
  return samples;
}

/// Measures a model that was trained on text on a text, one document or sentence a line, joined into sequences and
/// masked as in validation, or with --pair on two texts, and prints the perplexity and, of an encoder, the masked
/// accuracy. A text of more than 16 million tokens or a million lines is read in parts of that size, and no sequence is
/// joined across their ends.
void evaluate_text(EvaluateOptions const& options) {
  std::string const& text = options.text;
  auto const model = open_model(options.model, [](ModelDescription const&) {});
  Config const& config = model->config();
  std::deque<LineReader> readers;
  readers.emplace_back(text, options.text_options.invalid_utf8);
  if (!options.pair.empty()) {
    readers.emplace_back(options.pair, options.text_options.invalid_utf8);
  }
  LossSums loss;
  Tokenizer const& tokenizer = model->vocabulary().target;
  for (auto part = encode_part(tokenizer, readers); !part.front().empty(); part = encode_part(tokenizer, readers)) {
    auto const samples = samples_of(*model, std::move(part), text);
    std::cerr << fmt::format("heddle: {}\n", samples->describe());
    if (auto const left_out = samples->totals(0, config.model.max_length).left_out; left_out > 0) {
      std::cerr << fmt::format("heddle: {} samples longer than the model takes are left out\n",
                               readable_count(left_out));
    }
    GlobalBatch batch = all_samples(*samples, config.model.max_length);
    if (!batch.samples.empty()) {
      loss +=
          model->loss(SampledMicroBatches(*samples, std::move(batch), {.max_tokens = config.train.micro_batch_tokens}));
    }
  }
  if (loss.tokens == 0) {
    throw DataError(fmt::format("{}: none of its {} lines has a token, or fits the model", text,
                                readable_count(readers.front().line_number())));
  }
  std::ranges::for_each(readers, warn_of_invalid_lines);
  bool const masked = model->task().measures_accuracy();
  if (masked) {
    std::cout << fmt::format("masked accuracy = {:.2f} % ({} of {} masked tokens)\n",
                             100 * static_cast<double>(loss.correct) / static_cast<double>(loss.tokens),
                             readable_count(loss.correct), readable_count(loss.tokens));
  }
  print_perplexity(loss, masked ? "masked " : "");
}

}  // namespace

ExitCode run_evaluate(Arguments const& arguments) {
  EvaluateOptions options;
  parse_options(evaluate_syntax(options), arguments);
  check_options(options);
  if (!options.text.empty()) {
    evaluate_text(options);
  } else if (!options.hypotheses.empty()) {
    evaluate_hypotheses(options);
  } else {
    evaluate_model(options);
  }
  return ExitCode::done;
}

}  // namespace heddle
