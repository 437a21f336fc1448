#include "tokenizer_steps/normalizer.hpp"

#include <unicode/uchar.h>

#include <algorithm>
#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/io/text/text.hpp>
#include <memory>

#include "tokenizer_steps/character_map.hpp"
#include "tokenizer_steps/characters.hpp"
#include "tokenizer_steps/json_members.hpp"
#include "tokenizer_steps/step_limits.hpp"
#include "tokenizer_steps/text_splitter.hpp"

namespace heddle {
namespace {

namespace json = boost::json;
using Step = std::function<void(std::string& text, bool& at_start)>;

/// The bytes that a text in base 64 stands for.
std::string from_base64(std::string_view text) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t bits = 0;
  unsigned count = 0;
  while (text.ends_with('=')) {
    text.remove_suffix(1);
  }
  for (char const digit : text) {
    std::size_t const value = digits.find(digit);
    if (value == digits.npos) {
      throw DataError("precompiled_charsmap is not in base 64");
    }
    bits = (bits << 6U) | static_cast<std::uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>(bits >> count & 0xffU);
    }
  }
  return bytes;
}

/// The parts of a text by a literal or an expression.
std::vector<TextSplitter::Part> parts_of(std::string_view text, std::string_view literal) {
  std::vector<TextSplitter::Part> parts;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t const found = std::min(text.find(literal, at), text.size());
    if (found > at) {
      parts.push_back({std::string(text.substr(at, found - at)), false});
    }
    if (found < text.size()) {
      parts.push_back({std::string(literal), true});
    }
    at = found + literal.size();
  }
  return parts;
}

Step replace_step(json::object const& options) {
  json::object const& pattern = options.at("pattern").as_object();
  std::string const content = replacement_text(options.at("content"));
  std::shared_ptr<TextSplitter const> splitter;
  std::string literal;
  if (json::value const* const text = json_member(pattern, "String")) {
    literal = json_string(*text);
    if (literal.empty()) {
      return [](std::string&, bool&) {};
    }
  } else {
    splitter = std::make_shared<TextSplitter>(std::vector{TextSplitter::Pattern{json_string(pattern.at("Regex"))}}, "");
  }
  return [=](std::string& text, bool& at_start) {
    if (text.empty() || (!splitter && text.find(literal) == text.npos)) {
      return;
    }
    auto const parts = splitter ? splitter->parts(text, TextSplitter::deadline_of(text)) : parts_of(text, literal);
    if (parts.front().match && !parts.front().text.empty()) {
      at_start = at_start && !content.empty() && decode_utf8(parts.front().text).size() == 1;
    }
    text.clear();
    for (TextSplitter::Part const& part : parts) {
      text += part.match ? content : part.text;
    }
  };
}

/// A step that changes each character: nothing stands for one that is removed.
template <class Change>
Step by_characters(Change change) {
  return [change](std::string& text, bool& at_start) {
    std::u32string const letters = decode_utf8(text);
    text.clear();
    for (char32_t const letter : letters) {
      std::u32string const now = change(letter);
      at_start = at_start && !(text.empty() && now.empty());
      text += encode_utf8(now);
    }
  };
}

/// The normalizer of the organisers of the conference on machine translation, as SentencePiece has it.
std::u32string nmt(char32_t letter) {
  bool const control = (letter >= 0x01 && letter <= 0x08) || letter == 0x0b || (letter >= 0x0e && letter <= 0x1f) ||
                       letter == 0x7f || letter == 0x8f || letter == 0x9f;
  constexpr std::u32string_view spaces = U"\t\n\f\r\u1680\u2028\u2029\u2581\ufeff\ufffd";
  bool const space = spaces.find(letter) != spaces.npos || (letter >= 0x200b && letter <= 0x200f);
  return control ? U"" : std::u32string(1, space ? U' ' : letter);
}

/// Removes white space at the ends of a text.
Step strip_step(bool left, bool right) {
  return [=](std::string& text, bool& at_start) {
    std::u32string letters = decode_utf8(text);
    auto const letter = std::ranges::find_if_not(letters, is_white_space);
    at_start = at_start && (!left || letter == letters.begin());
    if (left) {
      letters.erase(letters.begin(), letter);
    }
    while (right && !letters.empty() && is_white_space(letters.back())) {
      letters.pop_back();
    }
    text = encode_utf8(letters);
  };
}

}  // namespace

TextNormalizer::TextNormalizer(json::value const* options) {
  if (options != nullptr) {
    add(*options);
  }
}

void TextNormalizer::add(json::value const& options) {
  json::object const& given = options.as_object();
  std::string const type = json_string(given.at("type"));
  if (type == "Sequence") {
    for (json::value const& step : given.at("normalizers").as_array()) {
      add(step);
    }
  } else if (type == "Precompiled") {
    std::string const map = from_base64(json_string(given.at("precompiled_charsmap")));
    steps_.emplace_back([characters = std::make_shared<CharacterMap const>(map)](std::string& text, bool&) {
      text = characters->normalize(text);
    });
  } else if (type == "Replace") {
    require_patterns(patterns_ += given.at("pattern").as_object().contains("String") ? 0U : 1U);
    steps_.push_back(replace_step(given));
  } else if (type == "Prepend") {
    steps_.emplace_back([before = replacement_text(given.at("prepend"))](std::string& text, bool&) {
      text.insert(0, text.empty() ? "" : before);
    });
  } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    steps_.emplace_back([form = std::make_shared<TextSplitter const>(std::vector<TextSplitter::Pattern>(), type)](
                            std::string& text, bool&) { text = form->normalize(text); });
  } else if (type == "Nmt") {
    steps_.push_back(by_characters(nmt));
  } else if (type == "Lowercase") {
    steps_.push_back(by_characters(lowercase));
  } else if (type == "StripAccents") {
    steps_.push_back(by_characters([](char32_t letter) {
      bool const mark = (U_MASK(u_charType(static_cast<UChar32>(letter))) & U_GC_M_MASK) != 0;
      return std::u32string(mark ? 0 : 1, letter);
    }));
  } else if (type == "Strip") {
    steps_.push_back(strip_step(json_flag(given, "strip_left"), json_flag(given, "strip_right")));
  } else {
    refuse_option("normalizer", options);
  }
}

std::string TextNormalizer::operator()(std::string_view text, bool& at_start) const {
  std::string normal(text);
  for (Step const& step : steps_) {
    step(normal, at_start);
    require_growth("normalizer", text.size(), normal.size());
  }
  return normal;
}

}  // namespace heddle
