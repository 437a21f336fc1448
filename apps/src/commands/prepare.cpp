#include <fmt/format.h>

#include <algorithm>
#include <boost/algorithm/string/split.hpp>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/preparation/prepare.hpp>
#include <heddle/run.hpp>
#include <iostream>
#include <iterator>
#include <system_error>
#include <utility>

#include "command_line/options.hpp"
#include "command_line/ranks.hpp"
#include "commands.hpp"
#include "corpus/corpus_output.hpp"
#include "run/directory/warning.hpp"

namespace heddle {
namespace {

namespace po = boost::program_options;

/// An option with one file or several, which are one text.
auto* texts(PrepareOptions::Paths& paths, char const* name = "TEXT...") {
  return po::value<std::vector<std::string>>()->value_name(name)->multitoken()->composing()->notifier(
      [&paths](std::vector<std::string> const& given) { paths.assign(given.begin(), given.end()); });
}

void add_texts(CommandSyntax& syntax, PrepareOptions& prepared) {
  auto const take_columns = [&prepared](std::string const& given) { prepared.columns = parse_columns(given); };
  syntax.options.add_options()                                                                  //
      ("source", texts(prepared.source), "training text, source side, in one file or several")  //
      ("target", texts(prepared.target),
       "training text, target side, in as many files: line n translates the source's line n")          //
      ("tsv", texts(prepared.tsv, "FILE..."), "training text of both sides: lines SOURCE<TAB>TARGET")  //
      ("alignments", texts(prepared.alignments, "FILE..."),
       "word alignments of the training text, lines of SOURCE-TARGET from 0 (0-0 1-2), for guided alignment")  //
      ("sentence-weights", texts(prepared.sentence_weights, "FILE..."),
       "a number for each pair of the training text, by which its loss is multiplied")  //
      ("word-weights", texts(prepared.word_weights, "FILE..."),
       "the same for each word, between white space, of each target: lines with as many numbers as words")  //
      ("columns", po::value<std::string>()->value_name("S,T")->notifier(take_columns),
       "the columns of source and target in lines of --tsv and --valid-tsv that have more, from 1 on")           //
      ("valid-source", texts(prepared.valid_source), "validation text, source side")                             //
      ("valid-target", texts(prepared.valid_target), "validation text, target side")                             //
      ("valid-tsv", texts(prepared.valid_tsv, "FILE..."), "validation text of both sides")                       //
      ("text", texts(prepared.text), "training text of an encoder-only or decoder-only model, or of denoising")  //
      ("valid-text", texts(prepared.valid_text), "its validation text");
}

void add_vocabulary(CommandSyntax& syntax, PrepareOptions& prepared) {
  auto const add_symbols = [&prepared](std::vector<std::string> const& symbols) {
    prepared.symbols.insert(prepared.symbols.end(), symbols.begin(), symbols.end());
  };
  auto const add_list = [add_symbols](std::string const& list) {
    std::vector<std::string> symbols;
    boost::split(symbols, list, [](char letter) { return letter == ','; });
    add_symbols(symbols);
  };
  syntax.options.add_options()  //
      ("vocab-size", with_default(prepared.vocabulary_size, "N"),
       "pieces in the vocabulary (in each of the two where they are separate), the four special ones included")  //
      ("vocab-type", with_default(prepared.vocabulary_type, "bpe|unigram"),
       "kind of vocabulary")  //
      ("sentinels", with_default(prepared.sentinels, "N"),
       "special pieces <extra_id_0> … in a new vocabulary, for denoising with train.noise = \"spans\"; 100 are "
       "usual")  //
      ("tag", po::value<std::vector<std::string>>()->composing()->value_name("TAG")->notifier(add_symbols),
       "a text that is one piece of a new vocabulary, for the tag of [data.corpus.NAME]; as often as needed")  //
      ("user-defined-symbols", po::value<std::string>()->value_name("TEXT,...")->notifier(add_list),
       "the same for several texts")  //
      ("byte-fallback", po::bool_switch(&prepared.byte_fallback),
       "256 more pieces of a new vocabulary, for bytes: characters without a piece are not unknown")  //
      ("split-digits", po::bool_switch(&prepared.split_digits),
       "each digit is a piece by itself in a new vocabulary, so that numbers are read digit by digit")  //
      ("character-coverage", with_default(prepared.character_coverage, "X"),
       "the share of the text's characters that have a piece in a new vocabulary, 0.98 to 1; 0.9995 is usual for "
       "Chinese and Japanese")  //
      ("normalization", with_default(prepared.normalization, "nmt_nfkc|nfkc|nmt_nfkc_cf|nfkc_cf|identity"),
       "how a new vocabulary changes the characters of every text, by SentencePiece's rule of this name")    //
      ("only-vocab", po::bool_switch(&prepared.only_vocabulary), "write only a new vocabulary, no dataset")  //
      ("separate-vocab", po::bool_switch(&prepared.separate_vocabularies),
       "one vocabulary for each side instead of a joint one")  //
      ("vocab-model", without_default(prepared.source_model, "MODEL"),
       "an existing vocabulary, joint or of the source side; or a run, a checkpoint or a dataset, whose vocabulary is "
       "taken")  //
      ("target-vocab-model", without_default(prepared.target_model, "MODEL"),
       "an existing vocabulary of the target side");
}

CommandSyntax prepare_syntax(PrepareOptions& prepared, Verbosity& verbosity) {
  CommandSyntax syntax;
  syntax.name = "prepare";
  syntax.usage = "(--source TEXT... --target TEXT... | --tsv FILE... | --text TEXT...) --out DIRECTORY [options]";
  syntax.summary =
      R"(Turns parallel text (plain, gzip or zstd, UTF-8, one sentence a line), or one text (one document or
sentence a line), into HDF5 datasets for `heddle train`: learns a SentencePiece vocabulary, or takes an
existing one, and writes DIRECTORY/train.h5, valid.h5 and vocab.model (or vocab.source.model and
vocab.target.model). Encoder-decoder models are trained on pairs, or with train.task = "denoising" from --text;
encoder-only and decoder-only ones from --text. A text may be a pipe; - is the standard input.)";
  add_texts(syntax, prepared);
  add_vocabulary(syntax, prepared);
  syntax.options.add_options()  //
      ("source-language", without_default(prepared.languages.source, "NAME"),
       "the source's language, where --vocab-model has tokens for languages: eng_Latn, en_XX, __en__")  //
      ("target-language", without_default(prepared.languages.target, "NAME"), "the target's")           //
      ("max-length", with_default(prepared.max_length, "N"),
       "leave out a pair with more tokens than this on a side; lines of --text are never left out")  //
      ("clean", without_default(prepared.clean, "RULES.toml"),
       "leave out lines of the training text by rules, as `heddle clean` does")  //
      ("dropped", without_default(prepared.dropped, "FILE.tsv"),
       "the lines that --clean leaves out: NUMBER, RULE, REASON, and the sides")  //
      ("samples-per-file", po::value(&prepared.samples_per_file)->value_name("N"),
       "write the training dataset as train-00001.h5, train-00002.h5 …, each with at most N pairs or lines")  //
      ("threads", with_default(prepared.threads, "N"),
       "threads that encode the text, of each rank where mpirun or srun started several, which share the work; 0: one "
       "for each core that may be used; the files are the same")                                   //
      ("out", without_default(prepared.directory, "DIRECTORY")->required(), "where the files go")  //
      ("overwrite", po::bool_switch(&prepared.overwrite), "replace files of an earlier run in DIRECTORY");
  add_invalid_utf8(syntax.options, prepared.invalid_utf8, true);
  add_verbosity(syntax, verbosity, "print only warnings and where the files are");
  return syntax;
}

