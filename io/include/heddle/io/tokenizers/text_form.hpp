#pragma once

#include <array>
#include <cstdint>
#include <heddle/core/base/enumerations.hpp>
#include <heddle/core/generation/limits.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// The place of a text's language token.
enum class LanguagePosition : std::uint8_t {
  none,
  first,     ///< before the text's tokens (NLLB, mBART-50, M2M100)
  last,      ///< after the end token, and a decoder starts from it (mBART)
  of_target  ///< a source starts with the target's language (OPUS-MT)
};
template <>
inline constexpr std::array<std::string_view, 4> value_names<LanguagePosition>{"none", "first", "last", "of_target"};

/// The tokens that a vocabulary's models have beside a text's own tokens and the begin and end token, the tokens that
/// they do not generate, and those that end what they generate. It is a part of the vocabulary, and so comes with it
/// into datasets and checkpoints. That of a vocabulary that was made here is empty.
struct TextForm {
  struct Side {
    LanguagePosition language = LanguagePosition::none;
    std::int32_t default_language = SpecialIds::absent;  ///< where a user names none
    std::vector<std::int32_t> prefix = {};               ///< before every text (BART: <s>)

    bool operator==(Side const&) const = default;
  };
  Side source = {}, target = {};
  std::vector<std::int32_t> languages = {};
  std::int32_t start = SpecialIds::absent;  ///< the begin token, where the vocabulary's own one is another
  std::vector<std::int32_t> forced = {};    ///< a target that is generated has them after its start token
  std::vector<std::vector<std::int32_t>> suppressed = {};  ///< as in GenerationLimits
  std::vector<std::int32_t> suppressed_first = {};
  std::vector<std::int32_t> ends = {};  ///< as in GenerationLimits

  bool empty() const { return *this == TextForm(); }
  bool operator==(TextForm const&) const = default;
};

/// Whether a token's text is that of a language: "eng_Latn", "en_XX", "__en__", ">>en<<".
bool is_language(std::string const& text);

/// A form as JSON, and back. Throws DataError for a text that is not a form of a vocabulary of `size` tokens.
std::string to_json(TextForm const& form);
TextForm parse_text_form(std::string_view json, std::int32_t size);

struct Vocabulary;

/// The languages of a source and its target by the names of their tokens; "" is the vocabulary's default. "en" also
/// stands for __en__ and >>en<<.
struct Languages {
  std::string source, target;
};

/// The tokens around texts in these languages.
struct TextFrame {
  std::vector<std::int32_t> source = {};  ///< before a source's tokens
  std::vector<std::int32_t> target = {};  ///< before the tokens of a target in training
  std::vector<std::int32_t> start = {};   ///< the tokens from which a target is generated
};
/// The names of the options that give languages, for messages.
struct LanguageOptions {
  char const* source = "--source-language";
  char const* target = "--target-language";
};
/// Throws UsageError, which names the option and lists the languages, for one that the vocabulary lacks, for one that
/// is missing, and where the vocabulary has none.
TextFrame frame_of(Vocabulary const& vocabulary, Languages const& languages, LanguageOptions const& options = {});
/// TextFrame::start of the languages that a target of a dataset has.
std::vector<std::int32_t> start_of(Vocabulary const& vocabulary, std::vector<std::int32_t> const& target);
/// The tokens that a vocabulary's models do not generate: those of its form, and special tokens that stand for no text
/// (padding, begin, mask). The search leaves out the unknown token. The tokens that end a target.
GenerationLimits limits_of(Vocabulary const& vocabulary);

}  // namespace heddle
