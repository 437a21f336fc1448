#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/io/text/text.hpp>
#include <heddle/io/text/tokenizer.hpp>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "text/bounded_json.hpp"
#include "text/byte_pairs.hpp"
#include "text/text_splitter.hpp"
#include "text/tokenizer_model.hpp"

namespace heddle {
namespace {

namespace json = boost::json;

/// The words of GPT-2 (Radford et al. 2019).
constexpr char const* gpt2_words = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// A member of an object that is neither missing nor null.
json::value const* member(json::object const& object, std::string_view key) {
  json::value const* const found = object.if_contains({key.data(), key.size()});
  return found == nullptr || found->is_null() ? nullptr : found;
}

bool flag(json::object const& object, std::string_view key, bool absent = false) {
  json::value const* const found = member(object, key);
  return found == nullptr ? absent : found->as_bool();
}

std::string text_of(json::value const& value) {
  return json::value_to<std::string>(value);
}

[[noreturn]] void refuse(std::string const& key, json::value const& value) {
  throw DataError(fmt::format("{} = {} is not supported", key, json::serialize(value).substr(0, 200)));
}

/// The options of a tokenizer that say how a text is cut into words.
struct Words {
  std::vector<TextSplitter::Pattern> patterns;
  bool space_in_front = false;
  bool of_bytes = false;

  void add(json::value const& step) {
    json::object const& options = step.as_object();
    std::string const type = text_of(options.at("type"));
    if (type == "Sequence") {
      for (json::value const& one : options.at("pretokenizers").as_array()) {
        add(one);
      }
    } else if (of_bytes) {  // a second step for characters that stand for bytes
      refuse("pre_tokenizer", step);
    } else if (type == "Split" && options.at("behavior") == "Isolated" && !flag(options, "invert")) {
      json::object const& pattern = options.at("pattern").as_object();
      bool const literal = pattern.contains("String");
      patterns.push_back({text_of(pattern.at(literal ? "String" : "Regex")), literal});
    } else if (type == "Digits") {
      patterns.push_back({flag(options, "individual_digits") ? R"(\p{N})" : R"(\p{N}+)"});
    } else if (type == "ByteLevel") {
      space_in_front = flag(options, "add_prefix_space", true);
      if (space_in_front && !patterns.empty()) {  // a space in front of each word
        refuse("pre_tokenizer", step);
      }
      if (flag(options, "use_regex", true)) {
        patterns.push_back({gpt2_words});
      }
      of_bytes = true;
    } else {
      refuse("pre_tokenizer", step);
    }
  }
};

std::string normal_form(json::value const* normalizer) {
  if (normalizer == nullptr) {
    return "";
  }
  std::string const type = text_of(normalizer->at("type"));
  if (type != "Sequence") {
    return type;
  }
  json::array const& steps = normalizer->at("normalizers").as_array();
  if (steps.size() > 1) {
    refuse("normalizer", *normalizer);
  }
  return normal_form(steps.empty() ? nullptr : &steps.front());
}

/// Tokens that are found in a text before it is cut into words: the leftmost, of those that start there the longest.
class AddedTokens {
 public:
  void add(std::string text, std::int32_t id) {
    constexpr std::size_t max_bytes = 1024;
    if (text.size() > max_bytes) {
      throw DataError(fmt::format("an added token has {} bytes", text.size()));
    }
    tokens_.emplace_back(std::move(text), id);
  }

  /// After the last `add`.
  void sort() { std::ranges::sort(tokens_); }

  /// Appends the ids of the tokens in the text; calls `others` for what lies between them.
  template <class Others>
  void cut(std::string_view text, std::vector<std::int32_t>& ids, Others const& others) const {
    std::size_t done = 0;
    auto const pass = [&](std::size_t end) {
      if (end > done) {
        others(text.substr(done, end - done));
      }
    };
    for (std::size_t at = 0; at < text.size() && !tokens_.empty();) {
      Token const* const found = longest_at(text.substr(at));
      if (found == nullptr) {
        ++at;
        continue;
      }
      pass(at);
      ids.push_back(found->second);
      done = at += found->first.size();
    }
    pass(text.size());
  }

