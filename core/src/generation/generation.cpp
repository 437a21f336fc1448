#include <algorithm>
#include <cmath>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/generation/generation.hpp>
#include <list>
#include <ranges>
#include <tuple>

#include "constraints.hpp"
#include "shortlisted_outputs.hpp"
#include "step_lists.hpp"
#include "token_choice.hpp"

namespace heddle {

namespace {

using Tokens = std::vector<std::int32_t>;

/// The default length limit of a target: 50 tokens more than twice its source, both without their end token.
std::int64_t default_length(std::int64_t source_tokens) {
  return 2 * source_tokens + 50;
}

/// The number of best tokens that a step needs of each row: those that hold enough that do not end.
std::size_t wanted_tokens(GenerationOptions const& options, GenerationModel const& model) {
  if (options.sampling.temperature == 0) {
    return static_cast<std::size_t>(options.beam_size) * (1 + end_tokens(model).size());
  }
  std::int64_t const all = model.model.target_vocabulary();
  return static_cast<std::size_t>(options.sampling.top_k > 0 ? std::min(options.sampling.top_k, all) : all);
}

/// All models, whose logits are ranked together.
std::vector<WeightedModel> members_of(GenerationModel const& model) {
  std::vector<WeightedModel> members{{&model.model, model.weight}};
  members.insert(members.end(), model.others.begin(), model.others.end());
  return members;
}

/// Throws UsageError for a token that the model does not have, and ConfigError for a model that takes no shortlist.
void require_shortlist_fits(Shortlist const& shortlist, Model const& model) {
  if (!model.has_encoder_output() || model.tensor().size() > 1 || model.pipeline().size() > 1) {
    throw ConfigError(
        "a shortlist is for a model that translates, with an encoder, and that is on one rank: it is not for "
        "parallel.tensor above 1");
  }
  auto const require = [&](std::vector<std::int32_t> const& tokens) {
    for (std::int32_t const token : tokens) {
      if (token < 0 || token >= model.target_vocabulary()) {
        throw UsageError("token {} of a shortlist; expected ids from 0 to {}", token, model.target_vocabulary() - 1);
      }
    }
  };
  require(shortlist.always);
  std::ranges::for_each(shortlist.translations, require);
}

using Fate = SearchStep::Fate;

/// An extension that a group ranks by its log-probability less what is subtracted for diversity.
struct Candidate {
  SearchStep::Extension extension;
  double subtracted = 0;
};

/// Gives the children of hypotheses their places: the first child keeps its parent's, the others get those that are
/// then free.
void place_children(std::vector<LiveHypothesis>& children, std::int64_t beam_size) {
  std::vector<bool> taken(static_cast<std::size_t>(beam_size));
  std::vector<LiveHypothesis*> others;
  for (LiveHypothesis& child : children) {
    auto const place = static_cast<std::size_t>(child.parent);
    if (taken[place]) {
      others.push_back(&child);
    }
    taken[place] = true;
    child.place = child.parent;
  }
  auto free = taken.begin();
  for (LiveHypothesis* const child : others) {
    free = std::find(free, taken.end(), false);
    child->place = free++ - taken.begin();
  }
}

}  // namespace

class Generation::Search {
 public:
  Search(Execution& execution, Arena& arena, GenerationModel const& model, GenerationOptions const& options)
      : execution_(execution),
        arena_(arena),
        model_(model),
        options_(options),
        ends_(end_tokens(model)),
        constraints_(model, options),
        wanted_(wanted_tokens(options, model)),
        group_size_(static_cast<std::size_t>(options.beam_size / options.beam_groups)),
        members_(members_of(model)),
        rankings_(members_, ends_.front()),
        shortlisted_(members_) {
    for (WeightedModel const& member : members_) {
      caches_.push_back(member.model->make_caches());
    }
  }

