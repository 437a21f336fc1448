#pragma once

#include <cstdint>
#include <heddle/core/generation/limits.hpp>
#include <heddle/core/generation/shortlist.hpp>
#include <heddle/core/model/model.hpp>
#include <memory>
#include <span>
#include <vector>

namespace heddle {

/// A model of an ensemble, and its share of the ensemble's log-probabilities.
struct WeightedModel {
  Model const* model = nullptr;
  double weight = 0;
};

/// A model for generation, its vocabularies' special ids and the longest sequence that it was built for.
struct GenerationModel {
  Model const& model;
  SideIds ids;
  std::int64_t max_length = 0;  ///< model.max_length of the configuration: tokens, with the end token
  GenerationLimits limits = {};
  /// Models with the same vocabularies that generate together with `model`: an ensemble. In place of the
  /// log-probabilities of a model's tokens there are the weighted sums of all models' (as in Marian, Junczys-Dowmunt et
  /// al. 2018). The weights of all are above 0 and sum to 1.
  std::vector<WeightedModel> others = {};
  double weight = 1;
};

/// Drawing of tokens in place of beam search: from the probabilities to the power 1 / temperature, of the top_k
/// likeliest tokens (Fan et al. 2018), of those the fewest that have together the probability top_p (Holtzman et al.
/// 2020), and of those the ones whose probability is at least min_p times that of the likeliest (Nguyen et al. 2024).
/// The random number of a token depends only on the seed, its source's number and its position.
struct Sampling {
  double temperature = 0;  ///< 0: nothing is drawn
  std::int64_t top_k = 0;  ///< 0: all tokens
  double top_p = 1;        ///< above 0
  double min_p = 0;        ///< 0: all tokens
  std::uint64_t seed = 1;
};

/// One step of a sentence's beam search, as an observer sees it.
struct SearchStep {
  enum class Fate : std::uint8_t { live, finished, dropped };
  /// A live hypothesis with one more token.
  struct Extension {
    std::size_t parent = 0;  ///< among the sentence's live hypotheses, in the order of the step that made them live
    std::int32_t token = 0;
    double log_probability = 0;  ///< the sum over all tokens
    Fate fate = Fate::dropped;
  };
  std::int64_t number = 0;                 ///< the number of the source
  std::int64_t length = 0;                 ///< tokens of its live hypotheses before the step, without the prompt
  std::vector<Extension> extensions = {};  ///< the ranked extensions, the likeliest first
};

/// Is notified of every step of every sentence, before it is decided whether the sentence is done.
class SearchObserver {
 public:
  virtual ~SearchObserver() = default;
  virtual void extended(SearchStep const& step) = 0;
};

/// A wider beam finds nothing better, and takes memory for each hypothesis.
inline constexpr std::int64_t max_beam_size = 1000;

struct GenerationOptions {
  std::int64_t beam_size = 1;        ///< 1: greedy, one live hypothesis
  std::int64_t n_best = 1;           ///< hypotheses per sentence, at most beam_size
  std::int64_t max_length = 0;       ///< target tokens, without the end token; 0: 2 * source tokens + 50
  std::int64_t min_length = 0;       ///< target tokens before which the end token is not generated
  double length_penalty = 1;         ///< exponent of the length in a hypothesis's score
  double word_penalty = 0;           ///< subtracted from the log-probability for each token; below 0 a reward
  double patience = 1;               ///< patience * beam_size finished hypotheses narrow the search; see Generation
  std::int64_t batch_tokens = 4096;  ///< in a step: hypotheses * source tokens (with the end), or else one sentence
  std::int64_t no_repeat_ngram = 0;  ///< no sequence of that many tokens is generated twice; 0: any may be
  std::int64_t beam_groups = 1;      ///< divides beam_size; above 1: diverse beam search
  double diversity = 0.5;            ///< log-probability that a token costs for each use by an earlier group
  std::vector<std::vector<std::int32_t>> forbidden = {};  ///< in addition to GenerationLimits::suppressed
  bool allow_unknown = false;                             ///< the unknown token is generated, too
  Sampling sampling{};                                    ///< needs beam_size 1
  std::shared_ptr<Shortlist const> shortlist = {};        ///< of a model with an encoder output, on one rank
  SearchObserver* observer = nullptr;                     ///< of a search without groups
};

/// (log_probability - word_penalty * length) / length^length_penalty, as Marian has it.
double score_of(GenerationOptions const& options, double log_probability, std::int64_t length);

/// Throws UsageError for impossible options; the message says what would be right.
void require_valid(GenerationOptions const& options);

/// A finished translation or continuation. Its score is score_of its log_probability, the natural logarithm of the
/// probability of all tokens and the end token, and its length, which counts the end token too.
struct Hypothesis {
  std::vector<std::int32_t> tokens;  ///< without begin, prompt and the token that ended it
  double log_probability = 0;
  double score = 0;
};

/// The result for a source.
struct Generated {
  std::int64_t number = 0;  ///< the number with which it was added
  /// At most n_best, the best score first; fewer only if the vocabulary does not yield that many.
  std::vector<Hypothesis> hypotheses;
};

/// Beam search with cached keys and values, fed sentence by sentence (continuous batching, Yu et al. 2022): sentences
/// that are done leave, and others enter in their place, between two token steps. Sources (sides without begin and end
/// tokens, perhaps without any) enter in the order in which they were added, as soon as a quarter of batch_tokens is
/// free.
///
/// Each step extends every live hypothesis by every token and ranks a sentence's extensions by log_probability. Of the
/// first beam_size, those that end are finished; the first beam_size that do not end stay live. A sentence is done
/// when n_best are finished and no live one can reach a better score than the worst of them: at any length while fewer
/// than patience * beam_size are finished (Kasai et al. 2022), later only by ending at once. (Stopping as soon as
/// beam_size are finished loses good translations: unlikely short ones end early and fill the list.) At the longest
/// length allowed (max_length, and never more than the model's) every live hypothesis takes the end token. Equal
/// probabilities are ranked by parent, then by token id. With beam_size 1 this is greedy decoding, whatever the
/// length_penalty: the likeliest token at each step, up to the first end token among them.
///
/// A target may start with other tokens than the begin token: another one, and tokens that are forced. A decoder-only
/// model has prompts in place of sources, in the target's vocabulary: every hypothesis starts with its prompt. These
/// are read in one step, and tokens, probabilities, lengths and max_length are those of the continuation.
///
/// With sampling a source has one hypothesis, which draws a token at each step until it draws the end token.
///
/// Tokens are left out of a step before it is ranked or drawn from: those of GenerationLimits and `forbidden`, the
/// unknown token unless `allow_unknown`, end tokens before min_length, and with no_repeat_ngram = n the last token of
/// each sequence of n tokens that the target already has, its start included. A hypothesis for which no token is left
/// takes the end token. Of several end tokens each ends a hypothesis; the first is the end token where one must end.
///
/// With beam_groups = g there are g beams of beam_size / g hypotheses, which start together (diverse beam search,
/// Vijayakumar et al. 2018). In each step they are extended one after the other, and `diversity` is subtracted from the
/// order of an extension for each hypothesis of an earlier group that this step has extended by the same token. The
/// subtractions of a hypothesis add up over its steps, and do not count in its log-probability and score. A group is
/// done as a beam of its own size is; results are the best n_best of all groups, each once.
///
/// With a shortlist only a sentence's own tokens are ranked, and probabilities are relative to them. Where they are
/// equal, end tokens come first.
///
/// A result depends on the other sentences only by rounding. Collective over the model's tensor and pipeline groups,
/// whose ranks make the same calls and get the same results. A step copies to the device once, and once more if it has
/// new sources.
class Generation {
 public:
  /// Throws UsageError for impossible options, for limits that leave no token, and for limits or a shortlist that name
  /// one that there is not; ConfigError for a shortlist where the model is split or has no encoder output, for a model
  /// that cannot generate (ModelDescription::no_generation_reason), and for an ensemble of models that differ in their
  /// vocabularies or of which only some have an encoder output.
  Generation(Execution& execution, Arena& arena, GenerationModel const& model, GenerationOptions const& options);
  ~Generation();

