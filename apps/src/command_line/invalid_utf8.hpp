#pragma once

#include <boost/program_options.hpp>
#include <heddle/io/text/text.hpp>
#include <string>

namespace heddle {

/// Adds --invalid-utf8 replace|fail, for `prepare` (`with_skip`) also skip; the default is what `value` is. Another
/// word is a UsageError of parse_options.
void add_invalid_utf8(boost::program_options::options_description& description, InvalidUtf8& value,
                      bool with_skip = false);

/// Warns, once a text is read, if lines of it were not UTF-8: how many, and the first one.
void warn_of_invalid_lines(std::string const& text, LineReader const& reader);

}  // namespace heddle
