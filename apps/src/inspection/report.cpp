#include "report.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <iostream>
#include <utility>

#include "inspection/dataset_view.hpp"
#include "inspection/model/neighbours.hpp"
#include "inspection/page/page.hpp"
#include "inspection/run/run_view.hpp"

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

/// Adds what the model makes of sentences. Without sentences given by the user, a model that cannot be opened is a
/// note.
void add_model(boost::json::object& data, HtmlReportOptions const& options, RunView const& run, Notes& notes) {
  std::vector<SentenceText> sentences = options.sentences;
  if (auto const dataset = data_of(*run.config, notes)) {
    data["dataset"] = to_json(*dataset, options.examples);
    if (sentences.empty()) {
      sentences = example_sentences(*dataset, example_pairs);
    }
  }
  if (sentences.empty()) {
    notes.emplace_back("attention needs sentences: give --source and --target, or --pairs");
    return;
  }
  TrainedModelOptions model;
  model.checkpoint = run.checkpoint->directory().string();
  model.plugins = options.plugins;
  model.trust_plugins = options.trust_plugins;
  auto const report = [](std::string const& message) { std::cerr << "heddle: " << message << '\n'; };
  try {
    data["model"] = ModelView::open(model, report).to_json(sentences, options.beam_size, notes);
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
