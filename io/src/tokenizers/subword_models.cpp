#include "tokenizers/subword_models.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <limits>
#include <mutex>
#include <optional>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "tokenizer_steps/characters.hpp"
#include "tokenizer_steps/json_members.hpp"
#include "tokenizer_steps/piece_decoder.hpp"
#include "tokenizers/prefix_tree.hpp"

namespace heddle {
namespace {

namespace json = boost::json;
using Ids = std::vector<std::int32_t>;

std::int32_t as_id(std::int64_t id) {
  return static_cast<std::int32_t>(id);
}

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept { return std::hash<std::string_view>()(text); }
};
constexpr std::int32_t none = -1;  // in place of an id
using IdsByText = std::unordered_map<std::string, std::int32_t, TextHash, std::equal_to<>>;

/// The ids of pieces by their texts, or by the bytes that these stand for.
IdsByText ids_of(json::object const& model, bool of_bytes = false) {
  IdsByText ids;
  for_each_piece(model, [&](std::string const& text, std::int64_t id) {
    if (auto key = of_bytes ? from_byte_alphabet(text) : std::optional(text)) {
      ids.emplace(std::move(*key), as_id(id));
    }
  });
  return ids;
}

/// The id of the piece for what is unknown.
std::int32_t unknown_of(IdsByText const& ids, std::string const& text) {
  auto const found = ids.find(text);
  if (found == ids.end()) {
    throw DataError("its unknown piece \"{}\" is missing", text);
  }
  return found->second;
}

/// The pieces of single bytes: in a vocabulary of bytes each byte is one, in others they are those of the forms <0x00>
/// to <0xFF>, into which unknown characters fall apart.
class BytePieces {
 public:
  /// Throws DataError where a vocabulary of bytes lacks one.
  BytePieces(IdsByText const& ids, bool of_bytes) {
    ids_.fill(none);
    for (auto const& [text, id] : ids) {
      int const byte = !of_bytes ? byte_of_piece(text) : text.size() == 1 ? static_cast<unsigned char>(text[0]) : -1;
      if (byte >= 0) {
        ids_.at(static_cast<std::size_t>(byte)) = id;
      }
    }
    if (auto const missing = std::ranges::find(ids_, none); of_bytes && missing != ids_.end()) {
      throw DataError("the vocabulary has no piece \"{}\"",
                      in_byte_alphabet(std::string(1, static_cast<char>(missing - ids_.begin()))));
    }
  }
  /// Appends the ids of a text's bytes, or none where a byte has no piece.
  bool encode(std::string_view text, Ids& ids) const {
    auto const id_of = [&](char byte) { return ids_.at(static_cast<unsigned char>(byte)); };
    if (std::ranges::any_of(text, [&](char byte) { return id_of(byte) == none; })) {
      return false;
    }
    std::ranges::transform(text, std::back_inserter(ids), id_of);
    return true;
  }

 private:
  std::array<std::int32_t, 256> ids_;
};

/// The unigram model (Kudo 2018): a word is split into the pieces whose scores have the largest sum. Sums are in double
/// precision, and of equal ones the first found counts, as in Hugging Face's tokenizers.
class Unigram final : public SubwordModel {
 public:
  Unigram(json::object const& model, IsSpecial const& is_special)
      : bytes_(ids_of(model), false), falls_back_(json_flag(model, "byte_fallback")) {
    constexpr double penalty = 10;
    constexpr std::size_t max_bytes = 1024;  // the time for a text grows with its longest piece
    double lowest = std::numeric_limits<double>::infinity();
    std::vector<std::pair<std::string, std::int32_t>> texts;
    for (json::value const& piece : model.at("vocab").as_array()) {
      auto const id = std::ssize(scores_);
      std::string text = json_string(piece.at(0));
      scores_.push_back(piece.at(1).to_number<double>());
      if (!std::isfinite(scores_.back())) {
        throw DataError("the piece {} has a score that is not a number", id);
      }
      if (text.size() > max_bytes) {
        throw DataError("a piece has {} bytes", text.size());
      }
      lowest = std::min(lowest, scores_.back());
      if (!is_special(id)) {
        texts.emplace_back(std::move(text), as_id(id));
      }
    }
    json::value const* const unknown = json_member(model, "unk_id");
    if (unknown == nullptr || unknown->as_int64() < 0 || unknown->as_int64() >= std::ssize(scores_)) {
      refuse_option("model.unk_id", unknown == nullptr ? json::value() : *unknown);
    }
    unknown_ = as_id(unknown->as_int64());
    tree_ = PrefixTree(std::move(texts));
    unknown_score_ = lowest - penalty;
  }

