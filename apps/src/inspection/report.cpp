#include "report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <iostream>
#include <utility>

#include "inspection/dataset_view.hpp"
#include "inspection/model/neighbours.hpp"
#include "inspection/page/page.hpp"
#include "inspection/run/run_view.hpp"
#include "registration.hpp"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using Notes = std::vector<std::string>;

constexpr std::size_t example_pairs = 2;

/// The run's validation data, else its training data, where it is still in place; the reason otherwise.
std::optional<Dataset> data_of(Config const& config, Notes& notes) {
  std::vector<std::string> reasons;
  for (std::string const& path : {dataset_in(config.data.valid, "valid.h5"),
                                  config.data.train.empty() ? std::string() : config.data.train.front()}) {
    std::error_code problem;
    if (path.empty() || !fs::is_regular_file(path, problem)) {
      continue;
    }
    try {
      return Dataset::open(fs::path(path));
    } catch (DataError const& error) {
      reasons.emplace_back(error.what());
    }
  }
  notes.push_back(reasons.empty() ? std::string("the run's datasets are not where its configuration has them")
                                  : fmt::format("{}", fmt::join(reasons, "; ")));
  return std::nullopt;
}

/// A translation is read by models with two stacks and by prefix models of pairs.
void require_targets_are_read(HtmlReportOptions const& options, Config const& config, bool reads_pairs) {
  bool const given =
      std::ranges::any_of(options.sentences, [](SentenceText const& text) { return text.target.has_value(); });
  if (given && config.model.stacks.size() == 1 && !reads_pairs) {
    throw UsageError(
        "inspect: the model has one stack, which reads a text without a translation; give --source without --target, "
        "and --pairs with lines without a tab");
  }
}

/// Replaces the dataset's pack by the one that the model's training makes.
void add_pack(boost::json::object& data, Config const& config, Dataset const& dataset, bool prefixes, Notes& notes) {
  try {
    auto const samples = samples_for(config, dataset, {.training = false, .prefixes = prefixes});
    data["dataset"].as_object()["pack"] = pack_of_samples(*samples, dataset, config.model.max_length);
  } catch (Error const& error) {
    notes.push_back(fmt::format("the pack is not that of the model: {}", error.what()));
  }
}

/// The model; without sentences given by the user, nothing and a note where it cannot be opened, unless its plug-ins
/// are not trusted.
std::optional<ModelView> open_model(HtmlReportOptions const& options, RunView const& run, Notes& notes) {
  TrainedModelOptions model;
  model.checkpoint = run.checkpoint->directory().string();
  model.plugins = options.plugins;
  model.trust_plugins = options.trust_plugins;
  auto const report = [](std::string const& message) { std::cerr << "heddle: " << message << '\n'; };
  try {
    return ModelView::open(model, report);
  } catch (UntrustedPluginsError const&) {
    throw;
  } catch (Error const& error) {
    if (!options.sentences.empty()) {
      throw;
    }
    notes.push_back(fmt::format("the model cannot be computed with here: {}", error.what()));
    return std::nullopt;
  }
}

/// Adds the run's dataset and what the model makes of sentences.
void add_model(boost::json::object& data, HtmlReportOptions const& options, RunView const& run, Notes& notes) {
  std::vector<SentenceText> sentences = options.sentences;
  auto const dataset = data_of(*run.config, notes);
  if (dataset) {
    data["dataset"] = to_json(*dataset, options.examples);
    if (sentences.empty()) {
      sentences = example_sentences(*dataset, example_pairs);
    }
  }
  if (sentences.empty()) {
    notes.emplace_back("attention needs sentences: give --source and --target, or --pairs");
  }
  auto view = sentences.empty() ? std::nullopt : open_model(options, run, notes);
  bool const prefixes = view && view->description().needs_prefixes();
  if (dataset) {
    add_pack(data, *run.config, *dataset, prefixes, notes);
  }
  if (!view) {
    return;
  }
  require_targets_are_read(options, *run.config, prefixes && !(dataset && dataset->has_lines()));
  try {
    data["model"] = view->to_json(sentences, options.beam_size, notes);
  } catch (Error const& error) {
    if (!options.sentences.empty()) {
      throw;
    }
    notes.push_back(fmt::format("the model cannot be computed with here: {}", error.what()));
  }
}

void add_comparison(boost::json::object& data, boost::json::array& runs, HtmlReportOptions const& options,
                    RunView const& run, Notes& notes) {
  RunView const other = open_run(options.compare, options.which);
  runs.push_back(to_json(other, notes));
  boost::json::array rows;
  if (run.config && other.config) {
    for (ConfigDifference const& difference : differences(*run.config, *other.config)) {
      rows.push_back(boost::json::array{difference.key, difference.before, difference.after});
    }
  }
  data["differences"] = std::move(rows);
}

void add_run(boost::json::object& data, HtmlReportOptions const& options, Notes& notes) {
  RunView const run = open_run(options.path, options.which);
  boost::json::array runs{to_json(run, notes)};
  if (!options.compare.empty()) {
    add_comparison(data, runs, options, run, notes);
  }
  data["runs"] = std::move(runs);
  if (!run.checkpoint) {
    return;
  }
  Vocabulary const vocabulary{Tokenizer::from_model(run.checkpoint->source_model()),
                              Tokenizer::from_model(run.checkpoint->target_model())};
  data["embeddings"] = neighbours_to_json(*run.checkpoint, vocabulary, options.words);
  add_model(data, options, run, notes);
}

}  // namespace

boost::json::object collect_report(HtmlReportOptions const& options) {
  boost::json::object data{{"version", HEDDLE_VERSION}, {"path", options.path}};
  Notes notes;
  if (options.datasets.empty()) {
    add_run(data, options, notes);
  } else {
    boost::json::array datasets;
    for (std::string const& path : options.datasets) {
      datasets.push_back(to_json(Dataset::open(fs::path(path)), options.examples));
    }
    data["datasets"] = std::move(datasets);
  }
  data["notes"] = boost::json::value_from(notes);
  return data;
}

std::string html_report(HtmlReportOptions const& options) {
  return assemble_page(fmt::format("{} - Heddle", options.path), collect_report(options));
}

}  // namespace heddle
