#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/random.hpp>
#include <unordered_set>

#include "cleaning/rule.hpp"

namespace heddle {
namespace {

/// A set of 64-bit hashes, of which two different lines have the same with a probability of 2^-64: open addressing in
/// a table of which at most three quarters are used, so 11 to 21 bytes for each hash.
class HashSet {
 public:
  /// Whether the hash is new.
  bool insert(std::uint64_t hash) {
    if (4 * (size_ + 1) > 3 * slots_.size()) {
      grow();
    }
    bool const is_new = place(hash);
    size_ += is_new ? 1 : 0;
    return is_new;
  }
  bool contains(std::uint64_t hash) const { return !slots_.empty() && slots_[slot_of(key(hash))] == key(hash); }
  bool empty() const { return size_ == 0; }

 private:
  static constexpr std::uint64_t none = 0;
  static std::uint64_t key(std::uint64_t hash) { return hash == none ? 1 : hash; }

  /// The slot that has the key, or where it is to be put.
  std::size_t slot_of(std::uint64_t wanted) const {
    std::size_t slot = mix_bits(wanted) & (slots_.size() - 1);
    while (slots_[slot] != none && slots_[slot] != wanted) {
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return slot;
  }
  bool place(std::uint64_t hash) {
    std::uint64_t& slot = slots_[slot_of(key(hash))];
    return std::exchange(slot, key(hash)) == none;
  }
  void grow() {
    std::vector<std::uint64_t> old(std::max<std::size_t>(1024, 2 * slots_.size()), none);
    old.swap(slots_);
    for (std::uint64_t const hash : old) {
      if (hash != none) {
        place(hash);
      }
    }
  }

  std::vector<std::uint64_t> slots_;
  std::size_t size_ = 0;
};

/// The text by which lines are compared: a side, or both with a character between them that no line has.
template <class Form>
std::string compared(LineText const& line, std::string const& by, Form const& form) {
  if (by == "target" && line.sides.size() > 1) {
    return std::string(form(line.sides[1]));
  }
  std::string text(form(line.sides[0]));
  if (by == "pair" && line.sides.size() > 1) {
    text += '\n';
    text += form(line.sides[1]);
  }
  return text;
}

/// The value of "by". Throws ConfigError where it is given for one text.
std::string compared_by(RuleOptions const& options) {
  std::string const by = options.text("by");
  if (!options.pairs() && options.given("by")) {
    throw ConfigError("{} = \"{}\": the text has one side; leave the key out", options.place("by"), by);
  }
  return by;
}

CleaningOption by_option() {
  return text_option("by", "what is compared: \"pair\", \"source\" or \"target\"", "pair",
                     {"pair", "source", "target"});
}

// --- exact duplicates
// -------------------------------------------------------------------------------------------------

class Duplicates : public Rule {
 public:
  explicit Duplicates(RuleOptions const& options) : by_(compared_by(options)), folded_(options.flag("folded")) {}

  std::vector<std::uint64_t> keys(LineText const& line) const override {
    return {text_hash(folded_ ? compared(line, by_, [](SideText const& side) { return side.folded(); })
                              : compared(line, by_, [](SideText const& side) { return side.text; }))};
  }
  Reason admit(std::int64_t /*number*/, std::span<std::uint64_t const> keys) override {
    return seen_.insert(keys.front()) ? Reason() : "repeats an earlier line";
  }

 private:
  std::string by_;
  bool folded_;
  HashSet seen_;
};

// --- near duplicates
// ----------------------------------------------------------------------------------------------------

/// Signatures of sets of shingles (Broder 1997): the probability that two sets have the same smallest value of a hash
/// is their Jaccard similarity. A band is a hash of some of these values; two texts are near if one band is the same,
/// which is so with probability 1 - (1 - s^rows)^bands (Leskovec et al., Mining of Massive Datasets, 3.4).
class MinHash {
 public:
  static constexpr std::size_t max_values = 128;

  MinHash(double similarity, std::int64_t shingle) : shingle_(static_cast<std::size_t>(shingle)) {
    // The similarity at which the probability is near one half is about (1 / bands)^(1 / rows).
    double nearest = 1;
    for (std::size_t bands = 1; bands <= max_values / 2; ++bands) {
      std::size_t const rows = max_values / bands;
      double const distance =
          std::abs(std::pow(1 / static_cast<double>(bands), 1 / static_cast<double>(rows)) - similarity);
      if (distance < nearest) {
        nearest = distance;
        bands_ = bands;
        rows_ = rows;
      }
    }
    for (std::size_t value = 0; value < max_values; ++value) {
      factors_[value] = static_cast<std::uint32_t>(mix_bits(2 * value + 1)) | 1U;
      offsets_[value] = static_cast<std::uint32_t>(mix_bits(2 * value + 2));
    }
  }

  /// A hash for each band.
  std::vector<std::uint64_t> bands(std::u32string_view text) const {
    std::array<std::uint32_t, max_values> smallest;
    smallest.fill(std::numeric_limits<std::uint32_t>::max());
    std::size_t const shingles = text.size() < shingle_ ? 1 : text.size() - shingle_ + 1;
    for (std::size_t at = 0; at < shingles; ++at) {
      std::uint64_t hash = 0;
      for (char32_t const point : text.substr(at, shingle_)) {
        hash = hash * 0x100000001B3U + point + 1;
      }
      add(static_cast<std::uint32_t>(mix_bits(hash)), smallest);
    }
    std::vector<std::uint64_t> result;
    for (std::size_t band = 0; band < bands_; ++band) {
      std::uint64_t hash = band + 1;
      for (std::size_t row = 0; row < rows_; ++row) {
        hash = mix_bits(hash ^ smallest[band * rows_ + row]);
      }
      result.push_back(hash);
    }
    return result;
  }

