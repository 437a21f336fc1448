#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/generation/generation.hpp>
#include <limits>
#include <numeric>
#include <tuple>

#include "token_choice.hpp"

namespace heddle {

namespace {

using Tokens = std::vector<std::int32_t>;

/// The default length limit of a target: 50 tokens more than twice its source, both without their end token.
std::int64_t default_length(std::size_t source_tokens) {
  return 2 * static_cast<std::int64_t>(source_tokens) + 50;
}

struct LiveHypothesis {
  std::size_t sentence = 0;
  Tokens tokens;
  double log_probability = 0;
};

struct Sentence {
  std::int64_t number = 0;   ///< of its source, for random numbers
  Tokens prompt;             ///< every hypothesis starts with these tokens
  std::int64_t longest = 0;  ///< tokens after the prompt, with the end token
  std::vector<Hypothesis> finished;

  std::int64_t prompt_length() const { return static_cast<std::int64_t>(prompt.size()); }
};

/// Sources decoded together.
struct SourceBatch {
  std::vector<Tokens> sources;
  std::vector<std::int64_t> numbers;
};

/// The number of best tokens that a step needs of each row.
std::size_t ranked_tokens(GenerationOptions const& options, Model const& model) {
  if (options.sampling.temperature == 0) {
    return static_cast<std::size_t>(2 * options.beam_size);
  }
  std::int64_t const all = model.target_vocabulary();
  return static_cast<std::size_t>(options.sampling.top_k > 0 ? std::min(options.sampling.top_k, all) : all);
}

using Extension = SearchStep::Extension;
using Fate = SearchStep::Fate;

/// One batch, from its first step to its last.
class BeamSearch {
 public:
  BeamSearch(Execution& execution, Arena& arena, GenerationModel const& model, GenerationOptions const& options,
             SourceBatch const& batch)
      : arena_(arena),
        model_(model),
        options_(options),
        pack_(model.model.has_encoder_output() ? make_source_pack(batch.sources, model.ids.source) : Pack()),
        context_{execution, arena, pack_},
        caches_(model.model.make_caches()),
        rankings_(model.model, ranked_tokens(options, model.model), model.ids.target.end) {
    if (model.model.has_encoder_output()) {
      source_begin_ = to_host<std::int32_t>(pack_.source_rows.sequences.begin);
      source_length_ = to_host<std::int32_t>(pack_.source_rows.sequences.length);
    }
    for (std::size_t index = 0; index < batch.sources.size(); ++index) {
      Tokens const& source = batch.sources[index];
      std::int64_t const tokens = options.max_length > 0 ? options.max_length : default_length(source.size());
      Sentence sentence{batch.numbers[index], model.model.has_encoder_output() ? Tokens() : source, 0, {}};
      sentence.longest = std::min(tokens + 1, model.max_length - sentence.prompt_length());
      capacity_ = std::max(capacity_, sentence.prompt_length() + sentence.longest);
      live_.push_back({sentences_.size(), {}, 0});
      sentences_.push_back(std::move(sentence));
    }
  }

  std::vector<std::vector<Hypothesis>> run() {
    ArenaScope const scope(arena_);
    Tensor const encoder_output = model_.model.encode(context_);
    std::int64_t tokens = first_tokens();
    for (std::int64_t time = tokens - 1; !live_.empty(); ++time) {
      ArenaScope const step_scope(arena_);
      DecodeStep const step = make_step(time, std::exchange(tokens, 1));
      advance(time, rank_rows(encoder_output, step));
      bool unchanged = next_.size() == live_.size();
      for (std::size_t row = 0; unchanged && row < parents_.size(); ++row) {
        unchanged = parents_[row] == static_cast<std::int32_t>(row);
      }
      if (!unchanged && !next_.empty()) {
        model_.model.reorder(context_, upload(parents_), step, caches_);
      }
      live_.swap(next_);
    }
    std::vector<std::vector<Hypothesis>> results;
    for (Sentence& sentence : sentences_) {
      std::ranges::stable_sort(sentence.finished, std::greater(), &Hypothesis::score);
      auto const count = std::min(sentence.finished.size(), static_cast<std::size_t>(options_.n_best));
      sentence.finished.resize(count);
      results.push_back(std::move(sentence.finished));
    }
    return results;
  }

