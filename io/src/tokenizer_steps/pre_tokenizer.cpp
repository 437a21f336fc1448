#include "tokenizer_steps/pre_tokenizer.hpp"

#include <fmt/format.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <heddle/io/text/text.hpp>

#include "tokenizer_steps/characters.hpp"
#include "tokenizer_steps/json_members.hpp"
#include "tokenizer_steps/text_splitter.hpp"

namespace heddle {
namespace {

namespace json = boost::json;
using Word = PreTokenizer::Word;
using Parts = std::vector<TextSplitter::Part>;

/// The letters of words (\w of Rust's expressions).
constexpr std::string_view word_letters = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control})";

/// The words of GPT-2 (Radford et al. 2019).
constexpr char const* gpt2_words = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

using Behavior = PreTokenizer::SplitBehavior;

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
      words.push_back({behavior == Behavior::removed && part.match ? "" : std::string(part.text), at_start});
    }
    at_start = at_start && part.text.empty();
    match_before = part.match;
  }
  std::ranges::copy_if(words, std::back_inserter(into), [](Word const& word) { return !word.text.empty(); });
}

bool is_bert_punctuation(char32_t letter) {
  constexpr std::u32string_view ascii = U"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
  return letter < 0x80 ? ascii.find(letter) != ascii.npos : (U_MASK(category_of(letter)) & U_GC_P_MASK) != 0;
}

/// Words between white space, where letters that are `alone` are words, too.
auto white_space_step(bool (*alone)(char32_t)) {
  return [alone](Word const& word, double, std::vector<Word>& into) {
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
      bool const space = is_white_space(letter);
      bool const whole = !space && alone(letter);
      if (space || whole) {
        end_word();
      }
      if (!space) {
        append_utf8(text, letter);
      }
      if (whole) {
        end_word();
      }
    }
    end_word();
  };
}

/// SentencePiece's words: a space is a symbol that begins one.
auto metaspace_step(json::object const& options) {
  std::string const symbol = json_string(options.at("replacement"));
  bool const prefix = json_flag(options, "add_prefix_space", true);
  std::string const when = json_text(options, "prepend_scheme", prefix ? "always" : "never");
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

void PreTokenizer::add_split(std::string const& pattern, bool literal, SplitBehavior behavior, bool invert) {
  require_patterns(++patterns_);
  steps_.emplace_back(
      [=, splitter = TextSplitter(pattern, literal)](Word const& word, double deadline, std::vector<Word>& into) {
        Parts parts = splitter.parts(word.text, deadline);
        for (TextSplitter::Part& part : parts) {
          part.match = part.match != invert;
        }
        add_words(parts, behavior, word.at_start, into);
      });
}

void PreTokenizer::add(json::value const& options) {
  json::object const& given = options.as_object();
  std::string const type = json_string(given.at("type"));
  if (type == "Sequence") {
    for (json::value const& step : given.at("pretokenizers").as_array()) {
      add(step);
    }
  } else if (of_bytes_) {  // a second step for characters that stand for bytes
    refuse_option("pre_tokenizer", options);
  } else if (type == "ByteLevel") {
    of_bytes_ = true;
    if (json_flag(given, "add_prefix_space", true)) {
      steps_.emplace_back([](Word const& word, double, std::vector<Word>& into) {
        into.push_back({word.text.starts_with(' ') ? word.text : " " + word.text, word.at_start});
      });
    }
    if (json_flag(given, "use_regex", true)) {
      add_split(gpt2_words, false, Behavior::isolated);
    }
  } else if (type == "Metaspace") {
    steps_.emplace_back(metaspace_step(given));
  } else if (type == "WhitespaceSplit") {
    steps_.emplace_back(white_space_step([](char32_t) { return false; }));
  } else if (type == "BertPreTokenizer") {
    steps_.emplace_back(white_space_step(is_bert_punctuation));
  } else if (type == "Whitespace") {
    add_split(fmt::format(R"([{0}]+|[^\p{{White_Space}}{0}]+)", word_letters), false, Behavior::removed, true);
  } else if (type == "Split") {
    json::object const& pattern = given.at("pattern").as_object();
    bool const literal = pattern.contains("String");
    add_split(json_string(pattern.at(literal ? "String" : "Regex")), literal, behavior_of(given),
              json_flag(given, "invert"));
  } else if (type == "Digits") {
    bool const each = json_flag(given, "individual_digits");
    add_split(R"(\p{N})", false, each ? Behavior::isolated : Behavior::contiguous);
  } else if (type == "Punctuation") {
    add_split(R"([!-/:-@\[-`{-~\p{P}])", false, behavior_of(given, "Isolated"));
  } else if (type == "CharDelimiterSplit") {
    add_split(json_string(given.at("delimiter")), true, Behavior::removed);
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
