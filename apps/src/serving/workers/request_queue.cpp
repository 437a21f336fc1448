#include "serving/workers/request_queue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace heddle {

ServedRequest::ServedRequest(TranslationRequest parsed, std::weak_ptr<TranslationReceiver> its_receiver)
    : request(std::move(parsed)),
      options(to_json(request.options)),
      receiver(std::move(its_receiver)),
      waiting(request.lines.size()) {
  std::iota(waiting.rbegin(), waiting.rend(), 0);
  std::ranges::stable_sort(waiting, {}, [&](std::size_t index) { return request.lines[index].size(); });
}

void RequestQueue::add(std::shared_ptr<ServedRequest> request) {
  if (size_ + std::ssize(request->waiting) > limit_) {
    throw HttpError(429, fmt::format("{} texts wait already; try again later", size_));
  }
  size_ += std::ssize(request->waiting);
  if (!request->waiting.empty()) {
    requests_.push_back(std::move(request));
  }
}

std::optional<ServedText> RequestQueue::next() {
  while (!requests_.empty()) {
    std::shared_ptr<ServedRequest> const request = std::move(requests_.front());
    requests_.pop_front();
    if (request->receiver.expired()) {
      drop(*request);
    }
    if (request->waiting.empty()) {
      continue;
    }
    ServedText const text{request, request->waiting.back()};
    request->waiting.pop_back();
    --size_;
    if (!request->waiting.empty()) {
      requests_.push_back(request);
    }
    return text;
  }
  return std::nullopt;
}

void RequestQueue::drop(ServedRequest& request) {
  size_ -= std::ssize(request.waiting);
  request.waiting.clear();
}

}  // namespace heddle
