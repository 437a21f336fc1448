#pragma once

#include <boost/json/object.hpp>
#include <heddle/core/training/micro_batch_source.hpp>
#include <heddle/io/text/text.hpp>
#include <heddle/model.hpp>
#include <string>
#include <string_view>

namespace heddle {

/// A text on which a model is measured that was trained on text, one document or sentence a line.
struct MeasuredText {
  std::string text;
  std::string pair = {};  ///< the second texts, for an encoder: line n belongs to line n; "": none
  InvalidUtf8 invalid_utf8 = InvalidUtf8::replace;
  bool json = false;  ///< print an object
};

/// Prints the perplexity and, of an encoder, the masked accuracy. Lines are joined into sequences and masked as in
/// validation. A text of more than 16 million tokens or a million lines is read in parts of that size, and no sequence
/// is joined across their ends. Throws ConfigError for a model of another kind, DataError where no token is left.
void measure_text(TrainedModel& model, MeasuredText const& measured);

/// Prints the perplexity of a loss; `kind` names its tokens: "target ".
void print_perplexity(LossSums const& loss, std::string_view kind);
/// The same as members of an object: perplexity, nats_per_token and tokens.
void add_perplexity(LossSums const& loss, boost::json::object& object);

}  // namespace heddle
