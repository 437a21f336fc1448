#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "inspection/model/model_view.hpp"

namespace heddle {

/// The subject of a page, and what is wanted of it.
struct HtmlReportOptions {
  std::string path;  ///< a run's directory, a checkpoint's, a dataset, or the directory of datasets
  std::vector<std::string> datasets = {};    ///< the files that `path` stands for; empty: it is no dataset
  std::string which = "last";                ///< of a run's checkpoints
  std::string compare = {};                  ///< another run's directory; empty: none
  std::vector<SentenceText> sentences = {};  ///< empty: some of the validation data
  std::vector<std::string> words = {};       ///< whose neighbours are wanted; empty: some of the vocabulary's
  std::int64_t beam_size = 4;
  std::int64_t examples = 3;  ///< samples of a dataset
  std::vector<std::string> plugins = {};
  bool trust_plugins = false;
};

/// The page's data (docs/usage.md names its sections). What is absent or unreadable is left out, and the page says so;
/// what the options ask for by name throws: DataError, ConfigError or UsageError.
boost::json::object collect_report(HtmlReportOptions const& options);

/// The page.
std::string html_report(HtmlReportOptions const& options);

}  // namespace heddle