 private:
  Tensor upload(std::span<std::int32_t const> values) const {
    Tensor const tensor = arena_.allocate(DType::int32, {static_cast<std::int64_t>(values.size())});
    copy_from_host(tensor, values.data());
    return tensor;
  }

  std::vector<RowRanking> rank_rows(Tensor const& encoder_output, DecodeStep const& step) {
    Tokens newest;
    for (LiveHypothesis const& hypothesis : live_) {
      for (std::int64_t at = step.time + 1 - step.tokens; at <= step.time; ++at) {
        newest.push_back(token_at(hypothesis, at));
      }
    }
    TokenRows const rows{step.queries, upload(Tokens(newest.size(), 0)), step.position, std::ssize(newest)};
    Tensor const logits = model_.model.decode(context_, {upload(newest), {}}, rows, encoder_output, step, caches_);
    return rankings_.rank(context_, logits, live_.size());
  }

  /// The number of tokens that all hypotheses start with: the start token and those of the shortest prompt.
  std::int64_t first_tokens() const {
    auto const shortest = std::ranges::min_element(sentences_, {}, &Sentence::prompt_length);
    return shortest->prompt_length() + 1;
  }

  DecodeStep make_step(std::int64_t time, std::int64_t tokens) const {
    auto const rows = static_cast<std::int64_t>(live_.size());
    Tokens query_begin;
    Tokens position;
    Tokens key_begin;
    Tokens encoder_begin;
    Tokens encoder_length;
    for (LiveHypothesis const& hypothesis : live_) {
      auto const row = static_cast<std::int64_t>(query_begin.size());
      query_begin.push_back(static_cast<std::int32_t>(row * tokens));
      for (std::int64_t at = time + 1 - tokens; at <= time; ++at) {
        position.push_back(static_cast<std::int32_t>(at));
      }
      key_begin.push_back(static_cast<std::int32_t>(row * capacity_));
      if (model_.model.has_encoder_output()) {
        encoder_begin.push_back(source_begin_[hypothesis.sentence]);
        encoder_length.push_back(source_length_[hypothesis.sentence]);
      }
    }
    Tensor const tokens_each = upload(Tokens(live_.size(), static_cast<std::int32_t>(tokens)));
    Tensor const time_each = upload(Tokens(live_.size(), static_cast<std::int32_t>(time + 1)));
    DecodeStep step{.time = time,
                    .capacity = capacity_,
                    .queries = {upload(query_begin), tokens_each, rows, tokens},
                    .keys = {upload(key_begin), time_each, rows, time + 1},
                    .encoder_output = {},
                    .position = upload(position),
                    .tokens = tokens};
    if (model_.model.has_encoder_output()) {
      step.encoder_output = {upload(encoder_begin), upload(encoder_length), rows,
                             pack_.source_rows.sequences.max_length};
    }
    return step;
  }

  /// The token at a position: the start token, then the prompt's tokens, then the hypothesis's own.
  std::int32_t token_at(LiveHypothesis const& hypothesis, std::int64_t position) const {
    Tokens const& prompt = sentences_[hypothesis.sentence].prompt;
    if (position == 0) {
      return model_.ids.target.begin;
    }
    auto const index = static_cast<std::size_t>(position - 1);
    return index < prompt.size() ? prompt[index] : hypothesis.tokens[index - prompt.size()];
  }

  void advance(std::int64_t time, std::vector<RowRanking> const& rankings) {
    next_.clear();
    parents_.clear();
    for (std::size_t first = 0, last = 0; first < live_.size(); first = last) {
      while (last < live_.size() && live_[last].sentence == live_[first].sentence) {
        ++last;
      }
      Sentence& sentence = sentences_[live_[first].sentence];
      std::int64_t const length = time - sentence.prompt_length();
      if (length < 0) {  // its prompt is still being read, by one hypothesis
        next_.push_back(std::move(live_[first]));
        parents_.push_back(static_cast<std::int32_t>(first));
        continue;
      }
      if (length + 1 < sentence.longest) {
        extend_sentence(first, last, length, rankings);
        continue;
      }
      SearchStep step{sentence.number, length};
      for (std::size_t row = first; row < last; ++row) {
        double const log_probability = live_[row].log_probability + rankings[row].end_log_probability;
        finish(sentence, std::move(live_[row].tokens), log_probability);
        step.extensions.push_back({row - first, model_.ids.target.end, log_probability, Fate::finished});
      }
      report(step);
    }
  }

