#include "serving/workers/request_queue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace heddle {

void RequestQueue::add(std::shared_ptr<TranslationRequest const> const& request) {
  std::vector<std::string> const& lines = request->lines;
  if (size() + std::ssize(lines) > limit_) {
    throw HttpError(429, fmt::format("{} texts wait already; try again later", size()));
  }
  std::vector<std::size_t> order(lines.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t line) { return lines[line].size(); });
  std::int64_t turn = turn_;
  for (std::size_t const line : order) {
    std::int64_t const work = request->options.beam_size * (std::ssize(lines[line]) / 4 + 2);
    texts_.emplace(++turn, ServedText{request, line, work});
  }
}

std::optional<ServedText> RequestQueue::next() {
  while (!texts_.empty()) {
    auto const first = texts_.extract(texts_.begin());
    if (!first.mapped().request.expired()) {
      turn_ = first.key();
      return first.mapped();
    }
  }
  return std::nullopt;
}

void RequestQueue::drop(std::shared_ptr<TranslationRequest const> const& request) {
  std::erase_if(texts_, [&](auto const& text) { return text.second.is_of(request); });
}

}  // namespace heddle
