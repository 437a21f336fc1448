#include <fmt/format.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <array>
#include <heddle/core/base/error.hpp>
#include <heddle/io/text/text.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "tokenizer_steps/characters.hpp"
#include "tokenizer_steps/json_members.hpp"
#include "tokenizer_steps/text_splitter.hpp"
#include "tokenizers/json_vocabulary.hpp"

namespace heddle {
namespace {

namespace json = boost::json;

/// The general category of Unicode 8, which Hugging Face's tokenizers has for these steps; 0 (not assigned) for newer
/// characters. ICU's tables say since when a character exists, and later versions changed only the categories below.
int category_of(char32_t letter) {
  switch (letter) {
    case U'\u166d':
    case U'\U000111c9':
      return U_OTHER_PUNCTUATION;
    case U'\u1734':
      return U_NON_SPACING_MARK;
    case U'\u1885':
    case U'\u1886':
      return U_OTHER_LETTER;
    case U'\ua9bd':
      return U_COMBINING_SPACING_MARK;
    default:
      break;
  }
  constexpr std::uint8_t newest = 8;
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(letter), age);
  return age[0] > newest ? int{U_UNASSIGNED} : u_charType(static_cast<UChar32>(letter));
}

bool is_control(char32_t letter) {
  if (letter == U'\t' || letter == U'\n' || letter == U'\r') {
    return false;
  }
  int const category = category_of(letter);
  return category == U_CONTROL_CHAR || category == U_FORMAT_CHAR || category == U_PRIVATE_USE_CHAR;
}

bool is_punctuation(char32_t letter) {
  constexpr std::u32string_view ascii = U"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
  return letter < 0x80 ? ascii.find(letter) != ascii.npos : (U_MASK(category_of(letter)) & U_GC_P_MASK) != 0;
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

/// The texts in which BERT looks for words (Devlin et al. 2019, BasicTokenizer), by the options of BertNormalizer.
class BertNormalizer {
 public:
  /// Null: texts stay as they are.
  explicit BertNormalizer(json::value const* options) {
    if (options == nullptr) {
      return;
    }
    json::object const& given = options->as_object();
    if (given.at("type") != "BertNormalizer") {
      refuse_option("normalizer", *options);
    }
    cleans_ = json_flag(given, "clean_text", true);
    spaces_chinese_ = json_flag(given, "handle_chinese_chars", true);
    lowers_ = json_flag(given, "lowercase", true);
    if (json_flag(given, "strip_accents", lowers_)) {
      decomposed_ = std::make_shared<TextSplitter>(std::vector<TextSplitter::Pattern>(), "NFD");
    }
  }

  std::string operator()(std::string_view text) const {
    std::u32string letters;
    for (char32_t const letter : decode_utf8(replace_invalid_utf8(text))) {
      add_clean(letter, letters);
    }
    if (decomposed_) {
      letters = decode_utf8(decomposed_->normalize(encode_utf8(letters)));
      std::erase_if(letters, [](char32_t letter) { return category_of(letter) == U_NON_SPACING_MARK; });
    }
    return lowers_ ? lowered(letters) : encode_utf8(letters);
  }

 private:
  void add_clean(char32_t letter, std::u32string& into) const {
    constexpr char32_t replacement = U'\ufffd';
    if (cleans_ && (letter == 0 || letter == replacement || is_control(letter))) {
      return;
    }
    if (spaces_chinese_ && is_chinese(letter)) {
      into.append({U' ', letter, U' '});
    } else {
      into.push_back(cleans_ && is_white_space(letter) ? U' ' : letter);
    }
  }

  static std::string lowered(std::u32string_view letters) {
    std::string text;
    for (char32_t const letter : letters) {
      text += encode_utf8(lowercase(letter));
    }
    return text;
  }

  bool cleans_ = false;
  bool spaces_chinese_ = false;
  bool lowers_ = false;
  std::shared_ptr<TextSplitter const> decomposed_;  ///< null: accents stay
};

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept { return std::hash<std::string_view>()(text); }
};

/// WordPiece (Schuster & Nakajima 2012; Wu et al. 2016) as BERT has it: from its beginning on, each word is split into
/// the longest pieces that there are; one for which there are none, or that is too long, is unknown as a whole.
class WordPiece final : public JsonVocabulary {
 public:
  explicit WordPiece(json::object const& document)
      : WordPiece(document, document.at("model").as_object(), document.at("heddle").as_object()) {}

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> found;
    cut_out_added(text, normalizer_, found, [&](std::string_view part, bool) { encode_part(part, found); });
    return found;
  }

  std::string decode(std::span<std::int32_t const> tokens) const override {
    std::string text;
    bool first = true;
    for (std::int32_t const id : tokens) {
      Piece const& piece = pieces_[static_cast<std::size_t>(id)];
      if (!piece.special) {
        text += written(piece.bytes, std::exchange(first, false));
      }
    }
    return replace_invalid_utf8(text);
  }

  std::string piece(std::int32_t id) const override { return pieces_[static_cast<std::size_t>(id)].bytes; }

