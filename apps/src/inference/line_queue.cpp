#include "line_queue.hpp"

#include <numeric>
#include <utility>

namespace heddle {

namespace {

std::size_t bytes_of(SourceLine const& line) {
  return std::accumulate(line.references.begin(), line.references.end(), line.text.size(),
                         [](std::size_t sum, std::string const& each) { return sum + each.size(); });
}

}  // namespace

void LineQueue::add(SourceLine line, EncodedLine encoded) {
  if (encoded.tokens) {
    generation_->add(line.number, *encoded.tokens, encoded.start);
  }
  bytes_ += bytes_of(line);
  bool const done = !encoded.tokens;
  lines_.push_back({{std::move(line), std::move(encoded)}, done});
}

std::vector<GeneratedLine> LineQueue::step() {
  if (!lines_.empty() && !first_is_done()) {
    for (Generated& generated : generation_->step()) {
      auto const index = static_cast<std::size_t>(generated.number - lines_.front().generated.line.number);
      lines_[index].generated.hypotheses = std::move(generated.hypotheses);
      lines_[index].done = true;
    }
  }
  std::vector<GeneratedLine> done;
  for (; first_is_done(); lines_.pop_front()) {
    bytes_ -= bytes_of(lines_.front().generated.line);
    done.push_back(std::move(lines_.front().generated));
  }
  return done;
}

}  // namespace heddle
