#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/parse_number.hpp>
#include <limits>
#include <numeric>

#include "command_line/alignment_options.hpp"
#include "command_line/ranks.hpp"
#include "command_line/text_command.hpp"
#include "commands.hpp"
#include "corpus/corpus_output.hpp"
#include "corpus/text_conversion.hpp"
#include "inference/alignment.hpp"
#include "inference/forced_decoding.hpp"
#include "inference/translation.hpp"
#include "run/directory/json_text.hpp"

namespace heddle {
namespace {

namespace po = boost::program_options;
using PieceIds = std::unordered_map<std::string, std::int32_t>;

struct ScoringOptions {
  TrainedModelOptions model;
  TextOptions source;
  std::string target;
  std::string output;
  bool n_best = false;
  bool tokens = false;
  bool pieces = false;
  GenerationOptions penalties;  ///< of the length and the words; the rest is not used
  AlignmentOptions alignment;
  Languages languages;
  int threads = 0;
  Arguments arguments = {};
};

CommandSyntax score_syntax(ScoringOptions& options) {
  CommandSyntax syntax;
  syntax.name = "score";
  syntax.usage = "--checkpoint DIRECTORY --source TEXT --target TEXT [options]";
  syntax.summary = R"(Scores given translations with a trained model (forced decoding), one a line: the
log-probability of the translation and its end, divided by its tokens to the power of --length-penalty, which
is also the score of `heddle translate --n-best`. With --n-best the translations are such a list,
"INDEX ||| TRANSLATION ||| …", and each line is written again with " ||| SCORE" at its end. With --align hard
" ||| ALIGNMENT" follows.)";
  auto const text = [](std::string& into) { return po::value(&into)->value_name("TEXT"); };
  add_model_options(syntax.options, options.model);
  add_language_options(syntax.options, options.languages);
  syntax.options.add_options()                                                                                   //
      ("source", text(options.source.input), "the sources, plain, gzip or zstd")                                 //
      ("target", text(options.target), "their translations: line n belongs to line n")                           //
      ("n-best", po::bool_switch(&options.n_best), "--target is a list of several translations of each source")  //
      ("pieces", po::bool_switch(&options.pieces),
       "--target has pieces with spaces between them, as `heddle translate --pieces` writes them: the score is of "
       "these "
       "pieces, and not of those that the text is split into")  //
      ("tokens", po::bool_switch(&options.tokens),
       "write JSON lines with the pieces and the log-probability of each")  //
      ("length-penalty", with_default(options.penalties.length_penalty, "X"),
       "the log-probability is divided by the tokens (and the end) to this power; 0: not at all")  //
      ("word-penalty", with_default(options.penalties.word_penalty, "X"),
       "subtracted from the log-probability for each token (and the end) before that")  //
      ("output", text(options.output), "write to this file instead of the standard output");
  add_alignment_options(syntax.options, options.alignment);
  add_text_options(syntax.options, options.source, "scored");
  add_threads(syntax.options, options.threads);
  return syntax;
}

/// The sources and translations to score, in pieces; of a list of several translations, a source for each.
class ScoredLines {
 public:
  ScoredLines(ScoringOptions const& options)
      : window_(options.source.window.value_or(TextOptions::default_window)),
        text_(options.source, options.n_best ? std::vector<std::string>() : std::vector{options.target}) {
    if (options.n_best) {
      require_different_pipes({options.source.input, options.target});
      list_.emplace(options.target, options.source.invalid_utf8);
    }
  }

  LineSource const& text() const { return text_; }
  void warn_of_invalid() const {
    text_.warn_of_invalid();
    if (list_) {
      warn_of_invalid_lines(*list_);
    }
  }