void check_options(po::variables_map const& values) {
  for (char const* const name : {"vocab-size", "vocab-type", "sentinels", "tag", "user-defined-symbols",
                                 "byte-fallback", "split-digits", "character-coverage", "normalization"}) {
    if (values.count("vocab-model") > 0 && values.count(name) > 0 && !values[name].defaulted()) {
      throw UsageError(
          "--{} controls vocabulary training, but --vocab-model names an existing vocabulary; use one of the two",
          name);
    }
  }
  bool const only_vocabulary = values["only-vocab"].as<bool>();
  if ((values.count("text") > 0 || only_vocabulary) && !values["max-length"].defaulted()) {
    throw UsageError(only_vocabulary ? "--max-length leaves out pairs of a dataset, and --only-vocab writes none"
                                     : "--max-length leaves out pairs; lines of --text are never left out: training "
                                       "splits those longer than model.max_length");
  }
}

void print_text(char const* name, PreparedText const& text, PrepareOptions const& options) {
  if (options.lines()) {
    std::cout << fmt::format("{}: {} lines, {} tokens, {} of them unknown, at most {} in a line; left out: {} empty\n",
                             name, readable_count(text.samples), readable_count(text.tokens[0]),
                             readable_count(text.unknown_tokens), readable_count(text.max_tokens[0]),
                             readable_count(text.empty));
    return;
  }
  std::cout << fmt::format(
      "{}: {} pairs, {} source and {} target tokens, {} of them unknown; left out: {} with an empty side, {} with more "
      "than {} tokens\n",
      name, readable_count(text.samples), readable_count(text.tokens[0]), readable_count(text.tokens[1]),
      readable_count(text.unknown_tokens), readable_count(text.empty), readable_count(text.too_long),
      readable_count(options.max_length));
}

