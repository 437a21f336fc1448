#include "translation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <span>
#include <string_view>

#include "inference/alignment.hpp"

namespace heddle {

using Tokens = std::vector<std::int32_t>;

std::string commands_for(ModelDescription const& model) {
  if (model.keys.is_encoder_decoder()) {
    return "";
  }
  if (model.no_generation_reason()) {
    return "; `heddle evaluate --text` measures such a model";
  }
  return fmt::format(
      "; `heddle generate` continues text with a decoder-only model, and `heddle evaluate --text` measures it{}",
      model.needs_prefixes() ? "; if it was trained on pairs, `heddle generate --end-prompt` translates, and "
                               "`heddle evaluate --hypotheses` measures that"
                             : "");
}

void require_continuation(ModelDescription const& model) {
  auto reason = model.no_generation_reason();
  if (reason) {
    *reason += commands_for(model);
  } else if (model.keys.is_encoder_decoder()) {
    reason = fmt::format("{} = {} has an encoder, whose input is translated: use `heddle translate`",
                         model.keys.place("stacks"), to_toml(OptionValue(model.keys.stacks)));
  }
  if (reason) {
    throw ConfigError("heddle generate needs a decoder-only model: " + *reason);
  }
}

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

Tokens joined(Tokens tokens, Tokens const& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

/// The text that tokens add to that of tokens before them; it starts with a space where a new word starts.
std::string text_after(Tokenizer const& tokenizer, Tokens const& before, Tokens const& tokens) {
  std::string const start = tokenizer.decode(before);
  std::string const text = tokenizer.decode(joined(before, tokens));
  return text.starts_with(start) ? text.substr(start.size()) : tokenizer.decode(tokens);
}

}  // namespace

std::vector<Translation> translations_of(TrainedModel const& model, GeneratedLine const& line) {
  if (!line.encoded.tokens) {
    return {{}};
  }
  Tokenizer const& tokenizer = model.vocabulary().target;
  Tokens const& prefix = line.encoded.prefix;
  bool const given = !prefix.empty() && line.encoded.prefix_cut_from == 0;
  std::vector<Translation> translations;
  for (Hypothesis const& hypothesis : line.hypotheses) {
    Translation translation{.score = hypothesis.score,
                            .log_probability = hypothesis.log_probability,
                            .tokens = joined(prefix, hypothesis.tokens)};
    if (given) {
      std::string const rest = text_after(tokenizer, prefix, hypothesis.tokens);
      bool const spaced = line.line.prefix.ends_with(' ') && rest.starts_with(' ');
      translation.text = line.line.prefix + rest.substr(spaced ? 1 : 0);
      translation.prefix_bytes = line.line.prefix.size();
      translation.prefix_tokens = prefix.size();
    } else {
      translation.text = tokenizer.decode(translation.tokens);
    }
    translation.text = on_one_line(std::move(translation.text));
    translations.push_back(std::move(translation));
  }
  return translations;
}

std::vector<Translation> continuations_of(TrainedModel const& model, GeneratedLine const& line, bool end) {
  Tokens const before = end ? Tokens() : *line.encoded.tokens;
  std::vector<Translation> continuations;
  for (Hypothesis const& hypothesis : line.hypotheses) {
    continuations.push_back({.text = on_one_line(text_after(model.vocabulary().target, before, hypothesis.tokens)),
                             .score = hypothesis.score,
                             .log_probability = hypothesis.log_probability,
                             .tokens = hypothesis.tokens});
  }
  return continuations;
}

std::vector<std::int64_t> words_of(Tokenizer const& tokenizer, Translation const& translation) {
  auto const& [text, score, log_probability, tokens, prefix_bytes, prefix_tokens] = translation;
  std::vector<std::int64_t> words = words_of(tokenizer, std::string_view(text).substr(0, prefix_bytes), prefix_tokens);
  std::vector<std::size_t> const ends = word_ends(text);
  std::string const whole = tokenizer.decode(tokens);
  for (std::size_t at = prefix_tokens; at < tokens.size(); ++at) {
    std::string const before = tokenizer.decode(std::span(tokens).first(at));
    // A part of a character, or a space at the end, may be written otherwise with the tokens after it.
    auto const same = std::ranges::mismatch(before, whole).in2 - whole.begin();
    std::size_t const begin = text.size() - std::min(text.size(), whole.size() - static_cast<std::size_t>(same));
    std::int64_t const ended = std::ranges::upper_bound(ends, begin) - ends.begin();
    words.push_back(std::min(ended, std::max<std::int64_t>(std::ssize(ends) - 1, 0)));
  }
  return words;
}

std::string join_pieces(Tokenizer const& tokenizer, std::vector<std::int32_t> const& tokens) {
  std::string text;
  for (std::int32_t const token : tokens) {
    text += (text.empty() ? "" : " ") + tokenizer.piece(token);
  }
  return on_one_line(std::move(text));
}

std::vector<std::int32_t> parse_pieces(std::string_view text,
                                       std::unordered_map<std::string, std::int32_t> const& ids) {
  Tokens tokens;
  while (!text.empty()) {
    std::string const piece(text.substr(0, text.find(' ')));
    text.remove_prefix(std::min(text.size(), piece.size() + 1));
    auto const id = ids.find(piece);
    if (id == ids.end()) {
      throw DataError("the vocabulary has no piece \"{}\"; expected pieces with one space between them", piece);
    }
    tokens.push_back(id->second);
  }
  return tokens;
}

namespace {

/// The lines with their results, in order.
std::vector<GeneratedLine> generated(TrainedModel& model, std::span<std::string const> texts,
                                     GenerationOptions const& options, ChunkGenerator::Encode encode) {
  std::vector<SourceLine> lines;
  for (std::string const& text : texts) {
    lines.push_back({text, std::ssize(lines) + 1});
  }
  return ChunkGenerator(model, options, std::move(encode)).generate(std::move(lines), [] {});
}

}  // namespace

std::vector<std::vector<Translation>> translate(TrainedModel& model, std::span<std::string const> lines,
                                                GenerationOptions const& options, Languages const& languages) {
  require_translation(model.description(), "translate", commands_for(model.description()));
  model.choose_languages(languages);
  std::vector<std::vector<Translation>> translations;
  for (GeneratedLine const &line : generated(model, lines, options, [](TrainedModel const&of, SourceLine const&each) {
         return encode_source(of, each.text);
       })) {
    translations.push_back(translations_of(model, line));
  }
  return translations;
}

std::vector<std::vector<Translation>> generate(TrainedModel& model, std::span<std::string const> prompts,
                                               GenerationOptions const& options) {
  require_continuation(model.description());
  std::vector<std::vector<Translation>> continuations;
  for (GeneratedLine const &line : generated(model, prompts, options, [](TrainedModel const&of, SourceLine const&each) {
         return encode_prompt(of, each.text, false);
       })) {
    continuations.push_back(continuations_of(model, line, false));
  }
  return continuations;
}

std::vector<std::vector<float>> embed(TrainedModel& model, std::span<std::string const> lines,
                                      Languages const& languages) {
  bool const source = model.config().model.is_encoder_decoder();
  if (source) {
    model.choose_languages(languages);
  }
  std::vector<Tokens> sequences;
  for (std::string const& line : lines) {
    EncodedLine const encoded = source ? encode_source(model, line) : encode_prompt(model, line, false);
    sequences.push_back(encoded.tokens.value_or(Tokens()));
  }
  return model.embed(sequences);
}

}  // namespace heddle
