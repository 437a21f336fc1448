#include "report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <heddle/core/base/error.hpp>
#include <map>
#include <utility>

#include "inspection/dataset_view.hpp"
#include "inspection/model/neighbours.hpp"
#include "inspection/page/page.hpp"
#include "inspection/run/parameters.hpp"
#include "inspection/run/run_view.hpp"
#include "run/configuration/registration.hpp"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using Notes = std::vector<std::string>;

constexpr std::size_t example_pairs = 2;
constexpr std::int64_t translated_pairs = 8;

/// A dataset of the run, and the corpus whose tag its sources have.
struct RunData {
  Dataset dataset;
  CorpusConfig corpus;

  /// Sentences of the dataset as the model reads them.
  std::vector<SentenceText> tagged(std::vector<SentenceText> sentences) const {
    for (SentenceText& sentence : sentences) {
      sentence.source = corpus.tag.empty() ? sentence.source : fmt::format("{} {}", corpus.tag, sentence.source);
    }
    return sentences;
  }
};

/// The run's validation data, else its training data, where it is still in place; the reason otherwise.
std::optional<RunData> data_of(Config const& config, Notes& notes) {
  std::vector<std::string> reasons;
  CorpusConfig const none{.name = ""};
  std::vector<std::pair<std::string, CorpusConfig>> places{
      {dataset_in(config.data.valid, "valid.h5"), config.data.validation_corpus("").value_or(none)}};
  auto const add = [&places](std::vector<std::string> const& files, CorpusConfig const& corpus) {
    for (std::string const& file : files) {
      places.emplace_back(dataset_in(file, "train.h5"), corpus);
    }
  };
  add(config.data.train, none);
  for (CorpusConfig const& corpus : config.data.corpora) {
    add(corpus.train, corpus);
  }
  for (auto const& [path, corpus] : places) {
    std::error_code problem;
    if (path.empty() || !fs::is_regular_file(path, problem)) {
      continue;
    }
    try {
      return RunData{Dataset::open(fs::path(path)), corpus};
    } catch (DataError const& error) {
      reasons.emplace_back(error.what());
    }
  }
  notes.push_back(reasons.empty() ? std::string("the run's datasets are not where its configuration has them")
                                  : fmt::format("{}", fmt::join(reasons, "; ")));
  return std::nullopt;
}

/// A translation is read by encoder-decoder models and by prefix models of pairs.
void require_targets_are_read(HtmlReportOptions const& options, Config const& config, bool reads_pairs) {
  bool const given =
      std::ranges::any_of(options.sentences, [](SentenceText const& text) { return text.target.has_value(); });
  if (given && !config.model.is_encoder_decoder() && !reads_pairs) {
    throw UsageError(
        "inspect: the model is decoder-only or encoder-only and reads text without a translation; give --source "
        "without --target, "
        "and --pairs with lines without a tab");
  }
}

/// The sides of a pack of the dataset as the model reads it; null and a note where the dataset is not of its kind.
boost::json::value pack_of(Config const& config, Task const& task, RunData const& data, bool prefixes, Notes& notes) {
  try {
    auto const samples =
        samples_for(config, task, data.dataset, {.training = false, .prefixes = prefixes, .corpus = data.corpus});
    return pack_of_samples(*samples, data.dataset, config.model.max_length);
  } catch (Error const& error) {
    notes.push_back(fmt::format("no pack is shown: {}", error.what()));
    return nullptr;
  }
}

/// Whether the page has samples of the first run's validation at this step.
bool has_samples(boost::json::object const& data, std::int64_t step) {
  auto const* const metrics = data.at("runs").at(0).as_object().if_contains("metrics");
  return metrics != nullptr &&
         std::ranges::any_of(metrics->at("samples").as_array(), [&](boost::json::value const& each) {
           return each.at("step").as_double() == static_cast<double>(step);
         });
}