  void encode(std::string const& word, Ids& found) const override {
    for (Part const& part : split(word)) {
      if (part.id != none) {
        found.push_back(part.id);
      } else if (!falls_back_ || !bytes_.encode(part.text, found)) {
        found.push_back(unknown_);
      }
    }
  }

 private:
  /// A part of a word: a piece, or what lies between pieces, without an id.
  struct Part {
    std::string_view text;
    std::int32_t id;
  };

  std::vector<Part> split(std::string_view word) const {
    constexpr std::size_t nowhere = -1;
    struct Best {
      double score = 0;
      std::int32_t id = none;
      std::size_t begin = nowhere;
    };
    std::vector<Best> best(word.size() + 1);  // of the parts that end there
    for (std::size_t begin = 0; begin < word.size();) {
      std::size_t const letter = first_character(word.substr(begin)).size();
      bool known = false;
      auto const offer = [&](std::size_t length, double score, std::int32_t id) {
        Best& end = best[begin + length];
        score += best[begin].score;
        if (end.begin == nowhere || score > end.score) {
          end = {score, id, begin};
        }
      };
      tree_.for_each_prefix(word.substr(begin), [&](std::size_t length, std::int32_t id) {
        offer(length, scores_[static_cast<std::size_t>(id)], id);
        known = known || length == letter;
      });
      if (!known) {
        offer(letter, unknown_score_, none);
      }
      begin += letter;
    }
    std::vector<Part> parts;
    for (std::size_t end = word.size(); end > 0; end = best[end].begin) {
      Best const& last = best[end];
      if (last.id == none && !parts.empty() && parts.back().id == none) {
        parts.back().text = word.substr(last.begin, end - last.begin + parts.back().text.size());
      } else {
        parts.push_back({word.substr(last.begin, end - last.begin), last.id});
      }
    }
    std::ranges::reverse(parts);
    return parts;
  }

  BytePieces bytes_;
  bool falls_back_;  ///< unknown characters become bytes
  std::int32_t unknown_;
  PrefixTree tree_;
  std::vector<double> scores_;  ///< by id
  double unknown_score_;        ///< of a character that has no piece
};

/// The merges of byte-pair encoding (Sennrich et al. 2016): the pair of neighbours whose merge is first in the list of
/// merges is merged, of equal ones the leftmost, until no pair of the list is left.
class PairMerges {
 public:
  /// The next merge, by ids.
  void add(std::int32_t left, std::int32_t right, std::int32_t both) { merges_[key(left, right)] = {rank_++, both}; }

  /// Merges the ids of a word, of which there are less than 2^32.
  void apply(Ids& ids) const {
    struct Symbol {
      std::int32_t id;
      std::uint32_t before;
      std::uint32_t after;
    };
    constexpr std::int32_t merged = -1;  // into the symbol before
    std::vector<Symbol> symbols;
    symbols.reserve(ids.size());
    for (std::int32_t const id : ids) {
      auto const at = static_cast<std::uint32_t>(symbols.size());
      symbols.push_back({id, at - (at == 0 ? 0 : 1), at + 1});
    }
    using Candidate = std::tuple<std::uint32_t, std::uint32_t, std::int32_t>;  // rank, place of the left one, id
    std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
    auto const merge_at = [&](std::uint32_t at) {
      std::uint32_t const next = symbols[at].after;
      auto const found = next < symbols.size() ? merges_.find(key(symbols[at].id, symbols[next].id)) : merges_.end();
      return found == merges_.end() ? nullptr : &found->second;
    };
    auto const add = [&](std::uint32_t at) {
      if (Merge const* const merge = merge_at(at)) {
        candidates.emplace(merge->rank, at, merge->id);
      }
    };
    for (std::uint32_t at = 0; at < symbols.size(); ++at) {
      add(at);
    }
    while (!candidates.empty()) {
      auto const [rank, at, id] = candidates.top();
      candidates.pop();
      Merge const* const merge = symbols[at].id == merged ? nullptr : merge_at(at);
      if (merge == nullptr || merge->rank != rank) {
        continue;  // one of the two was merged with another
      }
      std::uint32_t const right = symbols[at].after;
      symbols[at].id = id;
      symbols[at].after = symbols[right].after;
      symbols[right].id = merged;
      if (symbols[at].after < symbols.size()) {
        symbols[symbols[at].after].before = at;
      }
      add(at);
      if (at > 0) {
        add(symbols[at].before);
      }
    }
    ids.clear();
    for (Symbol const& symbol : symbols) {
      if (symbol.id != merged) {
        ids.push_back(symbol.id);
      }
    }
  }