 private:
  using Token = std::pair<std::string, std::int32_t>;

  Token const* longest_at(std::string_view text) const {
    std::span<Token const> same = tokens_;  // as far as the text was read
    Token const* longest = nullptr;
    for (std::size_t at = 0; at < text.size(); ++at) {
      auto const byte_of = [&](Token const& token) {
        return at < token.first.size() ? int{static_cast<unsigned char>(token.first[at])} : -1;
      };
      auto const next = std::ranges::equal_range(same, int{static_cast<unsigned char>(text[at])}, {}, byte_of);
      same = {next.begin(), next.end()};
      if (same.empty()) {
        break;
      }
      longest = same.front().first.size() == at + 1 ? &same.front() : longest;
    }
    return longest;
  }

  std::vector<Token> tokens_;
};

class ByteLevelBpe final : public TokenizerModel {
 public:
  explicit ByteLevelBpe(json::object const& document)
      : ByteLevelBpe(document, document.at("model").as_object(), document.at("heddle").as_object()) {}

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> found;
    added_.cut(text, found, [&](std::string_view rest) {
      std::string const normal = normalizes_ ? splitter_->normalize(rest) : std::string(rest);
      added_normal_.cut(normal, found, [&](std::string_view words) { encode_words(words, found); });
    });
    return found;
  }

  std::string decode(std::span<std::int32_t const> tokens) const override {
    std::string text;
    for (std::int32_t const id : tokens) {
      Piece const& piece = pieces_[static_cast<std::size_t>(id)];
      text += piece.special ? "" : piece.bytes;
    }
    return replace_invalid_utf8(text);
  }

  std::string piece(std::int32_t id) const override {
    Piece const& piece = pieces_[static_cast<std::size_t>(id)];
    return piece.raw ? piece.bytes : in_byte_alphabet(piece.bytes);
  }

 private:
  struct Piece {
    std::string bytes;
    bool raw = false;      ///< its text is not of the bytes' alphabet, and is `bytes` itself
    bool special = false;  ///< neither read from a text nor written to one
  };

  ByteLevelBpe(json::object const& document, json::object const& model, json::object const& special)
      : ignores_merges_(flag(model, "ignore_merges")) {
    require_plain_bpe(document, model);
    read_vocabulary(model.at("vocab").as_object());
    read_added_tokens(document, special);
    read_special(special);
    read_form(special);
    read_merges(model.at("merges").as_array());
  }

  void require_plain_bpe(json::object const& document, json::object const& model) {
    for (auto const& [key, plain] :
         std::initializer_list<std::pair<char const*, json::value>>{{"type", "BPE"},
                                                                    {"dropout", 0.0},
                                                                    {"byte_fallback", false},
                                                                    {"continuing_subword_prefix", ""},
                                                                    {"end_of_word_suffix", ""}}) {
      if (json::value const* const value = member(model, key); value != nullptr && *value != plain) {
        refuse(fmt::format("model.{}", key), *value);
      }
    }
    Words words;
    if (json::value const* const steps = member(document, "pre_tokenizer")) {
      words.add(*steps);
    }
    json::value const* const decoder = member(document, "decoder");
    if (!words.of_bytes || (decoder != nullptr && decoder->at("type") != "ByteLevel")) {
      refuse(words.of_bytes ? "decoder" : "pre_tokenizer", document.at(words.of_bytes ? "decoder" : "pre_tokenizer"));
    }
    std::string const form = normal_form(member(document, "normalizer"));
    normalizes_ = !form.empty();
    space_in_front_ = words.space_in_front;
    splitter_.emplace(words.patterns, form);
  }

  void read_form(json::object const& special) {
    if (json::value const* const stored = member(special, "form")) {
      text_form = parse_text_form(json::serialize(*stored), size);
    }
  }

