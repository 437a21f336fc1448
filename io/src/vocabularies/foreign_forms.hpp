#pragma once

#include <boost/json/fwd.hpp>
#include <heddle/io/families/family.hpp>
#include <heddle/io/tokenizers/text_form.hpp>
#include <map>
#include <string>

namespace heddle {

/// The form of the texts of a model of transformers: by the class of its tokenizer, tokenizer.json, the languages among
/// the control pieces of `model`, a model for Tokenizer, and generation_config.json, or config.json where there is no
/// such file. Throws DataError for ids that the vocabulary lacks.
TextForm foreign_form(Family const& family, boost::json::object const& config,
                      std::map<std::string, std::string> const& files, std::string const& model);
/// The form of texts of OPUS-MT: of a vocabulary with target languages (">>fra<<") sources begin with one.
TextForm marian_form(std::string const& model);

/// The model for Tokenizer with this form in place of its own.
std::string with_text_form(std::string model, TextForm const& form);

}  // namespace heddle