 private:
  struct Merge {
    std::uint32_t rank;
    std::int32_t id;
  };

  static std::uint64_t key(std::int32_t left, std::int32_t right) noexcept {
    return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32U) | static_cast<std::uint32_t>(right);
  }

  std::unordered_map<std::uint64_t, Merge> merges_;  // by both ids
  std::uint32_t rank_ = 0;                           // of the next one
};

/// Byte-pair encoding of characters, or of bytes, for which the file has characters.
class Pairs final : public SubwordModel {
 public:
  Pairs(json::object const& model, IsSpecial const& is_special, bool of_bytes)
      : of_bytes_(of_bytes),
        ids_(ids_of(model, of_bytes)),
        bytes_(ids_, of_bytes),
        falls_back_(json_flag(model, "byte_fallback")),
        fuses_unknown_(json_flag(model, "fuse_unk")),
        takes_words_(json_flag(model, "ignore_merges")) {
    require_options(model);
    if (json::value const* const unknown = json_member(model, "unk_token"); unknown != nullptr && !of_bytes_) {
      unknown_ = unknown_of(ids_, json_string(*unknown));
    }
    for (json::value const& merge : model.at("merges").as_array()) {
      add_merge(merge, is_special);
    }
    std::erase_if(ids_, [&](auto const& piece) { return is_special(piece.second); });
  }

  void encode(std::string const& word, Ids& found) const override {
    constexpr std::size_t max_words = std::size_t{1} << 16U;
    constexpr std::size_t max_bytes = 64;
    bool const short_word = word.size() <= max_bytes;
    if (short_word) {
      std::lock_guard const lock(mutex_);
      if (auto const known = known_.find(word); known != known_.end()) {
        found.insert(found.end(), known->second.begin(), known->second.end());
        return;
      }
    }
    Ids const symbols = split(word);
    found.insert(found.end(), symbols.begin(), symbols.end());
    if (short_word) {
      std::lock_guard const lock(mutex_);
      if (known_.size() >= max_words) {
        known_.clear();
      }
      known_.emplace(word, symbols);
    }
  }

 private:
  void require_options(json::object const& model) const {
    for (auto const& [key, plain] : std::initializer_list<std::pair<char const*, json::value>>{
             {"type", "BPE"}, {"dropout", 0.0}, {"continuing_subword_prefix", ""}, {"end_of_word_suffix", ""}}) {
      if (json::value const* const value = json_member(model, key); value != nullptr && *value != plain) {
        refuse_option(fmt::format("model.{}", key), *value);
      }
    }
    if (of_bytes_ && falls_back_) {
      refuse_option("model.byte_fallback", true);
    }
  }

  /// A merge is an array of two pieces, or a text with a space between them.
  void add_merge(json::value const& merge, IsSpecial const& is_special) {
    std::string left, right;
    if (json::array const* const pair = merge.if_array()) {
      left = json_string(pair->at(0));
      right = json_string(pair->at(1));
    } else {
      left = json_string(merge);
      std::size_t const space = std::min(left.find(' '), left.size());
      right = left.substr(std::min(space + 1, left.size()));
      left.erase(space);
    }
    if (of_bytes_) {
      auto left_bytes = from_byte_alphabet(left);
      auto right_bytes = from_byte_alphabet(right);
      if (!left_bytes || !right_bytes) {
        throw DataError("a merge of \"{}\" and \"{}\", which are not bytes", left, right);
      }
      left = std::move(*left_bytes);
      right = std::move(*right_bytes);
    }
    auto const require = [&](std::string const& text) {
      auto const found = ids_.find(text);
      if (found == ids_.end()) {
        throw DataError("a merge has \"{}\", which the vocabulary lacks", of_bytes_ ? in_byte_alphabet(text) : text);
      }
      return found->second;
    };
    std::int32_t const both = require(left + right);
    if (!is_special(both)) {
      merges_.add(require(left), require(right), both);
    } else if (of_bytes_) {
      throw DataError("\"{}\" and \"{}\" are merged to a special piece", in_byte_alphabet(left),
                      in_byte_alphabet(right));
    }
  }

  Ids split(std::string const& word) const {
    if (auto const whole = takes_words_ ? ids_.find(word) : ids_.end(); whole != ids_.end()) {
      return {whole->second};
    }
    Ids symbols;
    if (of_bytes_) {
      bytes_.encode(word, symbols);
    } else {
      symbols = characters(word);
    }
    merges_.apply(symbols);
    return symbols;
  }