  std::optional<Chunk> next_chunk() {
    if (!list_) {
      return text_.next_chunk();
    }
    Chunk chunk;
    std::size_t bytes = 0;
    for (std::string line; std::ssize(chunk.lines) < window_ && bytes < max_bytes && list_->next(line);) {
      chunk.lines.push_back(of_list(line));
      bytes += chunk.lines.back().text.size() + 2 * line.size();
    }
    return chunk.lines.empty() ? std::nullopt : std::optional(std::move(chunk));
  }

 private:
  /// A line "INDEX ||| TRANSLATION ||| …", with the source of that index.
  SourceLine of_list(std::string const& line) {
    constexpr std::string_view bar = " ||| ";
    std::size_t const first = line.find(bar);
    std::size_t const second = first == line.npos ? line.npos : line.find(bar, first + bar.size());
    std::int64_t const index = parse_number<std::int64_t>(line.substr(0, first)).value_or(-1);
    if (first == line.npos || index < std::max<std::int64_t>(source_.number - 1, 0)) {
      throw DataError(
          "{}: line {}: expected INDEX ||| TRANSLATION, with an index from 0 on that is not less "
          "than the one before",
          list_->path().string(), list_->line_number());
    }
    while (source_.number <= index) {
      if (!text_.next(source_)) {
        throw DataError("{}: line {}: there is no line {} of {}", list_->path().string(), list_->line_number(),
                        index + 1, text_.path());
      }
    }
    SourceLine pair = source_;
    pair.number = list_->line_number();
    std::size_t const begin = first + bar.size();
    pair.references = {line.substr(begin, second == line.npos ? line.npos : second - begin), line};
    return pair;
  }

  static constexpr std::size_t max_bytes = std::size_t{16} << 20;