  /// Sets a piece's text. Throws DataError if another piece has its id.
  Piece& set_piece(json::value const& number, std::string const& text) {
    auto const id = number.as_int64();
    if (text.empty() || id < 0 || id >= max_foreign_ids) {
      throw DataError(
          fmt::format("the piece \"{}\" is empty or has the id {}; expected 0 to {}", text, id, max_foreign_ids - 1));
    }
    auto const index = static_cast<std::size_t>(id);
    pieces_.resize(std::max(pieces_.size(), index + 1));
    if (!pieces_[index].bytes.empty() && piece(static_cast<std::int32_t>(id)) != text) {
      throw DataError(fmt::format("two pieces have the id {}: \"{}\" is one of them", id, text));
    }
    auto const plain = from_byte_alphabet(text);
    return pieces_[index] = {plain.value_or(text), !plain, false};
  }

  void read_vocabulary(json::object const& vocabulary) {
    for (auto const& [text, number] : vocabulary) {
      set_piece(number, std::string(text));
    }
    std::unordered_map<std::string, std::int32_t> ids_of_bytes;
    for (std::size_t id = 0; id < pieces_.size(); ++id) {
      if (!pieces_[id].raw && !pieces_[id].bytes.empty()) {
        ids_of_bytes.emplace(pieces_[id].bytes, static_cast<std::int32_t>(id));
      }
    }
    pairs_.emplace(std::move(ids_of_bytes));
  }

  void read_added_tokens(json::object const& document, json::object const& special) {
    json::value const* const tokens = member(document, "added_tokens");
    for (json::value const& value : tokens == nullptr ? json::array() : tokens->as_array()) {
      json::object const& token = value.as_object();
      bool const normalized = normalizes_ && flag(token, "normalized");
      std::string text = text_of(token.at("content"));
      if (normalized) {
        text = splitter_->normalize(text);
      }
      Piece& piece = set_piece(token.at("id"), text);
      piece.special = flag(token, "special");
      if (piece.special || is_named(special, token.at("id"))) {
        continue;
      }
      for (char const* const key : {"single_word", "lstrip", "rstrip"}) {
        if (flag(token, key)) {
          throw DataError(fmt::format("the added token \"{}\" has {} = true, which is not supported", text, key));
        }
      }
      auto const id = static_cast<std::int32_t>(token.at("id").as_int64());
      (normalized ? added_normal_ : added_).add(std::move(text), id);
    }
    added_.sort();
    added_normal_.sort();
  }

  static bool is_named(json::object const& special, json::value const& id) {
    return std::ranges::any_of(special, [&](auto const& one) { return one.key() != "rows" && one.value() == id; });
  }

  void read_special(json::object const& special) {
    json::value const* const rows = member(special, "rows");
    std::int64_t const count = rows == nullptr ? std::ssize(pieces_) : rows->as_int64();
    if (count < std::ssize(pieces_) || count > max_foreign_ids) {
      throw DataError(fmt::format("a table of {} rows for a vocabulary of {} pieces", count, pieces_.size()));
    }
    pieces_.resize(static_cast<std::size_t>(count));
    size = static_cast<std::int32_t>(count);
    for (std::size_t id = 0; id < pieces_.size(); ++id) {
      if (pieces_[id].bytes.empty()) {
        pieces_[id] = {fmt::format("<madeupword{}>", id), true, true};
      }
    }
    for (auto const& [key, id] : {std::pair("begin", &ids.begin),
                                  {"end", &ids.end},
                                  {"unknown", &ids.unknown},
                                  {"padding", &ids.padding},
                                  {"mask", &ids.mask}}) {
      json::value const* const value = member(special, key);
      if (value != nullptr && value->as_int64() >= 0 && value->as_int64() < count) {
        *id = static_cast<std::int32_t>(value->as_int64());
        pieces_[static_cast<std::size_t>(*id)].special = true;
      } else if (value != nullptr || id == &ids.begin || id == &ids.end) {
        throw DataError(fmt::format("the id of its special piece \"{}\" is missing or not 0 to {}", key, count - 1));
      }
    }
  }