  /// `length`: tokens that its hypotheses have after their prompt.
  void extend_sentence(std::size_t first, std::size_t last, std::int64_t length,
                       std::vector<RowRanking> const& rankings) {
    auto const beam_size = static_cast<std::size_t>(options_.beam_size);
    Sentence& sentence = sentences_[live_[first].sentence];
    std::size_t const begin = next_.size();
    std::size_t rank = 0;
    SearchStep step{sentence.number, length,
                    options_.sampling.temperature > 0
                        ? std::vector<Extension>{drawn_extension(first, length, rankings[first])}
                        : best_extensions(first, last, rankings)};
    for (Extension& extension : step.extensions) {
      std::size_t const row = first + extension.parent;
      LiveHypothesis const& parent = live_[row];
      if (extension.token == model_.ids.target.end) {
        if (rank < beam_size) {
          extension.fate = Fate::finished;
          finish(sentence, parent.tokens, extension.log_probability);
        }
      } else if (next_.size() - begin < beam_size) {
        extension.fate = Fate::live;
        next_.push_back({parent.sentence, parent.tokens, extension.log_probability});
        next_.back().tokens.push_back(extension.token);
        parents_.push_back(static_cast<std::int32_t>(row));
      }
      ++rank;
    }
    report(step);
    double const best_live =
        next_.size() > begin ? next_[begin].log_probability : -std::numeric_limits<double>::infinity();
    if (is_done(sentence, best_live, length)) {
      next_.resize(begin);
      parents_.resize(begin);
    }
  }

  std::vector<Extension> best_extensions(std::size_t first, std::size_t last,
                                         std::vector<RowRanking> const& rankings) const {
    std::vector<Extension> extensions;
    for (std::size_t row = first; row < last; ++row) {
      for (RankedToken const& token : rankings[row].best) {
        extensions.push_back({row - first, token.token, live_[row].log_probability + token.log_probability});
      }
    }
    // 2 * beam_size extensions hold beam_size that do not end, since each row ends in one way only.
    auto const count = std::min(extensions.size(), static_cast<std::size_t>(2 * options_.beam_size));
    std::ranges::partial_sort(
        extensions, extensions.begin() + static_cast<std::ptrdiff_t>(count), {},
        [](Extension const& each) { return std::tuple(-each.log_probability, each.parent, each.token); });
    extensions.resize(count);
    return extensions;
  }

  Extension drawn_extension(std::size_t row, std::int64_t length, RowRanking const& ranking) const {
    LiveHypothesis const& hypothesis = live_[row];
    RankedToken const token =
        draw_token(options_.sampling, ranking.best, {sentences_[hypothesis.sentence].number, length});
    return {0, token.token, hypothesis.log_probability + token.log_probability};
  }

  void finish(Sentence& sentence, Tokens tokens, double log_probability) const {
    auto const length = static_cast<std::int64_t>(tokens.size()) + 1;
    sentence.finished.push_back({std::move(tokens), log_probability, score(log_probability, length)});
  }

  bool is_done(Sentence const& sentence, double best_live, std::int64_t length) const {
    auto const n_best = static_cast<std::size_t>(options_.n_best);
    if (sentence.finished.size() < n_best) {
      return false;
    }
    if (options_.beam_size == 1) {  // greedy: what a longer hypothesis could score does not count
      return true;
    }
    std::vector<double> scores;
    for (Hypothesis const& hypothesis : sentence.finished) {
      scores.push_back(hypothesis.score);
    }
    std::nth_element(scores.begin(), scores.begin() + static_cast<std::ptrdiff_t>(n_best) - 1, scores.end(),
                     std::greater<>());
    // A live hypothesis has length + 1 tokens and at best keeps its log-probability; its score is then best at one of
    // the ends of its possible lengths. With beam_size hypotheses finished only the near end counts: the far one would
    // keep a search alive long after its best translation was found.
    double reachable = score(best_live, length + 2);
    if (sentence.finished.size() < static_cast<std::size_t>(options_.beam_size)) {
      reachable = std::max(reachable, score(best_live, sentence.longest));
    }
    return reachable <= scores[n_best - 1];
  }

