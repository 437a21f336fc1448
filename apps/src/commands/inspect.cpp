#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/parse_number.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/dataset.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/model.hpp>
#include <iostream>
#include <iterator>

#include "command_line/options.hpp"
#include "commands/commands.hpp"
#include "inspection/dataset_view.hpp"
#include "inspection/report.hpp"
#include "inspection/run/parameters.hpp"
#include "inspection/run/run_view.hpp"
#include "inspection/run/step_samples.hpp"
#include "run/directory/run_progress.hpp"
#include "run/metrics/metrics.hpp"
#include "run/report/run_text.hpp"

namespace heddle {
namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;

struct InspectOptions {
  std::vector<std::string> paths;
  bool parameters = false;
  bool verify = false;
  std::string html;
  std::string pairs;
  std::string source;
  std::string target;
  std::string step;
  HtmlReportOptions page;
};

CommandSyntax inspect_syntax(InspectOptions& options) {
  CommandSyntax syntax;
  syntax.name = "inspect";
  syntax.usage = "PATH [RUN...] [--parameters] [--samples N] [--verify] [--step N[:SAMPLE]] [--html PAGE [options]]";
  syntax.summary = R"(Shows the content of a dataset (a .h5 file, or the directory `heddle prepare` wrote) or of a
checkpoint (a run's directory, its checkpoints directory, or one checkpoint's) as text, after checking
it. With --html it draws them, and a run's curves, in one page for a browser; further runs are compared with
the first.)";
  syntax.options.add_options()  //
      ("path", po::value(&options.paths)->value_name("PATH")->required()->composing(),
       "a dataset, a checkpoint or a run; with --html further runs to compare with it")  //
      ("which", with_default(options.page.which, "best|last"),
       "which of a run's checkpoints")  //
      ("parameters", po::bool_switch(&options.parameters),
       "also a table of a checkpoint's parameters: name, shape, mean, standard deviation and range")  //
      ("samples", with_default(options.page.examples, "N"),
       "pairs or lines of a dataset to show, evenly spread over it")  //
      ("step", po::value(&options.step)->value_name("N[:SAMPLE]"),
       "the samples of a run's step, planned again from its data; or one of them, with its text and tokens")  //
      ("verify", po::bool_switch(&options.verify), "read a dataset's tokens to the end and compare all digests");
  syntax.options.add_options()  //
      ("html", po::value(&options.html)->value_name("PAGE"),
       "write one self-contained page for a browser instead of text; the options below are for it")                  //
      ("source", po::value(&options.source)->value_name("TEXT"), "a sentence whose attention and search are drawn")  //
      ("target", po::value(&options.target)->value_name("TEXT"),
       "its translation (default: the best one that the model finds)")  //
      ("pairs", po::value(&options.pairs)->value_name("TEXT"),
       "a file with lines SOURCE<TAB>TARGET; the first 8 are taken")  //
      ("source-language", without_default(options.page.languages.source, "NAME"),
       "the language of the sentences, if the vocabulary has tokens for languages")  //
      ("target-language", without_default(options.page.languages.target, "NAME"),
       "the language of their translations")  //
      ("word", po::value(&options.page.words)->value_name("WORD")->composing(),
       "a word whose nearest embeddings are listed; may be repeated")  //
      ("compare", po::value(&options.page.compare)->value_name("RUN")->composing(),
       "another run to compare with, as a second PATH is; may be repeated")  //
      ("beam", with_default(options.page.beam_size, "N"),
       "beam size of the search that is drawn")  //
      ("plugin", po::value(&options.page.plugins)->value_name("LIBRARY")->composing(),
       "a shared library with kernels and layers that the model needs: a checkpoint's are loaded only if they are "
       "named here; may be repeated")  //
      ("trust-plugins", po::bool_switch(&options.page.trust_plugins),
       "load the plug-ins that the checkpoint names, unchecked");
  syntax.positional.add("path", 1000);
  return syntax;
}

void inspect_dataset(fs::path const& path, InspectOptions const& options) {
  Dataset const dataset = Dataset::open(path);
  std::cout << fmt::format("dataset {}: {}", path.string(), describe(dataset, options.page.examples));
  if (options.verify) {
    dataset.verify();
    std::cout << "every byte verified\n";
  }
}

void inspect_checkpoint(RunView const& run, bool parameters) {
  Checkpoint const& checkpoint = *run.checkpoint;
  for (auto const& [label, text] : run_facts(run)) {
    std::cout << fmt::format("{}: {}\n", label, text);
  }
  Vocabulary const vocabulary = checkpoint.contents().vocabulary();
  std::cout << fmt::format("its parameters verified; `heddle checkpoint verify` reads every byte\n{}\n{}",
                           describe(vocabulary, vocabulary.digest()), checkpoint.contents().config);
  if (parameters) {
    std::cout << '\n' << parameter_table(checkpoint);
  }
}

/// "12", or "12:3": a step and a sample.
WantedSamples wanted_samples(std::string const& text) {
  std::size_t const colon = text.find(':');
  auto const step = parse_number<std::int64_t>(text.substr(0, colon));
  bool const of_one = colon != std::string::npos;
  auto const number = of_one ? parse_number<std::int64_t>(text.substr(colon + 1)) : std::nullopt;
  if (!step || (of_one && !number)) {
    throw UsageError("inspect: --step {}: expected a step, or STEP:SAMPLE, as 12:0", text);
  }
  return {*step, number};
}

