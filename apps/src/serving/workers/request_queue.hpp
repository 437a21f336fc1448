#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serving/workers/translation_request.hpp"

namespace heddle {

/// Receives the results of the lines of a request.
class TranslationReceiver {
 public:
  virtual ~TranslationReceiver() = default;
  /// The best translation so far of a line, as a JSON string.
  virtual void growing(std::size_t line, std::string const& json) = 0;
  /// The result of a line, as a JSON object.
  virtual void finished(std::size_t line, std::string json) = 0;
  /// The request fails as a whole: nothing else is received for it.
  virtual void failed(HttpError const& error) = 0;
};

/// A request that waits or is computed.
struct ServedRequest {
  /// The lines wait, the longest first: the last steps, with few texts left, are then of short ones.
  ServedRequest(TranslationRequest request, std::weak_ptr<TranslationReceiver> receiver);

  TranslationRequest request;
  std::string options;  ///< as JSON
  std::weak_ptr<TranslationReceiver> receiver;
  std::vector<std::size_t> waiting;  ///< indices of lines, the next at the end
};

/// A line of a request, which is the text that a worker gets.
struct ServedText {
  std::shared_ptr<ServedRequest> request;
  std::size_t index = 0;

  std::string const& text() const { return request->request.lines[index]; }
};

/// The texts that wait for workers: of each request one in turn, so that a request with one text waits for a text of
/// each of the others and not for all texts of one.
class RequestQueue {
 public:
  explicit RequestQueue(std::int64_t limit) : limit_(limit) {}

  /// Throws HttpError with status 429 if the texts would be more than the limit.
  void add(std::shared_ptr<ServedRequest> request);
  /// Takes out the next text; nothing if none waits.
  std::optional<ServedText> next();
  /// Takes out what waits of a request that nobody receives.
  void drop(ServedRequest& request);
  /// The number of texts.
  std::int64_t size() const { return size_; }

 private:
  std::int64_t limit_;
  std::int64_t size_ = 0;
  std::list<std::shared_ptr<ServedRequest>> requests_;
};

}  // namespace heddle