  void add(std::int64_t number, SampleSide source, Tokens start) {
    auto const length = std::ssize(source.tokens);
    if (std::max(length + 1, std::ssize(start)) > model_.max_length) {
      throw DataError("source sentence {} has {} tokens; the model takes at most {} (model.max_length = {})", number,
                      readable_count(length), readable_count(model_.max_length - 1), model_.max_length);
    }
    Sentence sentence;
    sentence.number = number;
    sentence.cost = (length + 1) * options_.beam_size;
    std::int64_t const tokens =
        options_.max_length > 0 ? options_.max_length : std::max(default_length(length), options_.min_length);
    sentence.finished.resize(static_cast<std::size_t>(options_.beam_groups));
    sentence.start = start.empty() ? Tokens{model_.ids.target.begin} : std::move(start);
    if (has_encoder()) {
      sentence.source = std::move(source);
    } else {
      sentence.start.insert(sentence.start.end(), source.tokens.begin(), source.tokens.end());
    }
    if (options_.shortlist) {
      sentence.shortlist = options_.shortlist->tokens(sentence.source.tokens, ends_);
    }
    sentence.longest = std::min(tokens + 1, model_.max_length - sentence.start_end());
    waiting_cost_ += sentence.cost;
    waiting_.push_back(std::move(sentence));
  }

  bool remove(std::int64_t number) {
    if (auto const found = std::ranges::find(waiting_, number, &Sentence::number); found != waiting_.end()) {
      waiting_cost_ -= found->cost;
      waiting_.erase(found);
      return true;
    }
    auto const found = std::ranges::find(live_, number, &Sentence::number);
    if (found == live_.end()) {
      return false;
    }
    release(*found);
    live_.erase(found);
    return true;
  }

  bool has_room() const { return live_cost_ + waiting_cost_ < options_.batch_tokens; }
  bool empty() const { return waiting_.empty() && live_.empty(); }

  std::vector<Generated> step() {
    std::vector<Generated> done;
    if (!live_.empty()) {
      Pack const none;
      LayerContext context{execution_, arena_, none};
      decode(context, live_, std::vector<Tensor>(members_.size()), done);
    }
    std::list<Sentence> entering = admit();
    ArenaScope const scope(arena_);
    Pack const pack = has_encoder() && !entering.empty() ? source_pack(entering) : Pack();
    LayerContext context{execution_, arena_, pack};
    if (options_.shortlist) {
      shortlisted_.select(context, live_, entering);
    }
    if (!entering.empty()) {
      std::vector<Tensor> encoder_outputs;
      for (WeightedModel const& member : members_) {
        encoder_outputs.push_back(member.model->encode(context));
      }
      decode(context, entering, encoder_outputs, done);
      live_.splice(live_.end(), entering);
    }
    return done;
  }

 private:
  bool has_encoder() const { return model_.model.has_encoder_output(); }

  /// The sentences that enter now: not a few at a time, which would make steps of few rows.
  std::list<Sentence> admit() {
    std::list<Sentence> entering;
    if (4 * live_cost_ > 3 * options_.batch_tokens) {
      return entering;
    }
    while (!waiting_.empty() && (live_cost_ == 0 || live_cost_ + waiting_.front().cost <= options_.batch_tokens)) {
      Sentence& sentence = waiting_.front();
      waiting_cost_ -= sentence.cost;
      live_cost_ += sentence.cost;
      sentence.capacity = sentence.start_end() + sentence.longest;
      sentence.first_token_row = token_rows_.take(options_.beam_size * sentence.capacity);
      sentence.first_state = states_.take(options_.beam_size);
      sentence.first_source_row = source_rows_.take(sentence.source_rows());
      entering.splice(entering.end(), waiting_, waiting_.begin());
    }
    return entering;
  }

  void release(Sentence const& sentence) {
    live_cost_ -= sentence.cost;
    token_rows_.release(sentence.first_token_row);
    states_.release(sentence.first_state);
    source_rows_.release(sentence.first_source_row);
  }

  Pack source_pack(std::list<Sentence> const& sentences) {
    std::vector<SampleSide> sources;
    for (Sentence const& sentence : sentences) {
      sources.push_back(sentence.source);
    }
    return make_source_pack(sources, model_.ids.source, &pack_memory_);
  }