void inspect_run(InspectOptions const& options) {
  RunView const run = open_run(options.page.path, options.page.which);
  if (!run.directory.empty()) {
    for (std::string const& text : describe_not_finite(read_metrics(run.directory / metrics_name))) {
      std::cout << fmt::format("{}: {}\n", (run.directory / metrics_name).string(), text);
    }
  }
  if (!run.checkpoint) {
    throw DataError("{}: the run has no checkpoint yet; with --html PAGE its curves are drawn", options.page.path);
  }
  if (!options.step.empty()) {
    std::cout << describe_samples(run, {options.page.plugins, options.page.trust_plugins},
                                  wanted_samples(options.step));
    return;
  }
  auto const entries = list_checkpoints(options.page.path, CheckpointStore::Check::sizes);
  if (entries.size() > 1) {
    std::cout << fmt::format("{} checkpoints:", readable_count(entries.size()));
    for (CheckpointEntry const& entry : entries) {
      std::cout << fmt::format(" {}{}", entry.directory.filename().string(), entry.best ? " (best)" : "");
    }
    std::cout << '\n';
  }
  std::vector<std::string> notes;
  if (auto const report = run.directory.empty() ? std::nullopt : report_of(run, notes)) {
    std::cout << fmt::format("energy of the last start: {}\n", describe_energy(*report));
  }
  inspect_checkpoint(run, options.parameters);
}

/// Sentences of the command line, then of the file.
std::vector<SentenceText> sentences_of(InspectOptions const& options) {
  constexpr std::size_t max = 8;
  std::vector<SentenceText> sentences;
  if (!options.source.empty()) {
    sentences.push_back({options.source, options.target.empty() ? std::nullopt : std::optional(options.target)});
  } else if (!options.target.empty()) {
    throw UsageError("inspect: --target needs --source: the sentence that it translates");
  }
  if (!options.pairs.empty()) {
    std::ranges::move(read_sentences(options.pairs, max - sentences.size()), std::back_inserter(sentences));
  }
  return sentences;
}

/// The given options of the page that are for a run or a model, not for datasets.
std::vector<std::string> model_options(InspectOptions const& options) {
  std::vector<std::string> given;
  auto const add = [&](char const* name, bool is_given) {
    if (is_given) {
      given.emplace_back(name);
    }
  };
  add("--source", !options.source.empty());
  add("--target", !options.target.empty());
  add("--pairs", !options.pairs.empty());
  add("--source-language", !options.page.languages.source.empty());
  add("--target-language", !options.page.languages.target.empty());
  add("--word", !options.page.words.empty());
  add("--compare", !options.page.compare.empty());
  add("a second PATH", options.paths.size() > 1);
  return given;
}

/// Refuses a page that cannot be written, before anything is computed.
void require_place(std::string const& page) {
  if (page == "-") {
    throw UsageError("inspect: --html is \"-\"; expected the name of a file, as page.html");
  }
  fs::path const directory = fs::path(page).parent_path();
  std::error_code problem;
  if (!directory.empty() && !fs::is_directory(directory, problem)) {
    throw Error("{}: cannot be written: there is no directory {}", page, directory.string());
  }
  require_replaceable(page);
}

void write_page(InspectOptions& options, std::vector<fs::path> const& datasets) {
  require_place(options.html);
  if (auto const given = model_options(options); !given.empty() && !datasets.empty()) {
    throw UsageError("inspect: {} {} for a run or a checkpoint, but {} has datasets", fmt::join(given, ", "),
                     given.size() == 1 ? "is" : "are", options.page.path);
  }
  options.page.sentences = sentences_of(options);
  options.page.compare.insert(options.page.compare.begin(), options.paths.begin() + 1, options.paths.end());
  if (options.page.beam_size < 1) {
    throw UsageError("inspect: --beam is {}; expected at least 1", options.page.beam_size);
  }
  options.page.datasets = datasets;
  std::string const page = html_report(options.page);
  replace_file(options.html, page);
  std::cout << fmt::format("wrote {} ({} KiB)\n", options.html, readable_count(std::ssize(page) / 1024 + 1));
}

void require_html(InspectOptions const& options) {
  if (options.html.empty() && !model_options(options).empty()) {
    throw UsageError("inspect: {} {} for a page; add --html PAGE", fmt::join(model_options(options), ", "),
                     model_options(options).size() == 1 ? "is" : "are");
  }
}

}  // namespace

ExitCode run_inspect(Arguments const& arguments) {
  InspectOptions options;
  parse_options(inspect_syntax(options), arguments);
  options.page.path = options.paths.front();
  if (options.page.examples < 0) {
    throw UsageError("inspect: --samples is {}; expected at least 0", options.page.examples);
  }
  require_html(options);
  std::error_code problem;
  if (!fs::exists(options.page.path, problem)) {
    throw DataError(missing_file(options.page.path));
  }
  auto const datasets = datasets_at(options.page.path);
  if (!options.html.empty()) {
    write_page(options, datasets);
    return ExitCode::done;
  }
  if (!options.step.empty() && !datasets.empty()) {
    throw UsageError("inspect: --step is for a run, but {} has datasets", options.page.path);
  }
  for (fs::path const& dataset : datasets) {
    inspect_dataset(dataset, options);
  }
  if (datasets.empty()) {
    inspect_run(options);
  }
  return ExitCode::done;
}

}  // namespace heddle
