#include "inference/forbidden_words.hpp"

#include <algorithm>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/io/text/text.hpp>
#include <unordered_map>

namespace heddle {
namespace {

using Tokens = std::vector<std::int32_t>;
using Ids = std::unordered_map<std::string, std::int32_t>;

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

}  // namespace

std::vector<Tokens> spellings(std::string const& word, Tokenizer const& tokenizer) {
  return spellings(word, tokenizer, piece_ids(tokenizer));
}

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

}  // namespace heddle
