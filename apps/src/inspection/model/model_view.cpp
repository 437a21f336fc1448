#include "model_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/training/micro_batch_source.hpp>
#include <heddle/io/text/text.hpp>
#include <iterator>
#include <numeric>

#include "inspection/model/observed_model.hpp"
#include "inspection/model/search_tree.hpp"
#include "inspection/page/page.hpp"

namespace heddle {
namespace {

constexpr std::size_t max_weights = 6'000'000;  ///< maximum weights on a page: 16 MB of text
constexpr std::int64_t longest_continuation = 40;

char const* name_of(Side side) {
  return side == Side::source ? "source" : "target";
}

/// The weights of each sublayer for a sentence, and their number.
std::pair<boost::json::array, std::size_t> attention_to_json(ObservedModel const& observed, std::size_t sentence) {
  boost::json::array all;
  std::size_t count = 0;
  for (std::size_t index = 0; index < observed.sublayers.size(); ++index) {
    AttentionSublayer const& sublayer = observed.sublayers[index];
    ObservedAttention const& call = observed.calls[index];
    SequenceAttention const& sequence = call.sequences[sentence];
    count += sequence.weights.size();
    all.push_back({{"path", sublayer.path},
                   {"queries", name_of(sublayer.queries)},
                   {"keys", name_of(sublayer.keys)},
                   {"mask", describe(call.mask)},
                   {"heads", call.heads},
                   {"matrix", matrix_to_json(sequence.weights, sequence.keys)}});
  }
  return {std::move(all), count};
}

}  // namespace

std::vector<SentenceText> read_sentences(std::string const& path, std::size_t max) {
  LineReader reader(path);
  std::vector<SentenceText> texts;
  for (std::string line; texts.size() < max && reader.next(line);) {
    std::size_t const tab = line.find('\t');
    SentenceText text{line.substr(0, tab), std::nullopt};
    if (tab != std::string::npos) {
      text.target = line.substr(tab + 1);
    }
    if (!text.source.empty()) {
      texts.push_back(std::move(text));
    }
  }
  if (texts.empty()) {
    throw DataError("{}: has no sentences; expected lines SOURCE<TAB>TARGET", path);
  }
  return texts;
}

ModelView ModelView::open(TrainedModelOptions options, Languages const& languages) {
  ModelView view;
  options.add_kernels = [&](KernelRegistries& kernels, KernelChoices& choices) {
    view.attention_ = install_probe<AttentionProbe, Attention>(kernels, choices);
    view.embedding_ = install_probe<EmbeddingProbe, Embedding>(kernels, choices);
  };
  auto const describe = [&](ModelDescription const& description) { view.description_ = description; };
  view.model_ = TrainedModel::open(options, describe);
  view.model_->choose_languages(languages);
  return view;
}

std::optional<ModelView::Sentence> ModelView::encode(SentenceText const& text, std::int64_t beam_size,
                                                     std::vector<std::string>& notes) {
  Vocabulary const& vocabulary = model_->vocabulary();
  TextFrame const& frame = model_->frame();
  Sentence sentence{vocabulary.source.encode(text.source), {}, {}};
  bool const is_empty = sentence.source.empty();
  sentence.source.insert(sentence.source.begin(), frame.source.begin(), frame.source.end());
  auto const take_target = [&](std::vector<std::int32_t> const& tokens) {
    sentence.target = frame.target;
    sentence.target.insert(sentence.target.end(), tokens.begin(), tokens.end());
  };
  if (text.target) {
    take_target(vocabulary.target.encode(*text.target));
  }
  std::size_t const tokens = has_source() ? std::max(sentence.source.size(), sentence.target.size())
                                          : sentence.source.size() + sentence.target.size();
  if (is_empty || static_cast<std::int64_t>(tokens) > model_->longest_source()) {
    notes.push_back(fmt::format("left out a sentence of {} tokens: the model takes from 1 to {}",
                                readable_count(tokens), readable_count(model_->longest_source())));
    return std::nullopt;
  }
  if (description_.no_generation_reason()) {
    return sentence;
  }
  SearchTree tree;
  GenerationOptions const options{.beam_size = beam_size,
                                  .n_best = beam_size,
                                  .max_length = has_source() ? 0 : longest_continuation,
                                  .observer = &tree};
  auto const starts = has_source() ? std::span(&frame.start, 1) : std::span<std::vector<std::int32_t> const>();
  auto const hypotheses = model_->generate(std::span(&sentence.source, 1), options, starts).front();
  sentence.search = heddle::to_json(tree, hypotheses, vocabulary.target);
  if (!text.target && !hypotheses.empty()) {
    take_target(hypotheses.front().tokens);
  }
  return sentence;
}

boost::json::array ModelView::translations(std::vector<SentenceText> const& pairs, std::int64_t beam_size) {
  if (!has_source() || description_.no_generation_reason()) {
    return {};
  }
  Vocabulary const& vocabulary = model_->vocabulary();
  TextFrame const& frame = model_->frame();
  boost::json::array rows;
  std::vector<std::vector<std::int32_t>> sources;
  for (SentenceText const& pair : pairs) {
    std::vector<std::int32_t> source = frame.source;
    std::ranges::copy(vocabulary.source.encode(pair.source), std::back_inserter(source));
    if (source.size() > frame.source.size() && std::ssize(source) <= model_->longest_source()) {
      sources.push_back(std::move(source));
      rows.push_back(boost::json::array{pair.source, pair.target.value_or("")});
    }
  }
  std::vector<std::vector<std::int32_t>> const starts(sources.size(), frame.start);
  auto const found = model_->generate(sources, {.beam_size = beam_size}, starts);
  embedding_->take();  // no tensor of the search may outlive the model
  for (std::size_t index = 0; index < found.size(); ++index) {
    auto const& hypotheses = found[index];
    rows[index].as_array().emplace_back(hypotheses.empty() ? "" : vocabulary.target.decode(hypotheses.front().tokens));
  }
  return rows;
}

TokenSequence ModelView::sequence_of(Sentence const& sentence, std::int32_t number) const {
  TokenSequence sequence{number, {}, {}, 0};
  std::vector<std::int32_t> tokens = sentence.source;
  SpecialIds const ids = model_->vocabulary().special_ids().target;
  bool const encoder = description_.stacks.front().side == Side::source;
  if (encoder && !sentence.target.empty() &&
      ids.begin != SpecialIds::absent) {  // two texts, as joined_samples has them
    tokens.insert(tokens.begin(), ids.begin);
    tokens.insert(tokens.end(), description_.keys.token_types < 2 ? 2 : 1, ids.end);
    sequence.prefix = static_cast<std::int32_t>(tokens.size());
  }
  tokens.insert(tokens.end(), sentence.target.begin(), sentence.target.end());
  if (encoder) {
    tokens.push_back(ids.end);
    sequence.input = tokens;
    sequence.output = tokens;
    return sequence;
  }
  sequence.input = {ids.begin};
  sequence.input.insert(sequence.input.end(), tokens.begin(), tokens.end());
  sequence.output = tokens;
  sequence.output.push_back(ids.end);
  if (description_.needs_prefixes()) {
    sequence.prefix = static_cast<std::int32_t>(sentence.source.size()) + 1;
  }
  return sequence;
}

PackFields ModelView::tokens_of(std::vector<Sentence> const& sentences) const {
  std::vector<Sample> pairs;
  std::vector<TokenSequence> sequences;
  for (Sentence const& sentence : sentences) {
    auto const number = static_cast<std::int32_t>(pairs.size());
    pairs.push_back({number, sentence.source, sentence.target});
    sequences.push_back(sequence_of(sentence, number));
  }
  PackFields tokens;
  if (has_source()) {
    fill_tokens(tokens, pairs, model_->vocabulary().special_ids());
  } else {
    fill_tokens(tokens, sequences, description_.stacks.front().side);
  }
  return tokens;
}

boost::json::array ModelView::pieces(PackFields const& pack, std::size_t sequence, Side side) const {
  Vocabulary const& vocabulary = model_->vocabulary();
  SideFields const& tokens = pack.of(has_source() ? side : description_.stacks.front().side);
  auto const length = tokens.length.begin();
  auto const first = std::accumulate(length, length + static_cast<std::ptrdiff_t>(sequence), std::ptrdiff_t{0});
  boost::json::array texts;
  for (std::int32_t const token : std::span(tokens.id).subspan(first, tokens.length[sequence])) {
    texts.emplace_back((side == Side::source ? vocabulary.source : vocabulary.target).piece(token));
  }
  return texts;
}

boost::json::object ModelView::to_json(std::vector<SentenceText> const& texts, std::int64_t beam_size,
                                       std::vector<std::string>& notes) {
  std::vector<Sentence> sentences;
  for (SentenceText const& text : texts) {
    if (auto sentence = encode(text, beam_size, notes)) {
      sentences.push_back(std::move(*sentence));
    }
  }
  if (sentences.empty()) {
    notes.emplace_back("attention needs sentences: give --source and --target, or --pairs");
    return {};
  }
  embedding_->take();
  attention_->start();
  PackFields const pack = tokens_of(sentences);
  model_->loss(RepeatedPack(make_pack(pack)));
  ObservedModel const observed{attention_sublayers(description_), attention_->stop(), embedding_->take()};
  if (observed.calls.size() != observed.sublayers.size()) {
    notes.push_back(fmt::format("attention is not shown: the model has {} attention sublayers, which made {} calls",
                                observed.sublayers.size(), observed.calls.size()));
    return {};
  }
  boost::json::array shown;
  std::size_t weights = 0;
  for (std::size_t index = 0; index < sentences.size(); ++index) {
    auto [attention, count] = attention_to_json(observed, index);
    weights += count;
    if (weights > max_weights && index > 0) {
      notes.push_back(
          fmt::format("{} of {} sentences are shown: the page would be too large", index, sentences.size()));
      break;
    }
    shown.push_back({{"source", pieces(pack, index, Side::source)},
                     {"target", pieces(pack, index, Side::target)},
                     {"attention", std::move(attention)},
                     {"search", std::move(sentences[index].search)}});
  }
  return {{"sentences", std::move(shown)},
          {"masks", masks_to_json(observed)},
          {"positions", positions_to_json(model_->config(), observed)}};
}

}  // namespace heddle