/// Passes the texts that were prepared, with their datasets' names, to `visit`.
template <class Visit>
void for_each_text(PrepareReport const& report, Visit const& visit) {
  for (auto const& [name, text] : {std::pair("train", &report.train), std::pair("valid", &report.valid)}) {
    if (*text) {
      visit(name, **text);
    }
  }
}

void print_report(PrepareReport const& report, PrepareOptions const& options) {
  std::cout << (report.cleaning ? describe(*report.cleaning) : "");
  for_each_text(report, [&](char const* name, PreparedText const& text) { print_text(name, text, options); });
  std::cout << (report.joint ? fmt::format("{}vocabulary: {} pieces\n", options.lines() ? "" : "joint ",
                                           readable_count(report.source_vocabulary_size))
                             : fmt::format("vocabularies: {} source and {} target pieces\n",
                                           readable_count(report.source_vocabulary_size),
                                           readable_count(report.target_vocabulary_size)));
}

/// "1 pair", or "3 lines" where the texts are lines.
std::string samples(std::int64_t count, PrepareOptions const& options) {
  return counted(count, options.lines() ? "line" : "pair");
}

/// Warns of lines or pairs that were not UTF-8.
void warn_of_invalid(char const* name, PreparedText const& text, PrepareOptions const& options) {
  if (text.invalid > 0) {
    bool const skipped = options.invalid_utf8 == InvalidUtf8::skip;
    bool const one = text.invalid == 1;
    warn(fmt::format("{}: {} {} not valid UTF-8 {} {}", name, samples(text.invalid, options),
                     !options.lines() ? "with a side that is"
                     : one            ? "that is"
                                      : "that are",
                     one ? "was" : "were", skipped ? "left out" : "kept, with U+FFFD in place of what is invalid"));
  }
}

/// Prints what is in a text and was kept, but is worth a look.
void print_findings(char const* name, PreparedText const& text, PrepareOptions const& options) {
  if (text.repeats > 0) {
    std::cout << fmt::format("{}: {}{} {} an earlier {} exactly\n", name, text.repeats_are_estimated ? "about " : "",
                             samples(text.repeats, options), text.repeats == 1 ? "repeats" : "repeat",
                             options.lines() ? "line" : "pair");
  }
  if (text.control > 0) {
    std::cout << fmt::format("{}: {} {} control characters\n", name, samples(text.control, options),
                             text.control == 1 ? "has" : "have");
  }
  if (text.unknown_characters > 0) {
    std::vector<std::string> frequent;
    for (auto const& [character, times] : text.frequent_unknown) {
      frequent.push_back(fmt::format("{} ({})", describe_character(character), readable_count(times)));
    }
    std::cout << fmt::format("{}: {} {} no piece: {}{}; {}\n", name, counted(text.unknown_characters, "character"),
                             text.unknown_characters == 1 ? "has" : "have", fmt::join(frequent, ", "),
                             frequent.size() < static_cast<std::size_t>(text.unknown_characters) ? ", …" : "",
                             options.has_vocabulary() ? "heddle extend-vocabulary adds pieces to a trained model"
                             : options.character_coverage < 1
                                 ? "--byte-fallback or a higher --character-coverage expresses them"
                                 : "--byte-fallback expresses them");
  }
}

