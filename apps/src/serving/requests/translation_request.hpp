#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "serving/requests/http_answer.hpp"
#include "serving/requests/limits.hpp"

namespace heddle {

/// The options of a request, which hold for each of its texts.
struct ServedOptions {
  std::string model = {};    ///< "": the first
  std::string adapter = {};  ///< "": none
  std::string source_language = {}, target_language = {};
  std::int64_t beam_size = 5;
  std::int64_t n_best = 1;
  std::int64_t max_length = 0;  ///< as in GenerationOptions
  double length_penalty = 1;
  bool scores = false;
  bool alignments = false;
  bool stream = false;  ///< the best translation is also sent as it grows

  /// Whether texts with these options can be computed together.
  bool same_search(ServedOptions const& other) const;
  bool operator==(ServedOptions const&) const = default;
  /// Calls visit(name in a request, value) for each option of `options`, which may be const.
  template <class Options, class Visit>
  static void for_each(Options& options, Visit const& visit) {
    visit("model", options.model);
    visit("adapter", options.adapter);
    visit("source_language", options.source_language);
    visit("target_language", options.target_language);
    visit("beam_size", options.beam_size);
    visit("n_best", options.n_best);
    visit("max_length", options.max_length);
    visit("length_penalty", options.length_penalty);
    visit("scores", options.scores);
    visit("alignments", options.alignments);
    visit("stream", options.stream);
  }
};

/// Receives the results of the lines of a request.
class TranslationReceiver {
 public:
  virtual ~TranslationReceiver() = default;
  /// The best translation so far of a line, as a JSON string.
  virtual void growing(std::size_t line, std::string_view json) = 0;
  /// The result of a line, as a JSON object.
  virtual void finished(std::size_t line, std::string json) = 0;
  /// The request fails as a whole: nothing else is received for it.
  virtual void failed(HttpError const& error) = 0;
};

/// The body of POST /v1/translate. Each line of a text is translated by itself, as a line of a file is. The receiver
/// keeps the request as long as it waits for results.
struct TranslationRequest {
  ServedOptions options = {};
  std::vector<std::string> lines = {};        ///< of all texts, in order
  std::vector<std::size_t> line_counts = {};  ///< of the texts
  std::weak_ptr<TranslationReceiver> receiver = {};
};

/// Reads {"text": TEXT} or {"texts": [TEXT, …]}, with options by their names above. Throws HttpError with status 400
/// for a body that is not such JSON, with 413 where it has more or longer lines than the limits allow.
TranslationRequest parse_translation_request(std::string_view body, ServingLimits const& limits);

}  // namespace heddle
