#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "serving/http/http_answer.hpp"
#include "serving/limits.hpp"

namespace heddle {

/// The options of a request, which hold for each of its texts. Texts that agree in those of `search` are computed
/// together.
struct ServedOptions {
  /// Options of the search for translations.
  struct Search {
    std::string model = {};    ///< "": the first
    std::string adapter = {};  ///< "": none
    std::int64_t beam_size = 5;
    std::int64_t n_best = 1;
    std::int64_t max_length = 0;  ///< as in GenerationOptions
    double length_penalty = 1;
    bool stream = false;  ///< the best translation is also sent as it grows

    bool operator==(Search const&) const = default;
  };
  Search search = {};
  std::string source_language = {}, target_language = {};
  bool scores = false;
  bool alignments = false;
};

/// The body of POST /v1/translate. Each line of a text is translated by itself, as a line of a file is.
struct TranslationRequest {
  ServedOptions options = {};
  std::vector<std::string> lines = {};        ///< of all texts, in order
  std::vector<std::size_t> line_counts = {};  ///< of the texts
};

/// Reads {"text": TEXT} or {"texts": [TEXT, …]}, with options by their names above. Throws HttpError with status 400
/// for a body that is not such JSON, with 413 where it has more or longer lines than the limits allow.
TranslationRequest parse_translation_request(std::string_view body, ServingLimits const& limits);

/// The options as JSON on one line, and back.
std::string to_json(ServedOptions const& options);
ServedOptions served_options_of(std::string_view json);

}  // namespace heddle
