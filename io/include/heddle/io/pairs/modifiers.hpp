#pragma once

#include <cstdint>
#include <functional>
#include <heddle/core/base/random.hpp>
#include <heddle/core/config/config.hpp>
#include <heddle/io/pairs/text_pair.hpp>
#include <string>
#include <vector>

namespace heddle {

/// The random numbers of one modifier for one sample: a pure function of the key, the epoch and the sample's index.
class Draws {
 public:
  Draws(std::uint64_t key, std::int64_t epoch, std::int64_t index) : key_(key), epoch_(epoch), index_(index) {}

  /// A number of [0, 1).
  double uniform();
  bool chance(double probability) { return uniform() < probability; }
  /// A number of [0, count).
  std::int64_t below(std::int64_t count) { return static_cast<std::int64_t>(uniform() * static_cast<double>(count)); }
  /// A number of [min, max].
  std::int64_t between(std::int64_t min, std::int64_t max) { return min + below(max - min + 1); }

 private:
  std::uint64_t key_;
  std::int64_t epoch_, index_;
  std::uint32_t used_ = 0;
};

/// A pair and the index of its sample in the epoch.
struct NumberedPair {
  std::int64_t index = 0;
  TextPair pair;
};

/// The indices of samples that modifiers add to those of the pairs are above this.
inline constexpr std::int64_t added_samples = std::int64_t{1} << 56;

/// Changes a pair that has been chosen.
using PairChange = std::function<void(TextPair&, Draws&)>;
/// Changes the pairs of a block, which are in the text's order; `draws` are those of a pair's index.
using BlockChange =
    std::function<void(std::vector<NumberedPair>&, std::function<Draws(std::int64_t)> const& draws, Vocabulary const&)>;

/// A modifier of samples: an entry of the table in modifiers.cpp.
struct ModifierKind {
  std::string name;
  std::string meaning;                          ///< one sentence
  std::vector<OptionDescription> options = {};  ///< besides the rate
  bool needs_alignment = false;
  bool needs_joint = false;     ///< source and target have one vocabulary
  bool new_words = false;       ///< targets get other words, which have no weights
  bool needs_sampling = false;  ///< the vocabulary can draw segmentations
  /// Makes the change: of single pairs, each of which is chosen with the rate, or of a block, which gets the rate.
  std::function<PairChange(LayerOptions const&)> of_pair = {};
  std::function<BlockChange(LayerOptions const&, double rate)> of_block = {};
};

/// All modifiers, in the order in which they change samples.
std::vector<ModifierKind> const& modifier_kinds();

/// The modifiers of a corpus, with their rates.
class Modifiers {
 public:
  /// The text that they are to change.
  struct Text {
    std::string name;     ///< of the files, for messages
    SampleFields fields;  ///< that the pairs have
    Vocabulary const& vocabulary;
  };
  Modifiers() = default;
  /// Throws ConfigError, with file, line and key, for an unknown name, a rate outside [0, 1], a wrong option, and for a
  /// modifier that needs what the text does not have.
  Modifiers(Settings const& settings, Text const& text);

  bool empty() const { return applied_.empty(); }
  /// "upper_case 0.05, typos 0.1".
  std::string describe() const;
  /// Changes the pairs of a block, as a pure function of the seed, the epoch and their indices and texts.
  void apply(std::vector<NumberedPair>& pairs, Vocabulary const& vocabulary, std::uint64_t seed,
             std::int64_t epoch) const;

 private:
  struct Applied {
    std::string name;
    double rate = 0;
    PairChange of_pair;
    BlockChange of_block;
  };
  std::vector<Applied> applied_;
};

}  // namespace heddle
