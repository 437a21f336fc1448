#include "tokenizer_steps/pre_tokenizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <heddle/io/text/text.hpp>
#include <memory>

#include "tokenizer_steps/characters.hpp"
#include "tokenizer_steps/json_members.hpp"
#include "tokenizer_steps/step_limits.hpp"
#include "tokenizer_steps/text_splitter.hpp"

namespace heddle {
namespace {

namespace json = boost::json;
using Word = PreTokenizer::Word;
using Parts = std::vector<TextSplitter::Part>;

/// The letters of words (\w of Rust's expressions).
constexpr std::string_view word_letters = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control})";

/// The role of matches among words, by the names that tokenizer.json has.
enum class Behavior : std::uint8_t { removed, isolated, merged_with_previous, merged_with_next, contiguous };

Behavior behavior_of(json::object const& step, char const* absent = "") {
  constexpr std::array names{"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
  json::value const* const given = json_member(step, "behavior");
  auto const name = std::ranges::find(names, given == nullptr ? absent : json_string(*given));
  if (name == names.end()) {
    refuse_option("pre_tokenizer", step);
  }
  return static_cast<Behavior>(name - names.begin());
}

/// Joins the matches to the parts before or after them, or leaves them out.
void add_words(Parts const& parts, Behavior behavior, bool at_start, std::vector<Word>& into) {
  std::vector<Word> words;
  bool match_before = false;
  for (TextSplitter::Part const& part : parts) {
    bool const joins = !words.empty() && ((behavior == Behavior::merged_with_previous && part.match && !match_before) ||
                                          (behavior == Behavior::contiguous && part.match == match_before) ||
                                          (behavior == Behavior::merged_with_next && !part.match && match_before));
    if (joins) {
      words.back().text += part.text;
    } else {
      words.push_back({behavior == Behavior::removed && part.match ? "" : part.text, at_start});
    }
    at_start = at_start && part.text.empty();
    match_before = part.match;
  }
  std::ranges::copy_if(words, std::back_inserter(into), [](Word const& word) { return !word.text.empty(); });
}

auto split_step(std::string const& pattern, bool literal, Behavior behavior, bool invert = false) {
  auto const splitter = std::make_shared<TextSplitter const>(std::vector{TextSplitter::Pattern{pattern, literal}}, "");
  return [=](Word const& word, double deadline, std::vector<Word>& into) {
    Parts parts = splitter->parts(word.text, deadline);
    for (TextSplitter::Part& part : parts) {
      part.match = part.match != invert;
    }
    add_words(parts, behavior, word.at_start, into);
  };
}

/// Words between white space.
void split_at_white_space(Word const& word, double, std::vector<Word>& into) {
  std::string text;
  bool at_start = word.at_start;
  auto const end_word = [&] {
    if (!text.empty()) {
      into.push_back({text, at_start});
      text.clear();
    }
    at_start = false;
  };
  for (char32_t const letter : decode_utf8(word.text)) {
    if (is_white_space(letter)) {
      end_word();
    } else {
      append_utf8(text, letter);
    }
  }
  end_word();
}

/// SentencePiece's words: a space is a symbol that begins one.
auto metaspace_step(json::object const& options) {
  std::string const symbol = json_string(options.at("replacement"));
  json::value const* const scheme = json_member(options, "prepend_scheme");
  bool const prefix = json_flag(options, "add_prefix_space", true);
  std::string const when = scheme != nullptr ? json_string(*scheme) : prefix ? "always" : "never";
  bool const split = json_flag(options, "split", true);
  if (decode_utf8(symbol).size() != 1 || (when != "always" && when != "first" && when != "never") ||
      (!prefix && when != "never")) {
    refuse_option("pre_tokenizer", options);
  }
  return [=](Word const& word, double, std::vector<Word>& into) {
    std::string text;
    for (char const byte : word.text) {
      text += byte == ' ' ? std::string_view(symbol) : std::string_view(&byte, 1);
    }
    bool const puts = when == "always" || (when == "first" && word.at_start);
    if (puts && !text.starts_with(symbol)) {
      text.insert(0, symbol);
    }
    bool at_start = word.at_start;
    for (std::size_t begin = 0; begin < text.size();) {
      std::size_t const end = split ? std::min(text.find(symbol, begin + 1), text.size()) : text.size();
      into.push_back({text.substr(begin, end - begin), std::exchange(at_start, false)});
      begin = end;
    }
  };
}

}  // namespace

PreTokenizer::PreTokenizer(json::value const* options) {
  if (options != nullptr) {
    add(*options);
  }
}

void PreTokenizer::add(json::value const& options) {
  json::object const& given = options.as_object();
  std::string const type = json_string(given.at("type"));
  if (type == "Sequence") {
    for (json::value const& step : given.at("pretokenizers").as_array()) {
      add(step);
    }
  } else if (type == "Metaspace") {
    steps_.emplace_back(metaspace_step(given));
  } else if (type == "WhitespaceSplit") {
    steps_.emplace_back(split_at_white_space);
  } else if (type == "Whitespace") {
    steps_.emplace_back(
        split_step(fmt::format(R"([{0}]+|[^\p{{White_Space}}{0}]+)", word_letters), false, Behavior::removed, true));
  } else if (type == "Split") {
    json::object const& pattern = given.at("pattern").as_object();
    bool const literal = pattern.contains("String");
    require_patterns(++patterns_);
    steps_.emplace_back(split_step(json_string(pattern.at(literal ? "String" : "Regex")), literal, behavior_of(given),
                                   json_flag(given, "invert")));
  } else if (type == "Digits") {
    bool const each = json_flag(given, "individual_digits");
    steps_.emplace_back(split_step(R"(\p{N})", false, each ? Behavior::isolated : Behavior::contiguous));
  } else if (type == "Punctuation") {
    steps_.emplace_back(split_step(R"([!-/:-@\[-`{-~\p{P}])", false, behavior_of(given, "Isolated")));
  } else if (type == "CharDelimiterSplit") {
    steps_.emplace_back(split_step(json_string(given.at("delimiter")), true, Behavior::removed));
  } else {
    refuse_option("pre_tokenizer", options);
  }
}

std::vector<PreTokenizer::Word> PreTokenizer::split(Word part) const {
  double const deadline = TextSplitter::deadline_of(part.text);
  std::vector<Word> words;
  words.push_back(std::move(part));
  for (Step const& step : steps_) {
    std::vector<Word> finer;
    for (Word const& word : words) {
      step(word, deadline, finer);
    }
    words = std::move(finer);
  }
  return words;
}

}  // namespace heddle
