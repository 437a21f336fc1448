#include <algorithm>
#include <heddle/io/text/text.hpp>
#include <heddle/io/tokenizers/token_words.hpp>
#include <utility>

namespace heddle {

std::vector<std::size_t> word_ends(std::string_view text) {
  std::vector<std::size_t> ends;
  for (std::string_view const word : split_words(text)) {
    ends.push_back(static_cast<std::size_t>(word.data() - text.data()) + word.size());
  }
  return ends;
}

namespace {

/// The words of a text's first tokens. Tokenizers split at white space: the tokens up to the end of a word are those of
/// the text up to there, and those of the words between two ends are the same after any word before them.
class TokenWords {
 public:
  TokenWords(CountTokens const& count, std::string_view text, std::size_t tokens)
      : count_(count), text_(text), tokens_(tokens), ends_(word_ends(text)) {}

  std::vector<std::int64_t> find() {
    words_.reserve(tokens_);
    for (std::size_t begin = 0, end = 1; begin < ends_.size() && words_.size() < tokens_; begin = end, end *= 2) {
      end = std::min(end, ends_.size());
      divide(begin, end, end == ends_.size() ? tokens_ : std::min(count_(text_.substr(0, ends_[end - 1])), tokens_));
    }
    words_.resize(tokens_, std::max<std::int64_t>(std::ssize(ends_) - 1, 0));
    return std::move(words_);
  }

 private:
  /// Adds the tokens of the words from `begin` to `end`, which end before token `last`.
  void divide(std::size_t begin, std::size_t end, std::size_t last) {
    std::size_t const first = words_.size();
    if (last <= first) {
      return;
    }
    if (end - begin == 1) {
      words_.resize(last, static_cast<std::int64_t>(begin));
      return;
    }
    std::size_t const middle = begin + (end - begin) / 2;
    divide(begin, middle, std::min(first + tokens_between(begin, middle), last));
    divide(middle, end, last);
  }

  std::size_t tokens_between(std::size_t begin, std::size_t end) const {
    std::size_t const from = begin < 2 ? 0 : ends_[begin - 2];  // with the word before them
    std::size_t const before = begin == 0 ? 0 : count_(text_.substr(from, ends_[begin - 1] - from));
    std::size_t const all = count_(text_.substr(from, ends_[end - 1] - from));
    return all - std::min(all, before);
  }

  CountTokens const& count_;
  std::string_view text_;
  std::size_t tokens_;
  std::vector<std::size_t> ends_;
  std::vector<std::int64_t> words_;
};

}  // namespace

std::vector<std::int64_t> words_of(CountTokens const& count, std::string_view text, std::size_t tokens) {
  return TokenWords(count, text, tokens).find();
}

std::vector<std::int64_t> words_of(Tokenizer const& tokenizer, std::string_view text, std::size_t tokens) {
  return words_of([&](std::string_view part) { return tokenizer.encode(part).size(); }, text, tokens);
}

}  // namespace heddle