 private:
  using Ids = std::unordered_map<std::string, std::int32_t, TextHash, std::equal_to<>>;

  WordPiece(json::object const& document, json::object const& model, json::object const& special)
      : JsonVocabulary([](std::string const& text) {
          return Piece{text, true, false};
        }),
        normalizer_(BertNormalizer(json_member(document, "normalizer"))) {
    for (auto const& [key, type] : {std::pair("pre_tokenizer", "BertPreTokenizer"), {"decoder", "WordPiece"}}) {
      if (json::value const& step = document.at(key); step.at("type") != type) {
        refuse_option(key, step);
      }
    }
    json::object const& decoder = document.at("decoder").as_object();
    cleans_up_ = json_flag(decoder, "cleanup", true);
    read_limits(model);
    if (json::value const* const other = json_member(decoder, "prefix");
        other != nullptr && json_string(*other) != prefix_) {
      refuse_option("decoder.prefix", *other);
    }
    for (auto const& [text, number] : model.at("vocab").as_object()) {
      set_piece(number, std::string(text));
    }
    read_added_tokens(document, special, normalizer_);
    read_special(special);
    read_ids(json_string(model.at("unk_token")));
  }

  void read_limits(json::object const& model) {
    constexpr std::int64_t limit = 1000;  // the time for a word grows with their square
    if (json::value const* const prefix = json_member(model, "continuing_subword_prefix")) {
      prefix_ = json_string(*prefix);
    }
    if (json::value const* const letters = json_member(model, "max_input_chars_per_word")) {
      max_letters_ = letters->as_int64();
      if (max_letters_ < 1 || max_letters_ > limit) {
        refuse_option("model.max_input_chars_per_word", *letters);
      }
    }
  }

  /// Special pieces are not part of a text, except the one for unknown words.
  void read_ids(std::string const& unknown) {
    std::optional<std::int32_t> found;
    for (std::size_t index = 0; index < pieces_.size(); ++index) {
      auto const& [text, raw, is_special] = pieces_[index];
      auto const id = static_cast<std::int32_t>(index);
      if (text == unknown) {
        found = id;
      }
      if (is_special) {
        continue;
      }
      whole_.emplace(text, id);
      if (!prefix_.empty() && text.starts_with(prefix_)) {
        inner_.emplace(text.substr(prefix_.size()), id);
      }
      longest_ = std::max(longest_, text.size());
    }
    if (!found) {
      throw DataError("its unknown piece \"{}\" is missing", unknown);
    }
    unknown_ = *found;
  }

  /// Splits normalized text into words at white space and punctuation.
  void encode_part(std::string_view part, std::vector<std::int32_t>& found) const {
    std::string word;
    std::int64_t letters = 0;
    auto const end_word = [&] {
      encode_word(word, letters, found);
      word.clear();
      letters = 0;
    };
    for (char32_t const letter : decode_utf8(replace_invalid_utf8(part))) {
      bool const alone = is_punctuation(letter);
      if (alone || is_white_space(letter)) {
        end_word();
      }
      if (!is_white_space(letter)) {
        append_utf8(word, letter);
        ++letters;
      }
      if (alone) {
        end_word();
      }
    }
    end_word();
  }

  void encode_word(std::string_view word, std::int64_t letters, std::vector<std::int32_t>& found) const {
    std::size_t const before = found.size();
    bool known = letters <= max_letters_;
    for (std::size_t at = 0; at < word.size() && known;) {
      Ids const& pieces = at == 0 || prefix_.empty() ? whole_ : inner_;
      std::size_t count = std::min(word.size() - at, longest_);
      auto longest = pieces.end();
      while (count > 0 && (longest = pieces.find(word.substr(at, count))) == pieces.end()) {
        --count;
      }
      known = count > 0;
      if (known) {
        found.push_back(longest->second);
        at += count;
      }
    }
    if (!known) {
      found.resize(before);
      found.push_back(unknown_);
    }
  }

  /// A piece's part of a text, as the decoder of Hugging Face's tokenizers writes it.
  std::string written(std::string text, bool first) const {
    if (!first && !prefix_.empty() && text.starts_with(prefix_)) {
      text.erase(0, prefix_.size());
    } else if (!first) {
      text.insert(0, " ");
    }
    if (cleans_up_) {
      constexpr std::pair<std::string_view, std::string_view> shorter[] = {
          {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
          {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
      for (auto const& [from, to] : shorter) {
        for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) {
          text.replace(at, from.size(), to);
        }
      }
    }
    return text;
  }

  Normalizer normalizer_;
  std::string prefix_ = "##";
  std::int64_t max_letters_ = 100;
  bool cleans_up_ = true;
  std::int32_t unknown_ = 0;
  std::size_t longest_ = 0;  ///< bytes of a piece
  Ids whole_;                ///< by their text
  Ids inner_;                ///< of pieces with the prefix, by the text after it
};

}  // namespace

std::unique_ptr<TokenizerModel> make_word_piece(json::object const& document) {
  return std::make_unique<WordPiece>(document);
}

}  // namespace heddle
