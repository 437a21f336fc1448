#include "inference/token_choices.hpp"

#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/base/parse_number.hpp>
#include <heddle/io/dataset/lexicon.hpp>
#include <heddle/io/files/sha256.hpp>

#include "inference/forbidden_words.hpp"

namespace heddle {
namespace {

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