  void read_merges(json::array const& merges) {
    for (json::value const& merge : merges) {
      std::string left;
      std::string right;
      if (json::array const* const pair = merge.if_array()) {
        left = text_of(pair->at(0));
        right = text_of(pair->at(1));
      } else {
        std::string const both = text_of(merge);
        std::size_t const space = std::min(both.find(' '), both.size());
        left = both.substr(0, space);
        right = both.substr(std::min(space + 1, both.size()));
      }
      auto const left_bytes = from_byte_alphabet(left);
      auto const right_bytes = from_byte_alphabet(right);
      if (!left_bytes || !right_bytes) {
        throw DataError(fmt::format("a merge of \"{}\" and \"{}\", which are not bytes", left, right));
      }
      pairs_->add_merge(*left_bytes, *right_bytes);
      if (pieces_[static_cast<std::size_t>(*pairs_->find(*left_bytes + *right_bytes))].special) {
        throw DataError(fmt::format("\"{}\" and \"{}\" are merged to a special piece", left, right));
      }
    }
  }

  void encode_words(std::string_view text, std::vector<std::int32_t>& found) const {
    std::lock_guard const lock(mutex_);
    splitter_->split(space_in_front_ && !text.starts_with(' ') ? fmt::format(" {}", text) : std::string(text),
                     [&](std::string_view word) {
                       auto const& tokens = encode_word(std::string(word));
                       found.insert(found.end(), tokens.begin(), tokens.end());
                     });
  }

  /// The ids of a word, remembered if it is short. The result is valid until the next call.
  std::vector<std::int32_t> const& encode_word(std::string const& word) const {
    constexpr std::size_t max_words = std::size_t{1} << 16U;
    constexpr std::size_t max_bytes = 64;
    if (auto const known = known_.find(word); known != known_.end()) {
      return known->second;
    }
    std::vector<std::int32_t> tokens;
    auto const whole = ignores_merges_ ? pairs_->find(word) : std::nullopt;
    if (whole && !pieces_[static_cast<std::size_t>(*whole)].special) {
      tokens = {*whole};
    } else {
      pairs_->encode(word, tokens);
    }
    if (word.size() > max_bytes) {
      return latest_ = std::move(tokens);
    }
    if (known_.size() >= max_words) {
      known_.clear();
    }
    return known_[word] = std::move(tokens);
  }

  bool ignores_merges_;  ///< for words that are pieces
  bool normalizes_ = false;
  bool space_in_front_ = false;
  std::optional<TextSplitter> splitter_;
  std::optional<BytePairs> pairs_;
  std::vector<Piece> pieces_;
  AddedTokens added_;
  AddedTokens added_normal_;  // found in the normalised text

  mutable std::mutex mutex_;  // of what follows
  mutable std::unordered_map<std::string, std::vector<std::int32_t>> known_;
  mutable std::vector<std::int32_t> latest_;
};

}  // namespace

bool is_json(std::string_view bytes) noexcept {
  return bytes.starts_with('{');  // the tag of a field that SentencePiece's models do not have
}

std::unique_ptr<TokenizerModel> load_byte_level_bpe(std::string bytes) {
  constexpr char const* what = "this vocabulary is not a tokenizer.json that can be used";
  try {
    auto model = std::make_unique<ByteLevelBpe>(parse_bounded_json(bytes, "tokenizer.json").as_object());
    model->bytes = std::move(bytes);
    return model;
  } catch (std::bad_alloc const&) {
    throw;
  } catch (std::exception const& error) {  // Boost.JSON's, for a value of another kind or a missing member, too
    throw DataError(fmt::format("{}: {}", what, error.what()));
  }
}

}  // namespace heddle
