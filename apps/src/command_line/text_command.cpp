#include "text_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>

#include "command_line/ranks.hpp"
#include "corpus/corpus_output.hpp"
#include "run/checkpoints/best_checkpoints.hpp"
#include "run/directory/warning.hpp"

namespace heddle {

namespace po = boost::program_options;

namespace {

/// Takes runs with a name before the path, "law=runs/law", or one without.
void choose_adapters(TrainedModelOptions& options, std::vector<std::string> const& runs) {
  for (std::string const& run : runs) {
    std::size_t const end = run.find_first_of("=/");
    bool const named = end != run.npos && end > 0 && run[end] == '=';
    if (named ? !options.adapters.emplace(run.substr(0, end), run.substr(end + 1)).second : runs.size() > 1) {
      throw UsageError("--adapter {}: expected NAME=RUN with another name for each of several runs of adapters", run);
    }
    if (!named) {
      options.adapter = run;
    }
  }
}

}  // namespace

void add_model_options(OptionsDescription& description, TrainedModelOptions& options, std::string const& several) {
  auto const choose = [&options](std::vector<std::string> const& places) {
    options.checkpoint = places.front();
    options.ensemble.assign(places.begin() + 1, places.end());
  };
  auto const adapt = [&options](std::vector<std::string> const& runs) { choose_adapters(options, runs); };
  description.add_options()  //
      ("checkpoint", po::value<std::vector<std::string>>()->value_name("DIRECTORY")->composing()->notifier(choose),
       "a run's directory, its checkpoints directory, or one checkpoint's; several with one vocabulary are an "
       "ensemble, "
       "whose models' log-probabilities are averaged")  //
      ("weight", po::value(&options.weights)->value_name("X")->composing(),
       "the weight of a model in an ensemble's average: one for each --checkpoint, in their order; default: equal "
       "ones")  //
      ("which", with_default(options.which, "best|last|auto"),
       "the checkpoint to use: the best in validation, the last, or (auto) the best if there is one, "
       "else the last")  //
      ("adapter", po::value<std::vector<std::string>>()->value_name("[NAME=]RUN")->composing()->notifier(adapt),
       ("use the adapters of this run on --checkpoint, which must be the base that they were trained with" + several)
           .c_str())  //
      ("average", with_default(options.average, "N"),
       "average the parameters of N checkpoints of the run")  //
      ("average-by", with_default(options.average_by, "newest|best|METRIC"),
       "which N: the newest, or those that are best in validation by the run's train.best_metric or by METRIC, for "
       "example loss or bleu")  //
      ("set", po::value(&options.overrides)->value_name("SECTION.KEY=VALUE")->composing(),
       "a key's value in place of the checkpoint's, for example kernels.gemm=reference; may be repeated")  //
      ("quantize", without_default(options.quantize, "int8"),
       "multiply by weights of 8 bits, rounded when the model is loaded: less exact, and faster");
  add_plugin_options(description, options);
}

void add_plugin_options(OptionsDescription& description, TrainedModelOptions& options) {
  description.add_options()  //
      ("plugin", po::value(&options.plugins)->value_name("LIBRARY")->composing(),
       "a shared library with kernels and layers: one that the model was trained with, which is loaded only if it is "
       "named here (a file of the same name takes its place), or another one; may be repeated")  //
      ("trust-plugins", po::bool_switch(&options.trust_plugins),
       "load the plug-ins that the checkpoint names, and load all plug-ins without checking their kernels and layers");
}

std::unique_ptr<TrainedModel> open_model(TrainedModelOptions options, ModelRequirement const& require, bool by_line) {
  if (by_line && options.adapters.empty()) {
    throw UsageError("--adapter-column: no --adapter NAME=RUN names adapters");
  }
  if (!by_line && options.adapters.size() > 1) {
    throw UsageError(
        "--adapter: of several runs, each line names the one that it takes, with `heddle translate` or `generate` "
        "--adapter-column; give that, or one run");
  }
  if (!by_line && !options.adapters.empty()) {
    options.adapter = options.adapters.begin()->second;
    options.adapters.clear();
  }
  auto model = TrainedModel::open(options, require);
  if (options.group.rank() == 0) {
    std::ranges::for_each(model->skipped(), report_on_stderr);
  }
  return model;
}

std::string no_translations(TrainedModel const& model) {
  return model.task().pairs(model.needs_prefixes())
             ? ""
             : fmt::format(
                   "{} is trained on text, not on translations; `heddle evaluate --text` measures such a model, "
                   "and train.initialize_from trains it further, on pairs",
                   place_of_task(model.config()));
}

void add_generation_options(OptionsDescription& description, GenerationOptions& options, char const* input,
                            char const* output) {
  description.add_options()  //
      ("beam", with_default(options.beam_size, "N"),
       fmt::format("hypotheses kept for each {}; 1 is greedy", input).c_str())  //
      ("length-penalty", with_default(options.length_penalty, "X"),
       "a hypothesis's score is its log-probability divided by its tokens (and its end) to this power")  //
      ("word-penalty", with_default(options.word_penalty, "X"),
       "subtracted from the log-probability for each token (and the end) before that; below 0: longer ones score "
       "more")  //
      ("patience", with_default(options.patience, "X"),
       "search on until X times --beam hypotheses have ended; above 1: longer, for better scores")  //
      ("max-length", with_default(options.max_length, "N"),
       fmt::format("maximum tokens of a {}; 0: twice the {}'s and 50 more", output, input).c_str())                 //
      ("min-length", with_default(options.min_length, "N"), fmt::format("minimum tokens of a {}", output).c_str())  //
      ("no-repeat-ngram", with_default(options.no_repeat_ngram, "N"),
       fmt::format("a {} has no sequence of N tokens twice; 0: it may", output).c_str())  //
      ("beam-groups", with_default(options.beam_groups, "N"),
       "divide the beam into N groups that avoid each other's tokens: diverse hypotheses")  //
      ("diversity", with_default(options.diversity, "X"),
       "the log-probability that a token costs for each use by an earlier group at the same position")  //
      ("batch-tokens", with_default(options.batch_tokens, "N"),
       fmt::format("hypotheses times {} tokens that are computed together; more is faster and takes more memory", input)
           .c_str());
}

void settle_generation(po::variables_map const& values, GenerationOptions& options) {
  bool const draws = options.sampling.temperature > 0;
  if (draws && values["beam"].defaulted()) {
    options.beam_size = 1;
  }
  if (options.beam_groups == 1 && !values["diversity"].defaulted()) {
    throw UsageError("--diversity is between groups of the beam: give --beam-groups more than 1, too");
  }
  if (!draws && !values["seed"].defaulted()) {
    throw UsageError("--seed is of random draws, and with --temperature 0 nothing is drawn: give a temperature, too");
  }
}

void add_sampling_options(OptionsDescription& description, Sampling& sampling) {
  description.add_options()  //
      ("temperature", with_default(sampling.temperature, "X"),
       "draw tokens from the probabilities to the power 1 / X; 0: do not")                           //
      ("top-k", with_default(sampling.top_k, "N"), "draw from the N likeliest tokens; 0: from all")  //
      ("top-p", with_default(sampling.top_p, "X"),
       "draw from the fewest likeliest tokens that have together at least the probability X")  //
      ("min-p", with_default(sampling.min_p, "X"),
       "draw from the tokens whose probability is at least X times that of the likeliest")  //
      ("seed", with_default(sampling.seed, "N"),
       "seed of the random draws: the same text for the same seed, input and line number, counted from 1");
}

void add_forbid(OptionsDescription& description, TokenChoices& choices) {
  description.add_options()  //
      ("forbid", po::value(&choices.forbid)->value_name("TEXT"),
       "a text of words and phrases, one a line, that are not generated")  //
      ("allow-unknown", po::bool_switch(&choices.allow_unknown),
       "also generate the unknown token, which a SentencePiece vocabulary writes as \" ⁇ \"");
}

void add_shortlist(OptionsDescription& description, TokenChoices& choices) {
  description.add_options()(
      "shortlist", po::value(&choices.shortlist)->value_name("LEXICON[:FIRST:BEST]"),
      "choose only from the FIRST most frequent pieces and the BEST likeliest translations of each source piece, by a "
      "lexicon of `heddle lexicon` or Marian's lex.s2t; default: 100 and 100");
}

void add_text_options(OptionsDescription& description, TextOptions& options, std::string const& done) {
  auto const choose = [&options](std::int64_t lines) {
    if (lines < 1) {
      throw UsageError("--window is {}; expected at least 1", lines);
    }
    options.window = lines;
  };
  description.add_options()("window", po::value<std::int64_t>()->value_name("LINES")->notifier(choose),
                            fmt::format("lines that are {} together by one process; default: {}, or 1 on a terminal",
                                        done, TextOptions::default_window)
                                .c_str());
  add_invalid_utf8(description, options.invalid_utf8);
}

void add_language_options(OptionsDescription& description, Languages& languages) {
  description.add_options()  //
      ("source-language", without_default(languages.source, "NAME"),
       "the language of the source, if the model's vocabulary has tokens for languages: eng_Latn, en_XX, __en__")  //
      ("target-language", without_default(languages.target, "NAME"), "the language to translate into");
}

void add_text_command_options(OptionsDescription& description, TextCommandOptions& options, char const* input,
                              char const* output, std::string const& done) {
  add_model_options(description, options.model, "; several with names, where lines choose one (--adapter-column)");
  add_generation_options(description, options.generation, input, output);
  description.add_options()  //
      ("input", po::value(&options.text.input)->value_name("TEXT"),
       "read this text, plain, gzip or zstd, instead of the standard input")  //
      ("adapter-column", po::bool_switch(&options.text.adapter_column),
       "each line is NAME<TAB>TEXT, with the name of an --adapter, or no name for the model without adapters")  //
      ("stream", po::bool_switch(&options.text.stream),
       "answer each line before the next one is read, as on a terminal: for a program at the other end of a pipe")  //
      ("output", po::value(&options.output)->value_name("TEXT"), "write to this file instead of the standard output");
  add_forbid(description, options.choices);
  add_text_options(description, options.text, done);
  add_threads(description, options.threads);
}

void add_threads(OptionsDescription& description, int& threads, bool ranks) {
  std::string help = "processes that share the work and the model's memory; 0: one for each core";
  help += ranks ? "; ignored where mpirun or srun started ranks, which share the work" : "";
  description.add_options()("threads", with_default(threads, "N"), help.c_str());
}

ExitCode convert_text(TextCommandOptions const& options, TextConversion conversion, ModelRequirement const& require,
                      TextFormat const& format) {
  if (options.model.checkpoint.empty()) {
    throw UsageError("{0}: --checkpoint is missing: the model to {0} with", conversion.command);
  }
  require_valid(options.generation);
  require_valid(options.text);
  conversion.encode = format.encode;
  conversion.conclude = [&](TrainedModel& model, std::vector<GeneratedLine> const& lines) {
    return ChunkResult{.text = format.format(model, lines)};
  };
  return run_on_ranks([&](MpiSession const* session) {
    Communicator const world = session == nullptr ? Communicator::self() : session->world();
    bool const leads = world.rank() == 0;
    if (options.text.stream && world.size() > 1) {
      throw UsageError("--stream answers line by line, and several processes read ahead: start one");
    }
    Processes const processes{make_rank_groups(world, options.model.overrides), session != nullptr, options.threads,
                              options.output.empty()};
    LineSource text(leads ? options.text : TextOptions{.input = "/dev/null"});
    TrainedModelOptions of_model = options.model;
    of_model.group = processes.ranks.group;
    auto const model = open_model(of_model, require, options.text.adapter_column);
    if (leads) {
      warn(no_translations(*model));
    }
    if (model->config().model.is_encoder_decoder()) {
      model->choose_languages(options.languages);
    }
    GenerationOptions generation = options.generation;
    apply(options.choices, model->vocabulary(), generation);
    ComputeChunk const compute = chunk_computation(*model, generation, conversion);
    std::string const digest = generation_digest(*model, generation);
    CorpusOutput output(leads ? options.output : "", output_identity(conversion.command, options.arguments, digest),
                        {text.path(), options.text.prefix});
    auto const next = [&] { return output.next([&] { return text.next_chunk(); }); };
    convert_chunks(processes, text, next, compute, [&](ChunkResult const& result) { output.write(result); });
    output.finish();
    text.warn_of_invalid();
    return ExitCode::done;
  });
}

}  // namespace heddle
