#include "serving/workers/growing_texts.hpp"

#include <cmath>
#include <utility>

namespace heddle {

double GrowingTexts::score(double log_probability, std::size_t length) const {
  return log_probability / std::pow(static_cast<double>(length), length_penalty_);
}

void GrowingTexts::extended(SearchStep const& step) {
  using Fate = SearchStep::Fate;
  Text& text = texts_[step.number];
  std::vector<Tokens> next;
  double best_live = 0;
  for (SearchStep::Extension const& extension : step.extensions) {
    Tokens tokens = text.live.at(extension.parent);
    double const own = score(extension.log_probability, tokens.size() + 1);
    if (extension.fate == Fate::finished && (text.finished.empty() || own > text.finished.front().score)) {
      text.finished = {{std::move(tokens), own}};
    } else if (extension.fate == Fate::live) {
      best_live = next.empty() ? own : best_live;
      next.push_back(std::move(tokens));
      next.back().push_back(extension.token);
    }
  }
  text.live = std::move(next);
  bool const ended = !text.finished.empty() && (text.live.empty() || text.finished.front().score >= best_live);
  if (ended) {
    grow_(step.number, text.finished.front().tokens);
  } else if (!text.live.empty()) {
    grow_(step.number, text.live.front());
  }
}

}  // namespace heddle