 private:
  void add(std::uint32_t hash, std::array<std::uint32_t, max_values>& smallest) const {
    for (std::size_t value = 0; value < max_values; ++value) {
      smallest[value] = std::min(smallest[value], hash * factors_[value] + offsets_[value]);
    }
  }

  std::size_t shingle_;
  std::size_t bands_ = 1;
  std::size_t rows_ = max_values;
  std::array<std::uint32_t, max_values> factors_;
  std::array<std::uint32_t, max_values> offsets_;
};

CleaningOption similarity_option(std::string meaning, double otherwise) {
  return number_option("similarity", std::move(meaning), otherwise, 0.5, 1);
}
CleaningOption shingle_option() {
  return integer_option("shingle", "characters of the parts by which texts are compared", 5, 1);
}

class NearDuplicates : public Rule {
 public:
  explicit NearDuplicates(RuleOptions const& options)
      : by_(compared_by(options)),
        min_characters_(options.integer("min_characters")),
        hashes_(options.number("similarity"), options.integer("shingle")) {}

  std::vector<std::uint64_t> keys(LineText const& line) const override {
    std::u32string const text =
        SideText(compared(line, by_, [](SideText const& side) { return side.folded(); })).points;
    return std::ssize(text) < min_characters_ ? std::vector<std::uint64_t>() : hashes_.bands(text);
  }
  Reason admit(std::int64_t /*number*/, std::span<std::uint64_t const> keys) override {
    if (std::ranges::any_of(keys, [&](std::uint64_t key) { return seen_.contains(key); })) {
      return "is nearly an earlier line";
    }
    std::ranges::for_each(keys, [&](std::uint64_t key) { seen_.insert(key); });
    return {};
  }

 private:
  std::string by_;
  std::int64_t min_characters_;
  MinHash hashes_;
  HashSet seen_;
};

// --- overlap with other texts
// -------------------------------------------------------------------------------------------

class Overlap : public Rule {
 public:
  explicit Overlap(RuleOptions const& options)
      : min_words_(options.integer("min_words")),
        similarity_(options.number("similarity")),
        hashes_(similarity_, options.integer("shingle")) {
    std::vector<TextFile> const none;
    for (std::size_t side = 0; side < 2; ++side) {
      char const* const name = side == 0 ? "source" : "target";
      for (std::string const& file : options.texts(name)) {
        read({file}, side);
      }
      for (std::string const& file : options.texts("tsv")) {
        read({file, static_cast<std::int64_t>(side) + 1}, side);
      }
      for (TextFile const& file : side < options.held_out().size() ? options.held_out()[side] : none) {
        read(file, side);
      }
    }
    if (exact_[0].empty() && exact_[1].empty()) {
      throw ConfigError("{} needs the texts to compare with: source = [\"test.en\"], target = [\"test.de\"], or tsv",
                        options.place());
    }
  }

  Reason judge(LineText const& line) const override {
    for (std::size_t side = 0; side < line.sides.size(); ++side) {
      SideText const& text = line.sides[side];
      if (std::ssize(text.words) < min_words_) {
        continue;
      }
      if (exact_[side].contains(text_hash(text.folded()))) {
        return line.name(side) + " is a line of the texts to compare with";
      }
      auto const known = [&](std::uint64_t band) { return near_[side].contains(band); };
      if (similarity_ < 1 && std::ranges::any_of(hashes_.bands(SideText(text.folded()).points), known)) {
        return line.name(side) + " is nearly a line of the texts to compare with";
      }
    }
    return {};
  }

 private:
  void read(TextFile const& file, std::size_t side) {
    TextFilesReader reader({file}, InvalidUtf8::replace);
    for (std::string line; reader.next(line);) {
      SideText const text(line);
      if (std::ssize(text.words) < min_words_) {
        continue;
      }
      exact_[side].insert(text_hash(text.folded()));
      for (std::uint64_t const band :
           similarity_ < 1 ? hashes_.bands(SideText(text.folded()).points) : std::vector<std::uint64_t>()) {
        near_[side].insert(band);
      }
    }
  }

  std::int64_t min_words_;
  double similarity_;
  MinHash hashes_;
  std::array<HashSet, 2> exact_, near_;
};

template <class Kind>
std::unique_ptr<Rule> make(RuleOptions const& options) {
  return std::make_unique<Kind>(options);
}

}  // namespace

std::vector<RuleKind> duplicate_rules() {
  return {
      {.name = "overlap",
       .meaning =
           "lines with a side that is a line of a validation or test text, except for case and punctuation; with "
           "heddle prepare, its validation text is one of these",
       .use = RuleUse::if_named,
       .options = {texts_option("source", "files with a sentence a line, of the source's language"),
                   texts_option("target", "the same, of the target's language"),
                   texts_option("tsv", "files with lines SOURCE<TAB>TARGET"),
                   integer_option("min_words", "shorter sides may be the same", 3, 1),
                   similarity_option("below 1: also lines that share this part of their characters, about", 1),
                   shingle_option()},
       .make = make<Overlap>},
      {.name = "duplicates",
       .meaning = "lines that repeat an earlier one; 11 to 21 bytes of memory for each line that is kept",
       .options = {by_option(), flag_option("folded", "also those that differ only in case and punctuation", false)},
       .make = make<Duplicates>},
      {.name = "near_duplicates",
       .meaning = "lines that are nearly an earlier one, which is kept; 75 to 150 bytes of memory for each line",
       .use = RuleUse::if_named,
       .options = {by_option(), similarity_option("of the sets of their shingles (Jaccard), about", 0.9),
                   shingle_option(), integer_option("min_characters", "shorter lines are not compared", 40, 1)},
       .make = make<NearDuplicates>},
  };
}

}  // namespace heddle
