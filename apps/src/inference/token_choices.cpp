#include "inference/token_choices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/parse_number.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/io/dataset/lexicon.hpp>
#include <heddle/io/files/sha256.hpp>
#include <heddle/io/text/text.hpp>
#include <unordered_map>

namespace heddle {
namespace {

using Tokens = std::vector<std::int32_t>;
using Ids = std::unordered_map<std::string, std::int32_t>;

/// The ways in which a word's or phrase's pieces can be put together from those of the vocabulary, the tokenizer's own
/// first: a model may write a word with other pieces than the tokenizer reads it with.
std::vector<Tokens> spellings(std::string const& word, Tokenizer const& tokenizer, Ids const& ids) {
  constexpr std::size_t max_spellings = 1000;
  Tokens const own = tokenizer.encode(word);
  std::vector<Tokens> found;
  if (own.empty()) {
    return found;
  }
  found.push_back(own);
  std::string text;
  for (std::int32_t const token : own) {
    text += tokenizer.piece(token);
  }
  auto const id_of = [&](std::size_t begin, std::size_t end) {
    auto const id = ids.find(text.substr(begin, end - begin));
    return id == ids.end() ? -1 : id->second;
  };
  std::vector<bool> has_rest(text.size() + 1);  // whether pieces make the text from there on
  has_rest.back() = true;
  for (std::size_t begin = text.size(); begin-- > 0;) {
    for (std::size_t end = begin + 1; end <= text.size() && !has_rest[begin]; ++end) {
      has_rest[begin] = has_rest[end] && id_of(begin, end) >= 0;
    }
  }
  Tokens tokens;
  std::function<void(std::size_t)> const extend = [&](std::size_t begin) {
    if (begin == text.size() && tokens != own) {
      found.push_back(tokens);
    }
    for (std::size_t end = text.size(); end > begin && found.size() < max_spellings; --end) {
      if (std::int32_t const id = has_rest[end] ? id_of(begin, end) : -1; id >= 0) {
        tokens.push_back(id);
        extend(end);
        tokens.pop_back();
      }
    }
  };
  extend(0);
  return found;
}

/// Takes a number after the text's last colon off its end; none where there is no such number.
std::optional<std::int64_t> take_number(std::string& text) {
  std::size_t const colon = text.rfind(':');
  if (colon == text.npos || colon == 0) {
    return {};
  }
  auto const number = parse_number<std::int64_t>(std::string_view(text).substr(colon + 1));
  text.resize(number ? colon : text.size());
  return number;
}

Shortlist read_shortlist(std::string const& option, Vocabulary const& vocabulary) {
  std::string path = option;
  std::int64_t first = 100;
  std::int64_t best = 100;
  if (auto const last = take_number(path)) {
    auto const before = take_number(path);
    if (!before || *before < 0 || *last < 1) {
      throw UsageError(
          "--shortlist {}: expected FILE or FILE:FIRST:BEST, with a FIRST of at least 0 and a "
          "BEST of at least 1",
          option);
    }
    first = *before;
    best = *last;
  }
  return read_lexicon(path, vocabulary).shortlist(first, best, vocabulary);
}

/// The bytes of lists of tokens.
std::string bytes_of(std::vector<std::vector<std::int32_t>> const& lists) {
  std::string bytes;
  for (std::vector<std::int32_t> const& list : lists) {
    bytes += fmt::format("{}:", list.size());
    bytes.append(reinterpret_cast<char const*>(list.data()), list.size() * sizeof(std::int32_t));
  }
  return bytes;
}

}  // namespace

std::vector<Tokens> forbidden_tokens(std::string const& path, Tokenizer const& tokenizer) {
  std::vector<Tokens> forbidden;
  if (!path.empty()) {
    if (std::string const problem = file_problem(path); !problem.empty()) {  // each rank reads all of it
      throw DataError(problem + "; expected words and phrases, one a line");
    }
    Ids const ids = piece_ids(tokenizer);
    LineReader reader(path, InvalidUtf8::fail);
    for (std::string line; reader.next(line);) {
      std::ranges::move(spellings(line, tokenizer, ids), std::back_inserter(forbidden));
    }
  }
  return forbidden;
}

void apply(TokenChoices const& choices, Vocabulary const& vocabulary, GenerationOptions& options) {
  options.allow_unknown = choices.allow_unknown;
  options.forbidden = forbidden_tokens(choices.forbid, vocabulary.target);
  if (!choices.shortlist.empty()) {
    options.shortlist = std::make_shared<Shortlist const>(read_shortlist(choices.shortlist, vocabulary));
  }
}

std::string generation_digest(TrainedModel const& model, GenerationOptions const& options) {
  std::string text = model.digest();
  if (options.forbidden.empty() && !options.shortlist && !options.allow_unknown) {
    return text;
  }
  text += (options.allow_unknown ? " unknown" : "") + std::string(" forbidden ") + bytes_of(options.forbidden);
  if (options.shortlist) {
    text += " shortlist " + bytes_of({options.shortlist->always}) + bytes_of(options.shortlist->translations);
  }
  return sha256(text);
}

}  // namespace heddle