  /// One step of sentences that are all new or all not. Sentences that are done leave the list.
  void decode(LayerContext& context, std::list<Sentence>& sentences, std::vector<Tensor> const& encoder_outputs,
              std::vector<Generated>& done) {
    ArenaScope const scope(arena_);
    StepLists lists(sentences);
    auto const [tokens, step] = upload_.upload(lists, {token_rows_.count(), source_rows_.count(), states_.count()});
    std::vector<Tensor> logits;
    for (std::size_t member = 0; member < members_.size(); ++member) {
      logits.push_back(members_[member].model->decode(context, tokens, encoder_outputs[member], step, caches_[member],
                                                      options_.shortlist ? &shortlisted_.selection(member) : nullptr));
    }
    auto const rankings = rank(context, sentences, logits);
    std::size_t row = 0;
    for (auto sentence = sentences.begin(); sentence != sentences.end();) {
      std::size_t const rows = sentence->live.size();
      auto const own = std::span(rankings).subspan(row, rows);
      advance(*sentence, own);
      row += rows;
      if (sentence->live.empty()) {
        release(*sentence);
        done.push_back(result_of(*sentence));
        sentence = sentences.erase(sentence);
      } else {
        ++sentence;
      }
    }
  }

  /// The rankings of the tokens that may follow each live hypothesis.
  std::vector<RowRanking> rank(LayerContext& context, std::list<Sentence> const& sentences,
                               std::vector<Tensor> const& logits) const {
    std::vector<Tokens> left_out;
    std::size_t max_left_out = 0;
    for (Sentence const& sentence : sentences) {
      for (LiveHypothesis const& hypothesis : sentence.live) {
        left_out.push_back(constraints_.left_out(sentence.start, hypothesis.tokens));
        max_left_out = std::max(max_left_out, left_out.back().size());
      }
    }
    auto const columns = options_.shortlist ? shortlisted_.columns(sentences) : std::vector<RankedColumns>();
    auto rankings = rankings_.rank(context, logits, left_out.size(), wanted_ + max_left_out, columns);
    for (std::size_t row = 0; row < rankings.size(); ++row) {
      leave_out(left_out[row], wanted_, ends_.front(), rankings[row]);
    }
    return rankings;
  }

  Generated result_of(Sentence& sentence) const {
    std::vector<Hypothesis> results;
    for (Hypothesis& hypothesis : sentence.finished | std::views::join) {
      // Groups may find the same.
      if (options_.beam_groups == 1 ||
          std::ranges::find(results, hypothesis.tokens, &Hypothesis::tokens) == results.end()) {
        results.push_back(std::move(hypothesis));
      }
    }
    std::ranges::stable_sort(results, std::greater(), &Hypothesis::score);
    results.resize(std::min(results.size(), static_cast<std::size_t>(options_.n_best)));
    return {sentence.number, std::move(results)};
  }

  /// Extends the live hypotheses, whose next tokens `rankings` ranks, or ends them. The sentence is done if none is
  /// left.
  void advance(Sentence& sentence, std::span<RowRanking const> rankings) const {
    if (sentence.length() + 1 < sentence.longest) {
      extend(sentence, rankings);
      return;
    }
    SearchStep step{sentence.number, sentence.length()};
    for (std::size_t row = 0; row < rankings.size(); ++row) {
      LiveHypothesis& live = sentence.live[row];
      double const log_probability = live.log_probability + rankings[row].end_log_probability;
      finish(sentence.finished[live.group], std::move(live.tokens), log_probability);
      step.extensions.push_back({row, ends_.front(), log_probability, Fate::finished});
    }
    sentence.live.clear();
    report(step);
  }

  void extend(Sentence& sentence, std::span<RowRanking const> rankings) const {
    SearchStep step{sentence.number, sentence.length()};
    std::vector<LiveHypothesis> next;
    std::vector<std::size_t> ends;  // of the groups in `next`
    for (std::size_t group = 0; group < sentence.finished.size(); ++group) {
      extend_group(sentence, group, rankings, next, step);
      ends.push_back(next.size());
    }
    report(step);
    std::vector<LiveHypothesis> live;
    for (std::size_t group = 0, begin = 0; group < ends.size(); begin = ends[group++]) {
      std::span const own(next.begin() + static_cast<std::ptrdiff_t>(begin),
                          next.begin() + static_cast<std::ptrdiff_t>(ends[group]));
      if (!is_done(sentence, sentence.finished[group], own)) {
        std::ranges::move(own, std::back_inserter(live));
      }
    }
    place_children(live, options_.beam_size);
    sentence.live = std::move(live);
  }

