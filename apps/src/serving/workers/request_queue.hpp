#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "serving/requests/translation_request.hpp"

namespace heddle {

/// A line of a request, which is a text for a worker.
struct ServedText {
  std::weak_ptr<TranslationRequest const> request;  ///< expired: nobody waits for the text
  std::size_t line = 0;
  std::int64_t work = 0;  ///< about its hypotheses times tokens; its tokens are not known yet

  bool is_of(std::shared_ptr<TranslationRequest const> const& other) const { return request.lock() == other; }
};

/// The texts that wait for workers: of each request one in turn, so that a request with one text waits for a text of
/// each of the others and not for all texts of one. Of a request the longest come first: the last steps, with few texts
/// left, are then of short ones.
class RequestQueue {
 public:
  explicit RequestQueue(std::int64_t limit) : limit_(limit) {}

  /// Throws HttpError with status 429 if the texts would be more than the limit.
  void add(std::shared_ptr<TranslationRequest const> const& request);
  /// Takes out the next text for which somebody waits; nothing if there is none.
  std::optional<ServedText> next();
  /// Takes out what waits of a request.
  void drop(std::shared_ptr<TranslationRequest const> const& request);
  /// The number of texts.
  std::int64_t size() const { return std::ssize(texts_); }

 private:
  std::int64_t limit_;
  std::int64_t turn_ = 0;                          ///< of the text that was taken out last
  std::multimap<std::int64_t, ServedText> texts_;  ///< by turns; those of one turn in the order in which they came
};

}  // namespace heddle
