#include "translation.hpp"

#include <algorithm>

namespace heddle {

using Tokens = std::vector<std::int32_t>;

EncodedLine encode_source(TrainedModel const& model, std::string const& text, std::string const& prefix) {
  Tokens tokens = model.vocabulary().source.encode(text);
  if (tokens.empty()) {
    return {};
  }
  TextFrame const& frame = model.frame();
  tokens.insert(tokens.begin(), frame.source.begin(), frame.source.end());
  auto const longest = static_cast<std::size_t>(model.longest_source());
  EncodedLine line{std::move(tokens), 0, frame.start};
  if (std::size_t const count = line.tokens->size(); count > longest) {
    line.tokens->resize(longest);
    line.cut_from = count;
  }
  line.prefix = model.vocabulary().target.encode(prefix);
  if (!line.prefix.empty()) {
    if (line.start.empty()) {
      line.start.push_back(model.vocabulary().special_ids().target.begin);
    }
    if (std::size_t const count = line.prefix.size(); line.start.size() + count > longest) {
      line.prefix.resize(longest - std::min(longest, line.start.size()));
      line.prefix_cut_from = count;
    }
    line.start.insert(line.start.end(), line.prefix.begin(), line.prefix.end());
  }
  return line;
}

EncodedLine encode_prompt(TrainedModel const& model, std::string const& text, bool end) {
  Tokens tokens = model.vocabulary().target.encode(text);
  if (end) {
    tokens.push_back(model.vocabulary().target.special_ids().end);
  }
  std::size_t const count = tokens.size();
  if (std::ssize(tokens) <= model.longest_source()) {
    return {std::move(tokens)};
  }
  tokens.erase(tokens.begin(), tokens.end() - model.config().model.max_length / 2);
  return {std::move(tokens), count};
}

namespace {

/// On one line: a vocabulary that has byte pieces can give others.
std::string on_one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

}  // namespace

std::vector<Translation> translations_of(TrainedModel const& model, GeneratedLine const& line) {
  if (!line.encoded.tokens) {
    return {{}};
  }
  std::vector<Translation> translations;
  for (Hypothesis const& hypothesis : line.hypotheses) {
    Tokens tokens = line.encoded.prefix;
    tokens.insert(tokens.end(), hypothesis.tokens.begin(), hypothesis.tokens.end());
    std::string text = on_one_line(model.vocabulary().target.decode(tokens));
    translations.push_back({std::move(text), hypothesis.score, hypothesis.log_probability, std::move(tokens)});
  }
  return translations;
}

std::string continuation_of(TrainedModel const& model, GeneratedLine const& line, bool end) {
  Tokenizer const& tokenizer = model.vocabulary().target;
  Tokens const& continuation = line.hypotheses.front().tokens;
  Tokens all = end ? Tokens() : *line.encoded.tokens;
  std::string const before = tokenizer.decode(all);
  all.insert(all.end(), continuation.begin(), continuation.end());
  std::string const text = tokenizer.decode(all);
  return on_one_line(text.starts_with(before) ? text.substr(before.size()) : tokenizer.decode(continuation));
}

}  // namespace heddle