  /// Adds the results of a group's hypotheses to the sentence, to `next` and to the step.
  void extend_group(Sentence& sentence, std::size_t group, std::span<RowRanking const> rankings,
                    std::vector<LiveHypothesis>& next, SearchStep& step) const {
    std::vector<Candidate> candidates = options_.sampling.temperature > 0
                                            ? std::vector{drawn_candidate(sentence, rankings.front())}
                                            : best_candidates(sentence, group, rankings, next);
    std::size_t const end = next.size() + group_size_;
    std::size_t rank = 0;
    for (auto& [extension, subtracted] : candidates) {
      LiveHypothesis const& parent = sentence.live[extension.parent];
      if (std::ranges::find(ends_, extension.token) != ends_.end()) {
        if (rank < group_size_) {
          extension.fate = Fate::finished;
          finish(sentence.finished[group], parent.tokens, extension.log_probability);
        }
      } else if (next.size() < end) {
        extension.fate = Fate::live;
        next.push_back({0, parent.place, parent.tokens, extension.log_probability, group, subtracted});
        next.back().tokens.push_back(extension.token);
      }
      step.extensions.push_back(extension);
      ++rank;
    }
  }

  std::vector<Candidate> best_candidates(Sentence const& sentence, std::size_t group,
                                         std::span<RowRanking const> rankings,
                                         std::span<LiveHypothesis const> of_earlier_groups) const {
    std::vector<Candidate> candidates;
    for (std::size_t row = 0; row < rankings.size(); ++row) {
      LiveHypothesis const& parent = sentence.live[row];
      if (parent.group != group && !sentence.is_new()) {
        continue;
      }
      for (auto const& [token, log_probability] : rankings[row].best) {
        auto const uses =
            std::ranges::count(of_earlier_groups, token, [](auto const& child) { return child.tokens.back(); });
        candidates.push_back({{row, token, parent.log_probability + log_probability},
                              parent.subtracted + static_cast<double>(uses) * options_.diversity});
      }
    }
    // These hold enough that do not end, since each row ends only by one of these tokens.
    auto const count = std::min(candidates.size(), (1 + ends_.size()) * group_size_);
    std::ranges::partial_sort(
        candidates, candidates.begin() + static_cast<std::ptrdiff_t>(count), {}, [](Candidate const& each) {
          auto const& [extension, subtracted] = each;
          return std::tuple(subtracted - extension.log_probability, extension.parent, extension.token);
        });
    candidates.resize(count);
    return candidates;
  }

  Candidate drawn_candidate(Sentence const& sentence, RowRanking const& ranking) const {
    RankedToken const token = draw_token(options_.sampling, ranking.best, {sentence.number, sentence.length()});
    return {{0, token.token, sentence.live.front().log_probability + token.log_probability}};
  }

  void finish(std::vector<Hypothesis>& finished, Tokens tokens, double log_probability) const {
    auto const length = static_cast<std::int64_t>(tokens.size()) + 1;
    finished.push_back({std::move(tokens), log_probability, score(log_probability, length)});
  }

  /// Whether a group has what is wanted of it, and those that would be live after this step cannot be better.
  bool is_done(Sentence const& sentence, std::vector<Hypothesis> const& finished,
               std::span<LiveHypothesis const> next) const {
    std::size_t const wanted = std::min(static_cast<std::size_t>(options_.n_best), group_size_);
    if (finished.size() < wanted || next.empty()) {
      return next.empty();
    }
    if (group_size_ == 1) {  // greedy: what a longer hypothesis could score does not count
      return true;
    }
    std::vector<double> scores;
    for (Hypothesis const& hypothesis : finished) {
      scores.push_back(hypothesis.score);
    }
    std::nth_element(scores.begin(), scores.begin() + static_cast<std::ptrdiff_t>(wanted) - 1, scores.end(),
                     std::greater<>());
    // A live hypothesis at best keeps its log-probability when it ends; its score is then best at one of the ends of
    // its possible lengths or, with a word penalty, between them. With as many finished as the group has hypotheses
    // only the near end counts: the far one would keep a search alive long after its best translation was found.
    double const best_live = std::ranges::max(next, {}, &LiveHypothesis::log_probability).log_probability;
    std::int64_t const shortest = std::ssize(next.front().tokens) + 1;
    double reachable = score(best_live, shortest);
    if (static_cast<double>(finished.size()) < options_.patience * static_cast<double>(group_size_)) {
      reachable = std::max(
          {reachable, score(best_live, sentence.longest), score_between(best_live, shortest, sentence.longest)});
    }
    return reachable <= scores[wanted - 1];
  }