  double score(double log_probability, std::int64_t length) const {
    return log_probability / std::pow(static_cast<double>(length), options_.length_penalty);
  }

  void report(SearchStep const& step) const {
    if (options_.observer != nullptr) {
      options_.observer->extended(step);
    }
  }

  Arena& arena_;
  GenerationModel model_;
  GenerationOptions options_;
  Pack pack_;            ///< of the sources; empty where they are prompts
  Tokens source_begin_;  ///< the pack's source sequences, on the host
  Tokens source_length_;
  LayerContext context_;
  std::vector<DecodeCache> caches_;
  RowRankings rankings_;
  std::vector<Sentence> sentences_;
  std::int64_t capacity_ = 0;
  std::vector<LiveHypothesis> live_;  ///< one per row, a sentence's rows adjacent
  std::vector<LiveHypothesis> next_;
  Tokens parents_;  ///< of next_, rows of live_
};

void require_short_enough(GenerationModel const& model, std::span<Tokens const> sources) {
  for (std::size_t index = 0; index < sources.size(); ++index) {
    if (static_cast<std::int64_t>(sources[index].size()) >= model.max_length) {
      throw DataError(
          fmt::format("source sentence {} has {} tokens; the model takes at most {} (model.max_length = {})", index,
                      readable_count(sources[index].size()), readable_count(model.max_length - 1), model.max_length));
    }
  }
}

}  // namespace

void require_valid(GenerationOptions const& options) {
  if (options.beam_size < 1 || options.n_best < 1 || options.n_best > options.beam_size) {
    throw UsageError(fmt::format("beam size {} and n-best {}: expected 1 <= n-best <= beam size", options.beam_size,
                                 options.n_best));
  }
  if (options.max_length < 0 || options.batch_tokens < 1) {
    throw UsageError(fmt::format(
        "maximum length {}, batch tokens {}: expected a maximum length of at least 1 (or 0 for the default) and at "
        "least one batch token",
        options.max_length, options.batch_tokens));
  }
  if (!std::isfinite(options.length_penalty) || options.length_penalty < 0) {
    throw UsageError(
        fmt::format("length penalty {}: expected a finite length penalty of at least 0", options.length_penalty));
  }
  require_valid(options.sampling);
  if (options.sampling.temperature > 0 && options.beam_size > 1) {
    throw UsageError(fmt::format("temperature {} and beam size {}: where tokens are drawn the beam size is 1",
                                 options.sampling.temperature, options.beam_size));
  }
}

std::vector<std::vector<Hypothesis>> generate(Execution& execution, Arena& arena, GenerationModel const& model,
                                              std::span<Tokens const> sources, GenerationOptions const& options) {
  require_valid(options);
  if (auto const& reason = model.model.no_generation_reason()) {
    throw ConfigError(*reason);
  }
  require_short_enough(model, sources);
  std::vector<std::size_t> order(sources.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t index) { return sources[index].size(); });
  std::vector<std::vector<Hypothesis>> results(sources.size());
  for (std::size_t first = 0; first < order.size();) {
    auto const tokens_each = static_cast<std::int64_t>(sources[order[first]].size() + 1) * options.beam_size;
    auto const wanted = static_cast<std::size_t>(std::max<std::int64_t>(1, options.batch_tokens / tokens_each));
    std::size_t count = std::min(wanted, order.size() - first);
    // A prefix is read in one step, so that a batch has prefixes of one length.
    while (model.model.needs_prefixes() && sources[order[first + count - 1]].size() != sources[order[first]].size()) {
      --count;
    }
    SourceBatch batch;
    for (std::size_t index = first; index < first + count; ++index) {
      batch.sources.push_back(sources[order[index]]);
      batch.numbers.push_back(options.sampling.first_number + static_cast<std::int64_t>(order[index]));
    }
    auto batch_results = BeamSearch(execution, arena, model, options, batch).run();
    for (std::size_t index = 0; index < count; ++index) {
      results[order[first + index]] = std::move(batch_results[index]);
    }
    first += count;
  }
  return results;
}

}  // namespace heddle
