#pragma once

#include <heddle/io/pairs/modifiers.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

// The modifiers, each with its file.
ModifierKind merge_modifier();
ModifierKind context_modifier();
ModifierKind swap_modifier();
ModifierKind end_punctuation_modifier();
ModifierKind upper_case_modifier();
ModifierKind title_case_modifier();
ModifierKind typos_modifier();
ModifierKind tags_modifier();
ModifierKind prefix_modifier();
ModifierKind noise_modifier();
ModifierKind sampling_modifier();

/// The text in upper case (Unicode's full mapping, no language's).
std::string upper_case(std::string_view text);
/// Words of random characters of one script: 1 to `max_words`, all of one length.
std::vector<std::string> random_words(Draws& draws, std::int64_t min_length, std::int64_t max_length,
                                      std::int64_t max_words);
/// The words, one space between them.
std::string join_words(std::vector<std::string> const& words);
std::vector<std::string> words_in(std::string_view text);

}  // namespace heddle