/// Adds the run's dataset, and the model's attention and search for sentences. Without sentences given by the user, a
/// note where the model cannot be computed with, unless its plug-ins are not trusted.
void add_model(boost::json::object& data, HtmlReportOptions const& options, RunView const& run, Notes& notes) {
  std::vector<SentenceText> sentences = options.sentences;
  Config const config = *run.config();
  auto const found = data_of(config, notes);
  Dataset const* const dataset = found ? &found->dataset : nullptr;
  if (found) {
    data["datasets"] = boost::json::array{to_json(*dataset, options.examples)};
    if (sentences.empty()) {
      sentences = found->tagged(example_sentences(*dataset, example_pairs));
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
  try {
    ModelView view = ModelView::open(model, options.languages);
    bool const prefixes = view.description().needs_prefixes();
    data["pack"] = found ? pack_of(config, view.task(), *found, prefixes, notes) : nullptr;
    if (std::ranges::count(view.task().keys(), "mask_rate") > 0) {
      notes.emplace_back(
          "masks in the sentences of attention and search: the model reads those whole; \"Pack and masks\" has samples "
          "with masks");
    }
    require_targets_are_read(options, config, prefixes && !(found && dataset->has_lines()));
    data["model"] = view.to_json(sentences, options.beam_size, notes);
    if (found && !has_samples(data, run.checkpoint->state().step)) {
      data["translations"] =
          view.translations(found->tagged(first_pairs(*dataset, translated_pairs)), options.beam_size);
    }
  } catch (UntrustedPluginsError const&) {
    throw;
  } catch (Error const& error) {
    bool const languages = !(options.languages.source + options.languages.target).empty();
    if (!options.sentences.empty() || languages) {
      throw;
    }
    notes.push_back(fmt::format("the model cannot be run here: {}", error.what()));
  }
}

/// [[key, value in the first run, in the second, …], …] for each key by which any of the runs differs from the first.
boost::json::array differing_keys(std::vector<Config> const& configs) {
  std::map<std::string, std::vector<std::string>> rows;
  for (std::size_t index = 1; index < configs.size(); ++index) {
    for (ConfigDifference const& difference : differences(configs.front(), configs[index])) {
      auto& row = rows.try_emplace(difference.key, configs.size(), difference.before).first->second;
      row[index] = difference.after;
    }
  }
  boost::json::array array;
  for (auto const& [key, values] : rows) {
    boost::json::array row{key};
    for (std::string const& value : values) {
      row.emplace_back(value);
    }
    array.push_back(std::move(row));
  }
  return array;
}

/// Adds the runs to compare `run` with, and the keys by which those with a checkpoint differ, if all have one.
void add_comparison(boost::json::object& data, boost::json::array& runs, HtmlReportOptions const& options,
                    RunView const& run, Notes& notes) {
  std::vector<Config> configs;
  auto const add_config = [&configs](RunView const& each) {
    if (each.checkpoint) {
      configs.push_back(*each.config());
    }
  };
  add_config(run);
  for (std::string const& path : options.compare) {
    RunView const other = open_run(path, options.which, keys_of_norms());
    runs.push_back(to_json(other, notes));
    add_config(other);
  }
  data["differences"] = configs.size() == runs.size() ? differing_keys(configs) : boost::json::array();
}

void add_run(boost::json::object& data, HtmlReportOptions const& options, Notes& notes) {
  RunView const run = open_run(options.path, options.which, keys_of_norms());
  boost::json::array runs{to_json(run, notes)};
  if (!options.compare.empty()) {
    add_comparison(data, runs, options, run, notes);
  }
  data["runs"] = std::move(runs);
  if (!run.checkpoint) {
    return;
  }
  data["embeddings"] = neighbours_to_json(*run.checkpoint, run.checkpoint->contents().vocabulary(), options.words);
  add_model(data, options, run, notes);
}

}  // namespace

std::string html_report(HtmlReportOptions const& options) {
  boost::json::object data{{"version", HEDDLE_VERSION}, {"path", options.path}};
  Notes notes;
  if (options.datasets.empty()) {
    add_run(data, options, notes);
  } else {
    boost::json::array datasets;
    for (fs::path const& path : options.datasets) {
      datasets.push_back(to_json(Dataset::open(path), options.examples));
    }
    data["datasets"] = std::move(datasets);
  }
  data["notes"] = boost::json::value_from(notes);
  return assemble_page(fmt::format("{} - Heddle", options.path), data);
}

}  // namespace heddle