  Ids characters(std::string_view word) const {
    Ids symbols;
    std::int64_t unknown = 0;  // characters that wait for their piece, as they do in the other system
    auto const end_unknown = [&] {
      symbols.insert(symbols.end(),
                     static_cast<std::size_t>(fuses_unknown_ ? std::min<std::int64_t>(unknown, 1) : unknown),
                     unknown_.value_or(0));
      unknown = 0;
    };
    while (!word.empty()) {
      std::string_view const letter = first_character(word);
      word.remove_prefix(letter.size());
      if (auto const piece = ids_.find(letter); piece != ids_.end()) {
        end_unknown();
        symbols.push_back(piece->second);
      } else if (!(falls_back_ && bytes_.encode(letter, symbols)) && unknown_) {
        ++unknown;
      }
    }
    end_unknown();
    return symbols;
  }

  bool of_bytes_;  ///< words are split into bytes, and not into characters
  IdsByText ids_;
  BytePieces bytes_;
  bool falls_back_;                      ///< unknown characters become bytes
  bool fuses_unknown_;                   ///< neighbours that are unknown become one piece
  bool takes_words_;                     ///< words that are pieces are not merged
  std::optional<std::int32_t> unknown_;  ///< none: unknown characters are left out
  PairMerges merges_;
  mutable std::mutex mutex_;                            // of what follows
  mutable std::unordered_map<std::string, Ids> known_;  ///< short words
};

/// WordPiece (Schuster & Nakajima 2012; Wu et al. 2016) as BERT has it: from its beginning on, each word is split into
/// the longest pieces that there are; one for which there are none, or that is too long, is unknown as a whole.
class WordPiece final : public SubwordModel {
 public:
  WordPiece(json::object const& model, IsSpecial const& is_special)
      : prefix_(json_text(model, "continuing_subword_prefix", "##")) {
    constexpr std::int64_t limit = 1000;  // the time for a word grows with their square
    if (json::value const* const letters = json_member(model, "max_input_chars_per_word")) {
      max_letters_ = letters->as_int64();
      if (max_letters_ < 1 || max_letters_ > limit) {
        refuse_option("model.max_input_chars_per_word", *letters);
      }
    }
    IdsByText const ids = ids_of(model);
    unknown_ = unknown_of(ids, json_string(model.at("unk_token")));
    for (auto const& [text, id] : ids) {
      if (is_special(id)) {  // special pieces are not part of a text, except the one for unknown words
        continue;
      }
      whole_.emplace(text, id);
      if (!prefix_.empty() && text.starts_with(prefix_)) {
        inner_.emplace(text.substr(prefix_.size()), id);
      }
      longest_ = std::max(longest_, text.size());
    }
  }

  void encode(std::string const& word, Ids& found) const override {
    std::size_t const before = found.size();
    auto const letters = std::ranges::count_if(word, [](char byte) { return (byte & 0xc0) != 0x80; });
    bool known = letters <= max_letters_;
    for (std::size_t at = 0; at < word.size() && known;) {
      IdsByText const& pieces = at == 0 || prefix_.empty() ? whole_ : inner_;
      std::size_t count = std::min(word.size() - at, longest_);
      auto longest = pieces.end();
      while (count > 0 && (longest = pieces.find(std::string_view(word).substr(at, count))) == pieces.end()) {
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

 private:
  std::string prefix_;
  std::int64_t max_letters_ = 100;
  std::int32_t unknown_;
  std::size_t longest_ = 0;  ///< bytes of a piece
  IdsByText whole_;          ///< by their text
  IdsByText inner_;          ///< of pieces with the prefix, by the text after it
};

}  // namespace

bool is_bpe(json::object const& model) {
  return json_text(model, "type", model.at("vocab").is_array() ? "Unigram" : "BPE") == "BPE";
}

void for_each_piece(json::object const& model,
                    std::function<void(std::string const& text, std::int64_t id)> const& take) {
  if (json::array const* const list = model.at("vocab").if_array()) {
    std::int64_t id = 0;
    for (json::value const& piece : *list) {
      take(json_string(piece.at(0)), id++);
    }
    return;
  }
  for (auto const& [text, id] : model.at("vocab").as_object()) {
    take(std::string(text), id.as_int64());
  }
}

std::unique_ptr<SubwordModel> make_subword_model(json::object const& model, IsSpecial const& is_special,
                                                 bool of_bytes) {
  if (json_text(model, "type", "") == "WordPiece") {
    return std::make_unique<WordPiece>(model, is_special);
  }
  if (model.at("vocab").is_array()) {
    return std::make_unique<Unigram>(model, is_special);
  }
  return std::make_unique<Pairs>(model, is_special, of_bytes);
}

}  // namespace heddle