/// Warns of texts from which a model learns nothing, or little.
void warn_of_doubtful(PrepareOptions const& options, PrepareReport const& report) {
  auto const same = [](PrepareOptions::Paths const& left, PrepareOptions::Paths const& right) {
    return !left.empty() && std::ranges::equal(left, right, [](auto const& one, auto const& other) {
      std::error_code ignored;
      return std::filesystem::equivalent(one, other, ignored);
    });
  };
  if (same(options.source, options.target)) {
    warn(fmt::format("--source and --target are the same file, {}: a model learns to copy from it",
                     options.source.front().string()));
  }
  if (same(options.valid_text, options.text) || same(options.valid_source, options.source) ||
      same(options.valid_tsv, options.tsv)) {
    warn("the validation text is the training text: validation will not show overfitting");
  }
  constexpr std::int64_t rare = 20;
  std::int64_t const pieces =
      report.joint ? report.source_vocabulary_size : report.source_vocabulary_size + report.target_vocabulary_size;
  std::int64_t const tokens = report.train ? report.train->tokens[0] + report.train->tokens[1] : 0;
  if (report.train && !options.has_vocabulary() && tokens < rare * pieces) {
    // Fewer pieces make more tokens, so that this many are frequent enough.
    std::int64_t const enough = tokens / rare / (report.joint ? 1 : 2);
    std::int64_t const hundreds = enough / 100 * 100;
    warn(fmt::format(
        "{} pieces in the vocabulary for {} tokens: a piece occurs {:.1f} times on average, too rarely to "
        "learn it well; a smaller --vocab-size has fewer such pieces{}",
        readable_count(pieces), readable_count(tokens), static_cast<double>(tokens) / static_cast<double>(pieces),
        hundreds == 0 ? "" : fmt::format(", for example {}", hundreds)));
  }
}

/// The vocabulary of a run, a checkpoint or a dataset, where --vocab-model names one.
void take_vocabulary(PrepareOptions& options) {
  std::error_code unknown;  // opening the file will say what is wrong
  std::filesystem::path const given = options.source_model.value_or("");
  bool const dataset = given.extension() == ".h5";
  if (!dataset && !std::filesystem::is_directory(given, unknown)) {
    return;
  }
  if (options.target_model || options.separate_vocabularies) {
    throw UsageError(
        "--vocab-model names a run, a checkpoint or a dataset, which has the vocabularies of both sides: leave "
        "--target-vocab-model and --separate-vocab out");
  }
  if (std::filesystem::exists(given / "vocab.model", unknown)) {
    options.source_model = given / "vocab.model";
  } else if (std::filesystem::exists(given / "vocab.source.model", unknown)) {
    options.source_model = given / "vocab.source.model";
    options.target_model = given / "vocab.target.model";
  } else if (dataset) {
    options.vocabulary = Dataset::open(given).vocabulary();
    options.source_model.reset();
  } else {
    options.vocabulary =
        open_checkpoints({.checkpoint = given.string()}, {}).checkpoints.front().contents().vocabulary();
    options.source_model.reset();
  }
}

void print_all(PrepareReport const& report, PrepareOptions const& options, Verbosity verbosity) {
  if (verbosity != Verbosity::quiet) {
    print_report(report, options);
    for_each_text(report, [&](char const* name, PreparedText const& text) { print_findings(name, text, options); });
  }
  for_each_text(report, [&](char const* name, PreparedText const& text) { warn_of_invalid(name, text, options); });
  if (report.cleaning) {
    std::ranges::for_each(report.cleaning->warnings, warn);
  }
  warn_of_doubtful(options, report);
  std::cout << fmt::format("wrote {}\n", options.directory.string());
}

/// The files that --dropped must not replace.
std::vector<std::string> texts_and_rules(PrepareOptions const& options) {
  std::vector<std::string> files{options.clean.value_or("").string()};
  for (PrepareOptions::Paths const& paths :
       {options.source, options.target, options.tsv, options.text, options.alignments, options.sentence_weights,
        options.word_weights, options.valid_source, options.valid_target, options.valid_tsv, options.valid_text}) {
    std::ranges::transform(paths, std::back_inserter(files), [](auto const& path) { return path.string(); });
  }
  return files;
}

}  // namespace

ExitCode run_prepare(Arguments const& arguments) {
  PrepareOptions options;
  options.threads = 0;
  Verbosity verbosity = Verbosity::normal;
  auto const values = parse_options(prepare_syntax(options, verbosity), arguments);
  check_options(values);
  take_vocabulary(options);
  require_other_file(options.dropped, texts_and_rules(options));
  return run_on_ranks([&](MpiSession const* session) {
    Communicator const world = session == nullptr ? Communicator::self() : session->world();
    std::ostream nothing(nullptr);
    PrepareReport const report = prepare(options, verbosity == Verbosity::quiet ? nothing : std::cerr, world);
    if (world.rank() == 0) {
      print_all(report, options, verbosity);
    }
    return ExitCode::done;
  });
}

}  // namespace heddle
