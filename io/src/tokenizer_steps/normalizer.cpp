#include "tokenizer_steps/normalizer.hpp"

#include <openssl/evp.h>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <array>
#include <boost/algorithm/string/replace.hpp>
#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/io/text/text.hpp>
#include <iterator>
#include <memory>
#include <utility>

#include "tokenizer_steps/character_map.hpp"
#include "tokenizer_steps/characters.hpp"
#include "tokenizer_steps/json_members.hpp"
#include "tokenizer_steps/text_splitter.hpp"

namespace heddle {
namespace {

namespace json = boost::json;
using Step = std::function<void(std::string& text, bool& at_start)>;

/// The bytes that a text in base 64 stands for.
std::string from_base64(std::string const& text) {
  std::string bytes(text.size() / 4 * 3, '\0');
  int const size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<unsigned char const*>(text.data()), static_cast<int>(text.size()));
  if (size < 0) {
    throw DataError("precompiled_charsmap is not in base 64");
  }
  bytes.resize(static_cast<std::size_t>(size) - (text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0));
  return bytes;
}

Step replace_step(json::object const& options) {
  json::object const& pattern = options.at("pattern").as_object();
  std::string const content = replacement_text(options.at("content"));
  auto const begins = [content](std::string_view match) {  // whether the first character still is the first
    return match.empty() || (!content.empty() && first_character(match).size() == match.size());
  };
  if (json::value const* const literal = json_member(pattern, "String")) {
    return [=, from = json_string(*literal)](std::string& text, bool& at_start) {
      at_start = at_start && (!text.starts_with(from) || begins(from));
      boost::replace_all(text, from, content);
    };
  }
  auto const splitter = std::make_shared<TextSplitter const>(json_string(pattern.at("Regex")));
  return [=](std::string& text, bool& at_start) {
    std::string const before = std::exchange(text, "");
    for (auto const& [part, match] : splitter->parts(before, TextSplitter::deadline_of(before))) {
      at_start = at_start && (!match || part.data() != before.data() || begins(part));
      text += match ? content : part;
    }
  };
}

/// A step that changes each character: nothing stands for one that is removed.
template <class Change>
Step by_characters(Change change) {
  return [change](std::string& text, bool& at_start) {
    std::u32string changed;
    for (char32_t const letter : decode_utf8(text)) {
      std::u32string const now = change(letter);
      at_start = at_start && !(changed.empty() && now.empty());
      changed += now;
    }
    text = encode_utf8(changed);
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

/// A normal form of Unicode: "NFC", "NFD", "NFKC", "NFKD".
Step normal_form_step(std::string const& name) {
  UErrorCode code = U_ZERO_ERROR;
  auto const* const form = icu::Normalizer2::getInstance(nullptr, name.size() == 3 ? "nfc" : "nfkc",
                                                         name.ends_with('C') ? UNORM2_COMPOSE : UNORM2_DECOMPOSE, code);
  auto const check = [](UErrorCode problem) {
    if (U_FAILURE(problem)) {
      throw DataError("a text has no normal form: {}", u_errorName(problem));
    }
  };
  check(code);
  return [=](std::string& text, bool&) {
    std::string normal;
    icu::StringByteSink<std::string> sink(&normal);
    UErrorCode problem = U_ZERO_ERROR;
    form->normalizeUTF8(0, text, sink, nullptr, problem);
    check(problem);
    text = std::move(normal);
  };
}

/// A step that removes characters.
template <class Removed>
Step without(Removed removed) {
  return by_characters([removed](char32_t letter) { return std::u32string(removed(letter) ? 0 : 1, letter); });
}

bool is_control_of_bert(char32_t letter) {
  constexpr std::u32string_view spaces = U"\t\n\r";
  int const category = category_of(letter);
  return spaces.find(letter) == spaces.npos &&
         (category == U_CONTROL_CHAR || category == U_FORMAT_CHAR || category == U_PRIVATE_USE_CHAR);
}

/// The blocks of Chinese characters by Devlin et al. 2019; kana and hangul are not among them.
bool is_chinese(char32_t letter) {
  struct Block {
    char32_t first, last;
  };
  constexpr std::array blocks{Block{0x3400, 0x4dbf},   Block{0x4e00, 0x9fff},   Block{0xf900, 0xfaff},
                              Block{0x20000, 0x2a6df}, Block{0x2a700, 0x2b81f}, Block{0x2b920, 0x2ceaf},
                              Block{0x2f800, 0x2fa1f}};
  return std::ranges::any_of(blocks, [&](Block const& block) { return letter >= block.first && letter <= block.last; });
}

/// The texts in which BERT looks for words (Devlin et al. 2019, BasicTokenizer).
std::vector<Step> steps_of_bert(json::object const& options) {
  bool const cleans = json_flag(options, "clean_text", true);
  bool const spaces_chinese = json_flag(options, "handle_chinese_chars", true);
  bool const lowers = json_flag(options, "lowercase", true);
  std::vector<Step> steps{by_characters([=](char32_t letter) {
    constexpr char32_t replacement = U'\ufffd';
    if (cleans && (letter == 0 || letter == replacement || is_control_of_bert(letter))) {
      return std::u32string();
    }
    return spaces_chinese && is_chinese(letter) ? std::u32string{U' ', letter, U' '}
                                                : std::u32string(1, cleans && is_white_space(letter) ? U' ' : letter);
  })};
  if (json_flag(options, "strip_accents", lowers)) {
    steps.push_back(normal_form_step("NFD"));
    steps.push_back(without([](char32_t letter) { return category_of(letter) == U_NON_SPACING_MARK; }));
  }
  if (lowers) {
    steps.push_back(by_characters(lowercase));
  }
  return steps;
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
    steps_.push_back(normal_form_step(type));
  } else if (type == "Nmt") {
    steps_.push_back(by_characters(nmt));
  } else if (type == "Lowercase") {
    steps_.push_back(by_characters(lowercase));
  } else if (type == "StripAccents") {
    steps_.push_back(
        without([](char32_t letter) { return (U_MASK(u_charType(static_cast<UChar32>(letter))) & U_GC_M_MASK) != 0; }));
  } else if (type == "BertNormalizer") {
    std::ranges::move(steps_of_bert(given), std::back_inserter(steps_));
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
