#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/dataset/prepare.hpp>
#include <heddle/io/files/replace_file.hpp>
#include <iostream>
#include <iterator>
#include <limits>
#include <numeric>

#include "command_line/options.hpp"
#include "commands.hpp"
#include "inspection/report.hpp"
#include "inspection/run/energy.hpp"
#include "inspection/run/metrics.hpp"
#include "inspection/run/run_files.hpp"
#include "inspection/run/run_view.hpp"
#include "run_directory/metrics_file.hpp"
#include "translation/trained_model.hpp"

namespace heddle {
namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;

struct InspectOptions {
  std::string path;
  std::string which = "last";
  bool parameters = false;
  bool verify = false;
  std::int64_t samples = 3;
  std::string html;
  std::string pairs;
  std::string source;
  std::string target;
  HtmlReportOptions page;
};

CommandSyntax inspect_syntax(InspectOptions& options) {
  CommandSyntax syntax;
  syntax.name = "inspect";
  syntax.usage = "PATH [--parameters] [--samples N] [--verify] [--html PAGE [options]]";
  syntax.summary =
      "Shows as text what is in a dataset (a .h5 file, or the directory `heddle prepare` wrote) or in a checkpoint (a\n"
      "run's directory, its checkpoints directory, or one checkpoint's), after checking it. With --html it draws\n"
      "them, and a run's curves, in one page for a browser.";
  syntax.options.add_options()                                                               //
      ("path", po::value(&options.path)->value_name("PATH")->required(), "what to look at")  //
      ("which", po::value(&options.which)->value_name("best|last")->default_value(options.which),
       "of a run's checkpoints")  //
      ("parameters", po::bool_switch(&options.parameters),
       "a checkpoint's parameters: name, shape and the values' mean, standard deviation and range")  //
      ("samples", po::value(&options.samples)->value_name("N")->default_value(options.samples),
       "pairs or lines of a dataset to show, evenly spread over it")  //
      ("verify", po::bool_switch(&options.verify), "read a dataset's tokens to the end and compare all digests");
  syntax.options.add_options()  //
      ("html", po::value(&options.html)->value_name("PAGE"),
       "write a page for a browser, one file that needs no others, instead of text; the options below are for it")   //
      ("source", po::value(&options.source)->value_name("TEXT"), "a sentence whose attention and search are drawn")  //
      ("target", po::value(&options.target)->value_name("TEXT"),
       "its translation; not given: the best one that the model finds")  //
      ("pairs", po::value(&options.pairs)->value_name("TEXT"),
       "a file of such sentences, SOURCE<TAB>TARGET in a line, of which the first 8 are taken")  //
      ("word", po::value(&options.page.words)->value_name("WORD")->composing(),
       "a word whose neighbours among the embeddings are listed; can be given again")                  //
      ("compare", po::value(&options.page.compare)->value_name("RUN"), "another run beside this one")  //
      ("beam", po::value(&options.page.beam_size)->value_name("N")->default_value(options.page.beam_size),
       "hypotheses kept by the search that is drawn")  //
      ("plugin", po::value(&options.page.plugins)->value_name("LIBRARY")->composing(),
       "a shared library with kernels and layers that the model needs: those that a checkpoint names are loaded only "
       "if "
       "they are named here; can be given again")  //
      ("trust-plugins", po::bool_switch(&options.page.trust_plugins),
       "load the plug-ins that the checkpoint names, unchecked");
  syntax.positional.add("path", 1);
  return syntax;
}

/// Five numbers and a histogram of ten bins up to the 99th percentile, the rest in an eleventh.
void print_lengths(char const* of, LengthCounts const& lengths) {
  std::int64_t samples = 0;
  double sum = 0;
  for (auto const& [length, number] : lengths) {
    samples += number;
    sum += static_cast<double>(length) * static_cast<double>(number);
  }
  auto const quantile = [&](double share) {
    auto left = static_cast<std::int64_t>(share * static_cast<double>(samples - 1));
    return std::ranges::find_if(lengths, [&](LengthCount const& one) { return (left -= one.samples) < 0; })->length;
  };
  std::int64_t const longest = lengths.back().length;
  std::cout << fmt::format("{}: shortest {}, median {}, mean {:.1f}, 99 % up to {}, longest {}\n", of,
                           readable_count(lengths.front().length), readable_count(quantile(0.5)),
                           sum / static_cast<double>(samples), readable_count(quantile(0.99)), readable_count(longest));
  constexpr std::int64_t bins = 10;
  std::int64_t const width = std::max<std::int64_t>(1, (quantile(0.99) + bins - 1) / bins);
  std::vector<std::int64_t> counts(bins + 1, 0);
  for (auto const& [length, number] : lengths) {
    counts[static_cast<std::size_t>(std::min(bins, (length - 1) / width))] += number;
  }
  std::int64_t const max = *std::max_element(counts.begin(), counts.end());
  for (std::int64_t bin = 0; bin <= bins && bin * width < longest; ++bin) {
    std::int64_t const inside = counts[static_cast<std::size_t>(bin)];
    std::string const range =
        bin == bins  ? fmt::format("over {}", readable_count(bins * width))
        : width == 1 ? std::to_string(bin + 1)
                     : fmt::format("{} - {}", readable_count(bin * width + 1), readable_count((bin + 1) * width));
    constexpr std::int64_t bar = 50;
    std::cout << fmt::format("  {:>13} {:>11}  {}\n", range, readable_count(inside),
                             std::string(static_cast<std::size_t>((inside * bar + max - 1) / max), '#'));
  }
}

/// `shared` says how one vocabulary serves a model with two sides.
void print_vocabulary(Vocabulary const& vocabulary, std::string const& digest, char const* shared = "joint, ") {
  auto const special = [](Tokenizer const& tokenizer) {
    std::int32_t const mask = tokenizer.special_ids().mask;
    return fmt::format("{} pieces (padding {}, unknown {}, begin {}, end {}{})", readable_count(tokenizer.size()),
                       tokenizer.pad_id(), tokenizer.unknown_id(), tokenizer.begin_id(), tokenizer.end_id(),
                       mask == SpecialIds::absent ? "" : fmt::format(", mask {}", mask));
  };
  if (vocabulary.joint()) {
    std::cout << fmt::format("vocabulary: {}{}\n", shared, special(vocabulary.source));
  } else {
    std::cout << fmt::format("vocabularies: source {}; target {}\n", special(vocabulary.source),
                             special(vocabulary.target));
  }
  std::cout << fmt::format("vocabulary digest: {}\n", digest);
}

using Decoded = std::function<std::string(std::int64_t)>;

/// Some samples, evenly spread.
void print_samples(Dataset const& dataset, std::int64_t max, char const* name, Decoded const& decoded) {
  std::int64_t const shown = std::min(max, dataset.size());
  for (std::int64_t sample = 0; sample < shown; ++sample) {
    std::int64_t const index = sample * dataset.size() / shown;
    std::cout << fmt::format("{} {}\n{}\n", name, readable_count(index), decoded(index));
  }
}

void inspect_pairs(Dataset const& dataset, std::int64_t samples) {
  print_lengths("source tokens in a sentence", dataset.lengths(SampleLength::source));
  print_lengths("target tokens in a sentence", dataset.lengths(SampleLength::target));
  print_samples(dataset, samples, "pair", [&](std::int64_t index) {
    return fmt::format("  source: {}\n  target: {}", dataset.source_tokenizer().decode(dataset.source(index)),
                       dataset.target_tokenizer().decode(dataset.target(index)));
  });
}

void inspect_lines(Dataset const& dataset, std::int64_t samples) {
  print_lengths("tokens in a line", dataset.lengths(SampleLength::line));
  print_samples(dataset, samples, "line",
                [&](std::int64_t index) { return "  " + dataset.source_tokenizer().decode(dataset.line(index)); });
}

void inspect_dataset(fs::path const& path, InspectOptions const& options) {
  Dataset const dataset = Dataset::open(path);
  std::string const tokens =
      dataset.has_lines()
          ? fmt::format("{} tokens", readable_count(dataset.tokens(SampleLength::line)))
          : fmt::format("{} source and {} target tokens", readable_count(dataset.tokens(SampleLength::source)),
                        readable_count(dataset.tokens(SampleLength::target)));
  std::cout << fmt::format("dataset {}: {} {}, {}, {} MiB\n", path.string(), readable_count(dataset.size()),
                           dataset.content(), tokens,
                           readable_decimal(static_cast<double>(fs::file_size(path)) / (1 << 20), 1));
  std::cout << fmt::format("digest: {}\n", dataset.digest());
  print_vocabulary(dataset.vocabulary(), dataset.vocabulary_digest(), dataset.has_lines() ? "" : "joint, ");
  if (dataset.has_lines()) {
    inspect_lines(dataset, options.samples);
  } else {
    inspect_pairs(dataset, options.samples);
  }
  if (options.verify) {
    dataset.verify();
    std::cout << "every byte verified\n";
  }
}

std::int64_t elements(TensorInfo const& tensor) {
  return Shape(tensor.shape).size();
}

/// Mean, deviation and extremes of numbers that come in parts (Chan et al. 1983).
struct Moments {
  double count = 0;
  double mean = 0;
  double squares = 0;  ///< of the differences from the mean
  float min = std::numeric_limits<float>::infinity();
  float max = -std::numeric_limits<float>::infinity();

