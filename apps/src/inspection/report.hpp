#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "inspection/model/model_view.hpp"

namespace heddle {

/// The subject and the content of a page.
struct HtmlReportOptions {
  std::string path;                                  ///< a run's directory, a checkpoint's, a dataset's, or a dataset
  std::vector<std::filesystem::path> datasets = {};  ///< at `path`; empty: it has none
  std::string which = "last";                        ///< which of a run's checkpoints: best or last
  std::vector<std::string> compare = {};             ///< directories of further runs
  std::vector<SentenceText> sentences = {};          ///< empty: some of the validation data
  Languages languages = {};                          ///< of the sentences
  std::vector<std::string> words = {};               ///< whose neighbours are shown; empty: some of the vocabulary's
  std::int64_t beam_size = 4;
  std::int64_t examples = 3;  ///< samples of a dataset
  std::vector<std::string> plugins = {};
  bool trust_plugins = false;
};

/// A page for a browser (docs/reference/using-models.md names its sections). Parts that are absent or unreadable are
/// left out, and the page says so; what the options name explicitly throws: DataError, ConfigError or UsageError.
std::string html_report(HtmlReportOptions const& options);

}  // namespace heddle
