#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/io/text/text.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "tokenizer_steps/json_members.hpp"
#include "tokenizer_steps/text_splitter.hpp"
#include "tokenizers/byte_pairs.hpp"
#include "tokenizers/json_vocabulary.hpp"

namespace heddle {
namespace {

namespace json = boost::json;

/// The words of GPT-2 (Radford et al. 2019).
constexpr char const* gpt2_words = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// The options of a tokenizer that say how a text is split into words.
struct Words {
  std::vector<TextSplitter::Pattern> patterns;
  bool space_in_front = false;
  bool of_bytes = false;

  void add(json::value const& step) {
    json::object const& options = step.as_object();
    std::string const type = json_string(options.at("type"));
    if (type == "Sequence") {
      for (json::value const& one : options.at("pretokenizers").as_array()) {
        add(one);
      }
    } else if (of_bytes) {  // a second step for characters that stand for bytes
      refuse_option("pre_tokenizer", step);
    } else if (type == "Split" && options.at("behavior") == "Isolated" && !json_flag(options, "invert")) {
      json::object const& pattern = options.at("pattern").as_object();
      bool const literal = pattern.contains("String");
      patterns.push_back({json_string(pattern.at(literal ? "String" : "Regex")), literal});
    } else if (type == "Digits") {
      patterns.push_back({json_flag(options, "individual_digits") ? R"(\p{N})" : R"(\p{N}+)"});
    } else if (type == "ByteLevel") {
      space_in_front = json_flag(options, "add_prefix_space", true);
      if (space_in_front && !patterns.empty()) {  // a space before each word
        refuse_option("pre_tokenizer", step);
      }
      if (json_flag(options, "use_regex", true)) {
        patterns.push_back({gpt2_words});
      }
      of_bytes = true;
    } else {
      refuse_option("pre_tokenizer", step);
    }
  }
};

std::string normal_form(json::value const* normalizer) {
  if (normalizer == nullptr) {
    return "";
  }
  std::string const type = json_string(normalizer->at("type"));
  if (type != "Sequence") {
    return type;
  }
  json::array const& steps = normalizer->at("normalizers").as_array();
  if (steps.size() > 1) {
    refuse_option("normalizer", *normalizer);
  }
  return normal_form(steps.empty() ? nullptr : &steps.front());
}

class ByteLevelBpe final : public JsonVocabulary {
 public:
  explicit ByteLevelBpe(json::object const& document)
      : ByteLevelBpe(document, document.at("model").as_object(), document.at("heddle").as_object()) {}

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> found;
    cut_out_added(text, normalizes_ ? normalizer() : Normalizer(), found,
                  [&](std::string_view words, bool) { encode_words(words, found); });
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
  ByteLevelBpe(json::object const& document, json::object const& model, json::object const& special)
      : JsonVocabulary(piece_of), ignores_merges_(json_flag(model, "ignore_merges")) {
    require_plain_bpe(document, model);
    read_vocabulary(model.at("vocab").as_object());
    read_added_tokens(document, special, normalizes_ ? normalizer() : Normalizer());
    read_special(special);
    read_merges(model.at("merges").as_array());
  }

  static Piece piece_of(std::string const& text) {
    auto const plain = from_byte_alphabet(text);
    return {plain.value_or(text), !plain, false};
  }

  Normalizer normalizer() const {
    return [this](std::string_view text) { return splitter_->normalize(text); };
  }

  void require_plain_bpe(json::object const& document, json::object const& model) {
    require_plain_pairs(model);
    if (json_flag(model, "byte_fallback")) {
      refuse_option("model.byte_fallback", true);
    }
    Words words;
    if (json::value const* const steps = json_member(document, "pre_tokenizer")) {
      words.add(*steps);
    }
    json::value const* const decoder = json_member(document, "decoder");
    if (!words.of_bytes || (decoder != nullptr && decoder->at("type") != "ByteLevel")) {
      refuse_option(words.of_bytes ? "decoder" : "pre_tokenizer",
                    document.at(words.of_bytes ? "decoder" : "pre_tokenizer"));
    }
    std::string const form = normal_form(json_member(document, "normalizer"));
    normalizes_ = !form.empty();
    space_in_front_ = words.space_in_front;
    splitter_.emplace(words.patterns, form);
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

  void read_merges(json::array const& merges) {
    for (json::value const& merge : merges) {
      auto const [left, right] = merge_of(merge);
      auto const left_bytes = from_byte_alphabet(left);
      auto const right_bytes = from_byte_alphabet(right);
      if (!left_bytes || !right_bytes) {
        throw DataError("a merge of \"{}\" and \"{}\", which are not bytes", left, right);
      }
      pairs_->add_merge(*left_bytes, *right_bytes);
      if (pieces_[static_cast<std::size_t>(*pairs_->find(*left_bytes + *right_bytes))].special) {
        throw DataError("\"{}\" and \"{}\" are merged to a special piece", left, right);
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

  mutable std::mutex mutex_;  // of what follows
  mutable std::unordered_map<std::string, std::vector<std::int32_t>> known_;
  mutable std::vector<std::int32_t> latest_;
};

}  // namespace

std::unique_ptr<TokenizerModel> make_byte_level_bpe(json::object const& document) {
  return std::make_unique<ByteLevelBpe>(document);
}

}  // namespace heddle
