#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/generation/generation.hpp>

#include "token_choice.hpp"

namespace heddle {

double score_of(GenerationOptions const& options, double log_probability, std::int64_t length) {
  auto const tokens = static_cast<double>(length);
  return (log_probability - options.word_penalty * tokens) / std::pow(tokens, options.length_penalty);
}

void require_valid(GenerationOptions const& options) {
  if (options.beam_size < 1 || options.n_best < 1 || options.n_best > options.beam_size) {
    throw UsageError("beam size {} and n-best {}: expected 1 <= n-best <= beam size", options.beam_size,
                     options.n_best);
  }
  if (options.beam_size > max_beam_size) {
    throw UsageError("beam size {}: expected at most {}", options.beam_size, max_beam_size);
  }
  if (options.beam_groups < 1 || options.beam_size % options.beam_groups != 0 || !std::isfinite(options.diversity) ||
      options.diversity < 0 || (options.beam_groups > 1 && options.observer != nullptr)) {
    throw UsageError(
        "{} beam groups, beam size {}, diversity {}: expected groups that divide the beam size, and a "
        "finite diversity of at least 0",
        options.beam_groups, options.beam_size, options.diversity);
  }
  if (options.min_length < 0 || (options.max_length > 0 && options.min_length > options.max_length) ||
      options.no_repeat_ngram < 0) {
    throw UsageError(
        "minimum length {}, maximum length {}, n-grams of {} not repeated: expected a minimum of at least "
        "0 and at most the maximum (0: the default), and n-grams of at least 1 (or 0: any may be repeated)",
        options.min_length, options.max_length, options.no_repeat_ngram);
  }
  if (options.max_length < 0 || options.batch_tokens < 1) {
    throw UsageError(
        "maximum length {}, batch tokens {}: expected a maximum length of at least 1 (or 0 for the default) and at "
        "least one batch token",
        options.max_length, options.batch_tokens);
  }
  if (!std::isfinite(options.length_penalty) || options.length_penalty < 0) {
    throw UsageError("length penalty {}: expected a finite length penalty of at least 0", options.length_penalty);
  }
  if (!std::isfinite(options.word_penalty) || !(options.patience > 0)) {
    throw UsageError("word penalty {}, patience {}: expected a finite penalty, and a patience above 0",
                     options.word_penalty, options.patience);
  }
  require_valid(options.sampling);
  if (options.sampling.temperature > 0 && options.beam_size > 1) {
    throw UsageError("temperature {} and beam size {}: where tokens are drawn the beam size is 1",
                     options.sampling.temperature, options.beam_size);
  }
}

}  // namespace heddle
