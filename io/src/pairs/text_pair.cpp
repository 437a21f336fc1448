#include <algorithm>
#include <heddle/io/pairs/text_pair.hpp>
#include <heddle/io/text/text.hpp>
#include <heddle/io/tokenizers/token_words.hpp>

namespace heddle {

std::int64_t count_words(std::string_view text) {
  return std::ssize(split_words(text));
}

void TextPair::make_text(Vocabulary const& vocabulary) {
  if (!tokens) {
    return;
  }
  Sample const sample = std::move(*tokens);
  tokens.reset();
  source = vocabulary.source.decode(sample.source.tokens);
  target = vocabulary.target.decode(sample.target.tokens);
  links.clear();
  weights = sample.target.weights;
  if (sample.alignment.empty() && weights.size() < 2) {
    return;
  }
  auto const target_words = words_of(vocabulary.target, target, sample.target.tokens.size());
  if (!sample.alignment.empty()) {
    auto const source_words = words_of(vocabulary.source, source, sample.source.tokens.size());
    for (auto const& [from, to] : sample.alignment) {
      links.push_back({static_cast<std::int32_t>(source_words[static_cast<std::size_t>(from)]),
                       static_cast<std::int32_t>(target_words[static_cast<std::size_t>(to)])});
    }
    std::ranges::sort(links);
    links.erase(std::unique(links.begin(), links.end()), links.end());
  }
  if (weights.size() > 1) {  // a word has the weight of its first token
    std::vector<float> of_words(static_cast<std::size_t>(count_words(target)), 1);
    for (std::size_t token = target_words.size(); token-- > 0;) {
      of_words[static_cast<std::size_t>(target_words[token])] = weights[token];
    }
    of_words.push_back(weights.back());
    weights = std::move(of_words);
  }
}

}  // namespace heddle