  /// Adds a source, which waits until it may enter. The number names its result and its random numbers. `start` is what
  /// its target starts with; empty: the begin token. Throws DataError if the source has more than model max_length - 1
  /// tokens, or the start more than max_length.
  void add(std::int64_t number, SampleSide source, std::vector<std::int32_t> start = {});
  /// Removes a source that waits or is live, without a result. Returns whether there was one of that number.
  bool remove(std::int64_t number);
  /// Whether more sources should be added before the next step, if there are any.
  bool has_room() const;
  /// Whether no source waits or is live.
  bool empty() const;
  /// One token step of all live sentences; then others enter, with their first step. Returns those that are done. May
  /// not be called again after it threw Error, on all ranks, because a logit is NaN or +infinity.
  std::vector<Generated> step();

 private:
  class Search;
  std::unique_ptr<Search> search_;
};

/// The hypotheses of each source, whose number is its index, by a Generation. `starts` are what the targets start with;
/// empty: the begin token for each. Throws as that does.
std::vector<std::vector<Hypothesis>> generate(Execution& execution, Arena& arena, GenerationModel const& model,
                                              std::span<std::vector<std::int32_t> const> sources,
                                              GenerationOptions const& options,
                                              std::span<std::vector<std::int32_t> const> starts = {});

}  // namespace heddle
