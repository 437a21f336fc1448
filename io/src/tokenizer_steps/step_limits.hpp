#pragma once

#include <boost/json/fwd.hpp>
#include <cstddef>
#include <string>

namespace heddle {

/// Bytes that a step of a tokenizer.json puts in place of others: far more than any known vocabulary has.
constexpr std::size_t max_replacement_bytes = 1024;
/// Expressions by which one tokenizer splits or changes a text: known vocabularies have two of some hundred characters.
constexpr std::size_t max_patterns = 16;

/// The text that a step puts in place of another. Throws DataError for one of more than max_replacement_bytes.
std::string replacement_text(boost::json::value const& value);

/// Throws DataError where a step of `part` has made `now` bytes of a text of `before`, which only hostile ones do.
void require_growth(char const* part, std::size_t before, std::size_t now);

/// Throws DataError for more than max_patterns.
void require_patterns(std::size_t count);

}  // namespace heddle