  std::int64_t window_;
  LineSource text_;
  std::optional<LineReader> list_;  ///< of several translations of each source
  SourceLine source_;
};

std::string format_score(ScoringOptions const& options, TrainedModel const& model, SourceLine const& line,
                         GivenTarget const& given, ForcedTarget const& forced) {
  std::vector<double> const& losses = forced.losses;
  AlignedPair pair{given, forced};
  if (options.alignment.words && !losses.empty()) {
    pair.source_words = words_of(model.vocabulary().source, line.text, given.source.size());
    pair.target_words = words_of(model.vocabulary().target, line.references.front(), given.target.size());
  }
  double const log_probability = -std::accumulate(losses.begin(), losses.end(), 0.0);
  double const score = losses.empty() ? std::numeric_limits<double>::quiet_NaN()
                                      : score_of(options.penalties, log_probability, std::ssize(losses));
  if (!options.tokens) {
    return fmt::format("{}{:.6f}{}\n", options.n_best ? line.references.back() + " ||| " : "", score,
                       options.alignment.wanted() ? " ||| " + alignment_text(options.alignment, pair) : "");
  }
  if (losses.empty()) {
    return "null\n";
  }
  boost::json::array pieces;
  boost::json::array log_probabilities;
  for (std::size_t index = 0; index < losses.size(); ++index) {
    Tokenizer const& tokenizer = model.vocabulary().target;
    pieces.emplace_back(
        tokenizer.piece(index < given.target.size() ? given.target[index] : tokenizer.special_ids().end));
    log_probabilities.emplace_back(-losses[index]);
  }
  boost::json::object object{{"score", score},
                             {"log_probability", log_probability},
                             {"tokens", std::move(pieces)},
                             {"log_probabilities", std::move(log_probabilities)}};
  if (options.alignment.wanted()) {
    add_alignment(object, options.alignment, model, pair);
  }
  return json_text(object) + "\n";
}

/// Reads the tokens of a given translation: of its text or, by these ids, of its pieces.
std::vector<std::int32_t> target_tokens(SourceLine const& line, Tokenizer const& tokenizer, PieceIds const& ids) {
  if (ids.empty()) {
    return tokenizer.encode(line.references.front());
  }
  try {
    return parse_pieces(line.references.front(), ids);
  } catch (DataError const& error) {
    throw DataError("--target, line {}: {}", line.number, error.what());
  }
}

ChunkResult score_chunk(ScoringOptions const& options, ForcedDecoding const& forcing, TrainedModel& model,
                        PieceIds const& ids, Chunk const& chunk) {
  ChunkResult result{.number = chunk.number, .lines = std::ssize(chunk.lines)};
  std::vector<GivenTarget> given;
  for (SourceLine const& line : chunk.lines) {
    given.push_back({model.vocabulary().source.encode(line.text), target_tokens(line, model.vocabulary().target, ids)});
    result.tokens += std::ssize(given.back().target) + 1;
  }
  std::vector<ForcedTarget> const forced = forcing.decode(model, given);
  for (std::size_t index = 0; index < given.size(); ++index) {
    if (forced[index].losses.empty()) {
      result.messages.push_back(fmt::format("line {}: longer than the model takes (model.max_length = {}): no score",
                                            chunk.lines[index].number, model.config().model.max_length));
    }
    result.text += format_score(options, model, chunk.lines[index], given[index], forced[index]);
  }
  return result;
}

void check_options(ScoringOptions const& options) {
  if (options.model.checkpoint.empty()) {
    throw UsageError("score: --checkpoint is missing: the model to score with");
  }
  if (options.source.input.empty() || options.target.empty()) {
    throw UsageError("score: --source and --target are needed: the texts, and the translations to score");
  }
  if (options.n_best && options.tokens) {
    throw UsageError("score: --n-best writes a list, and --tokens JSON lines: give only one of the two");
  }
  if (options.pieces && options.alignment.words) {
    throw UsageError("score: --pieces gives pieces, of which --align-words does not know the words: leave one out");
  }
  if (!std::isfinite(options.penalties.length_penalty) || !std::isfinite(options.penalties.word_penalty)) {
    throw UsageError("score: --length-penalty {}, --word-penalty {}: expected finite numbers",
                     options.penalties.length_penalty, options.penalties.word_penalty);
  }
}

ExitCode score(ScoringOptions const& options, MpiSession const* session) {
  Communicator const world = session == nullptr ? Communicator::self() : session->world();
  Processes const processes{make_rank_groups(world, options.model.overrides), session != nullptr, options.threads,
                            options.output.empty()};
  bool const leads = world.rank() == 0;
  if (!options.n_best && leads) {
    require_equal_lines(options.source, {options.target});
  }
  ScoringOptions none;  // another rank reads nothing
  none.source.input = none.target = "/dev/null";
  ScoredLines lines(leads ? options : none);
  auto const require = [](ModelDescription const& description) {
    require_translation(description, "heddle score", commands_for(description));
  };
  TrainedModelOptions of_model = options.model;
  of_model.group = processes.ranks.group;
  ForcedDecoding const forcing = forced_decoding(options.alignment, of_model, options.tokens, "--tokens");
  auto const model = open_model(of_model, require);
  model->choose_languages(options.languages);
  CorpusOutput output(leads ? options.output : "", output_identity("score", options.arguments, model->digest()),
                      {lines.text().path(), options.target});
  PieceIds const ids = options.pieces ? piece_ids(model->vocabulary().target) : PieceIds();
  auto const compute = [&](Chunk const& chunk, std::function<void()> const& pause) {
    pause();
    return score_chunk(options, forcing, *model, ids, chunk);
  };
  auto const next = [&] { return output.next([&] { return lines.next_chunk(); }); };
  convert_chunks(processes, lines.text(), next, compute, [&](ChunkResult const& result) { output.write(result); });
  output.finish();
  lines.warn_of_invalid();
  return ExitCode::done;
}

}  // namespace

ExitCode run_score(Arguments const& arguments) {
  ScoringOptions options;
  options.arguments = arguments;
  parse_options(score_syntax(options), arguments);
  check_options(options);
  return run_on_ranks([&](MpiSession const* session) { return score(options, session); });
}

}  // namespace heddle