  double score(double log_probability, std::int64_t length) const {
    return score_of(options_, log_probability, length);
  }

  /// At least the best score of a log-probability at the lengths in between: at the one where the derivative is 0.
  double score_between(double log_probability, std::int64_t shortest, std::int64_t longest) const {
    double const slope = options_.word_penalty * (1 - options_.length_penalty);
    double const length = slope == 0 ? 0 : -options_.length_penalty * log_probability / slope;
    if (!(length > static_cast<double>(shortest) && length < static_cast<double>(longest))) {
      return -std::numeric_limits<double>::infinity();
    }
    return (log_probability - options_.word_penalty * length) / std::pow(length, options_.length_penalty);
  }

  void report(SearchStep const& step) const {
    if (options_.observer != nullptr) {
      options_.observer->extended(step);
    }
  }

  Execution& execution_;
  Arena& arena_;
  GenerationModel model_;
  GenerationOptions options_;
  Tokens ends_;  ///< the first one where a hypothesis must end
  Constraints constraints_;
  std::size_t wanted_;
  std::size_t group_size_;
  std::vector<WeightedModel> members_;
  std::vector<std::vector<DecodeCache>> caches_;  ///< of the members
  RowRankings rankings_;
  ShortlistedOutputs shortlisted_;
  PackMemory pack_memory_;
  StepUpload upload_;
  CacheSlots token_rows_, source_rows_, states_;
  std::list<Sentence> waiting_;
  std::list<Sentence> live_;
  std::int64_t waiting_cost_ = 0;
  std::int64_t live_cost_ = 0;
};

Generation::Generation(Execution& execution, Arena& arena, GenerationModel const& model,
                       GenerationOptions const& options) {
  require_valid(options);
  for (WeightedModel const& member : members_of(model)) {
    if (auto const& reason = member.model->no_generation_reason()) {
      throw ConfigError(*reason);
    }
    if (member.model->target_vocabulary() != model.model.target_vocabulary() ||
        member.model->has_encoder_output() != model.model.has_encoder_output()) {
      throw ConfigError("an ensemble needs models with the same vocabularies, all of them with an encoder or none");
    }
  }
  if (options.shortlist) {
    require_shortlist_fits(*options.shortlist, model.model);
  }
  search_ = std::make_unique<Search>(execution, arena, model, options);
}

Generation::~Generation() = default;

void Generation::add(std::int64_t number, SampleSide source, std::vector<std::int32_t> start) {
  search_->add(number, std::move(source), std::move(start));
}

bool Generation::remove(std::int64_t number) {
  return search_->remove(number);
}

bool Generation::has_room() const {
  return search_->has_room();
}

bool Generation::empty() const {
  return search_->empty();
}

std::vector<Generated> Generation::step() {
  return search_->step();
}

std::vector<std::vector<Hypothesis>> generate(Execution& execution, Arena& arena, GenerationModel const& model,
                                              std::span<Tokens const> sources, GenerationOptions const& options,
                                              std::span<Tokens const> starts) {
  Generation generation(execution, arena, model, options);
  for (std::size_t index = 0; index < sources.size(); ++index) {
    generation.add(static_cast<std::int64_t>(index), sources[index], starts.empty() ? Tokens() : starts[index]);
  }
  std::vector<std::vector<Hypothesis>> results(sources.size());
  while (!generation.empty()) {
    for (Generated& generated : generation.step()) {
      results[static_cast<std::size_t>(generated.number)] = std::move(generated.hypotheses);
    }
  }
  return results;
}

}  // namespace heddle