  void add(std::vector<float> const& values) {
    double const more = static_cast<double>(values.size());
    double const own_mean = std::accumulate(values.begin(), values.end(), 0.0) / more;
    double own_squares = 0;
    for (float const value : values) {
      own_squares += (static_cast<double>(value) - own_mean) * (static_cast<double>(value) - own_mean);
      min = std::min(min, value);
      max = std::max(max, value);
    }
    double const apart = own_mean - mean;
    squares += own_squares + apart * apart * count * more / (count + more);
    mean += apart * more / (count + more);
    count += more;
  }
};

void print_parameters(Checkpoint const& checkpoint) {
  std::cout << fmt::format("\n{:<48} {:<18} {:>11} {:>11} {:>11} {:>11}\n", "parameter", "shape", "mean", "deviation",
                           "min", "max");
  for (TensorInfo const& tensor : checkpoint.tensors()) {
    if (tensor.elements() == 0) {
      continue;
    }
    Moments moments;
    for (TensorSlice const& slab : slabs_of(tensor)) {
      moments.add(checkpoint.read(slab));
    }
    std::cout << fmt::format("{:<48} {:<18} {:>11.4g} {:>11.4g} {:>11.4g} {:>11.4g}\n", tensor.name,
                             Shape(tensor.shape).to_string(), moments.mean, std::sqrt(moments.squares / moments.count),
                             moments.min, moments.max);
  }
}

void inspect_checkpoint(Checkpoint const& checkpoint, bool parameters) {
  TrainingState const& state = checkpoint.state();
  std::int64_t total = 0;
  for (TensorInfo const& tensor : checkpoint.tensors()) {
    total += elements(tensor);
  }
  std::cout << fmt::format("checkpoint {}: every byte verified\n", checkpoint.directory().string());
  std::cout << fmt::format("step {}; next: epoch {}, window {}, sample {}; {} tokens seen in {} of training; seed {}\n",
                           readable_count(state.step), state.epoch, state.position >> 32,
                           readable_count(state.position & 0xFFFF'FFFF), readable_count(state.tokens),
                           readable_duration(state.seconds), state.seed);
  if (state.best_step > 0) {
    std::cout << fmt::format("best validation loss {:.4f}, at step {}; {} validations since without a better one\n",
                             state.best_valid_loss, readable_count(state.best_step),
                             readable_count(state.validations_without_improvement));
  }
  std::cout << fmt::format("{} parameters in {} tensors\n", readable_count(total),
                           readable_count(checkpoint.tensors().size()));
  if (!checkpoint.instruction_set().empty()) {
    std::cout << fmt::format("computed with the instructions {}\n", checkpoint.instruction_set());
  }
  Vocabulary const vocabulary{Tokenizer::from_model(checkpoint.source_model()),
                              Tokenizer::from_model(checkpoint.target_model())};
  print_vocabulary(vocabulary, vocabulary.digest());
  std::cout << "\n" << checkpoint.config();
  if (parameters) {
    print_parameters(checkpoint);
  }
}

/// The file itself, or the datasets that `heddle prepare` wrote to a directory.
std::vector<fs::path> datasets_at(fs::path const& path) {
  std::vector<fs::path> found;
  if (!fs::is_directory(path)) {
    return {path};
  }
  for (auto const& entry : fs::directory_iterator(path)) {
    std::string const name = entry.path().filename().string();
    if (is_training_file(name) || name == "valid.h5") {
      found.push_back(entry.path());
    }
  }
  std::ranges::sort(found);
  return found;
}

/// The numbers of the run that the path lies in that are not finite somewhere.
void print_not_finite(fs::path const& path) {
  fs::path const directory = run_directory_of(path);
  std::error_code problem;
  if (!directory.empty() && fs::is_regular_file(directory / metrics_name, problem)) {
    for (std::string const& text : describe_not_finite(read_metrics(directory / metrics_name))) {
      std::cout << fmt::format("{}: {}\n", (directory / metrics_name).string(), text);
    }
  }
}

/// The energy of the run that the path lies in, where it has a report.
void print_energy(fs::path const& path) {
  std::vector<std::string> notes;
  fs::path const directory = run_directory_of(path);
  auto report = directory.empty() ? std::nullopt : read_run_file(directory / "report.json", "", notes);
  if (report) {
    add_slurm_energy(*report);
    std::cout << fmt::format("energy of the last start: {}\n", describe_energy(*report));
  }
}

void inspect_checkpoints(InspectOptions const& options) {
  auto const report = [](std::string const& message) { std::cerr << "heddle: " << message << '\n'; };
  TrainedModelOptions chosen;
  chosen.checkpoint = options.path;
  chosen.which = options.which;
  auto const entries = list_checkpoints(options.path, CheckpointStore::Check::sizes);
  print_not_finite(options.path);
  if (entries.empty() && !run_directory_of(options.path).empty()) {
    throw DataError(
        fmt::format("{}: the run has no checkpoint yet; with --html PAGE its curves are drawn", options.path));
  }
  if (entries.empty()) {
    throw DataError(
        fmt::format("{}: holds neither datasets nor checkpoints; expected a directory that `heddle prepare` "
                    "or `heddle train` wrote",
                    options.path));
  }
  auto const opened = open_checkpoints(chosen, report);
  if (entries.size() > 1) {
    std::cout << fmt::format("{} checkpoints:", readable_count(entries.size()));
    for (CheckpointEntry const& entry : entries) {
      std::cout << fmt::format(" {}{}", entry.directory.filename().string(), entry.best ? " (best)" : "");
    }
    std::cout << '\n';
  }
  print_energy(options.path);
  inspect_checkpoint(opened.front(), options.parameters);
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
  add("--word", !options.page.words.empty());
  add("--compare", !options.page.compare.empty());
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
    throw Error(fmt::format("{}: cannot be written: there is no directory {}", page, directory.string()));
  }
}

void write_page(InspectOptions& options, std::vector<fs::path> const& datasets) {
  require_place(options.html);
  if (auto const given = model_options(options); !given.empty() && !datasets.empty()) {
    throw UsageError(fmt::format("inspect: {} {} for a run or a checkpoint, but {} has datasets",
                                 fmt::join(given, ", "), given.size() == 1 ? "is" : "are", options.path));
  }
  options.page.path = options.path;
  options.page.which = options.which;
  options.page.examples = options.samples;
  options.page.sentences = sentences_of(options);
  if (options.page.beam_size < 1) {
    throw UsageError(fmt::format("inspect: --beam is {}; expected at least 1", options.page.beam_size));
  }
  for (fs::path const& dataset : datasets) {
    options.page.datasets.push_back(dataset.string());
  }
  std::string const page = html_report(options.page);
  replace_file(options.html, page);
  std::cout << fmt::format("wrote {} ({} KiB)\n", options.html, readable_count(std::ssize(page) / 1024 + 1));
}

void require_html(InspectOptions const& options) {
  if (options.html.empty() && !model_options(options).empty()) {
    throw UsageError("inspect: --source, --target, --pairs, --word and --compare are for a page; add --html PAGE");
  }
}

}  // namespace

int run_inspect(Arguments const& arguments) {
  InspectOptions options;
  if (!parse_options(inspect_syntax(options), arguments)) {
    return static_cast<int>(ExitCode::done);
  }
  if (options.which != "best" && options.which != "last") {
    throw UsageError(fmt::format("inspect: --which is \"{}\"; expected best or last", options.which));
  }
  if (options.samples < 0) {
    throw UsageError(fmt::format("inspect: --samples is {}; expected at least 0", options.samples));
  }
  require_html(options);
  std::error_code problem;
  if (!fs::exists(options.path, problem)) {
    throw DataError(fmt::format("{}: there is no such file or directory{}", options.path, relative_to(options.path)));
  }
  auto const datasets = datasets_at(options.path);
  if (!options.html.empty()) {
    write_page(options, datasets);
    return static_cast<int>(ExitCode::done);
  }
  for (fs::path const& dataset : datasets) {
    inspect_dataset(dataset, options);
  }
  if (datasets.empty()) {
    inspect_checkpoints(options);
  }
  return static_cast<int>(ExitCode::done);
}

}  // namespace heddle
