#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/random.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/samples/pair_samples.hpp>
#include <heddle/io/samples/sample_source.hpp>
#include <heddle/io/samples/text_samples.hpp>
#include <iterator>
#include <numeric>

namespace heddle {

namespace {

/// The lines of a dataset, or the sources or the targets of its pairs, each after a tag. Keeps a reference to it.
class DatasetTexts final : public TextLines {
 public:
  DatasetTexts(Dataset const& dataset, SampleLength side, std::vector<std::int32_t> tag = {})
      : dataset_(dataset), side_(side), tag_(std::move(tag)) {}
  std::int64_t size() const override { return dataset_.size(); }
  std::int64_t length(std::int64_t line) const override { return std::ssize(tag_) + dataset_.length(side_, line); }
  LengthCounts lengths() const override { return dataset_.lengths(side_); }
  std::vector<std::int32_t> tokens(std::int64_t line, std::int64_t begin, std::int64_t count) const override {
    if (side_ == SampleLength::line) {
      return dataset_.line(line, begin, count);
    }
    std::vector<std::int32_t> tokens;
    dataset_.read(side_, line, tokens);
    tokens.insert(tokens.begin(), tag_.begin(), tag_.end());
    return {tokens.begin() + begin, tokens.begin() + begin + count};
  }

 private:
  Dataset const& dataset_;
  SampleLength side_;
  std::vector<std::int32_t> tag_;
};

/// The totals of samples with the indices [0, size), by asking each for its cost.
SampleTotals totals_of(SampleSource const& samples, std::int64_t size, std::int64_t epoch, std::int64_t max_length) {
  SampleTotals totals;
  for (std::int64_t index = 0; index < size; ++index) {
    add_sample(totals, samples.cost(epoch, index).longer(), 1, max_length);
  }
  return totals;
}

/// The tokens of a corpus's tag. Throws ConfigError where its samples have no sources.
std::vector<std::int32_t> tag_of(CorpusConfig const& corpus, Tokenizer const& tokenizer, std::string const& name,
                                 bool sources) {
  if (corpus.tag.empty()) {
    return {};
  }
  if (!sources) {
    throw ConfigError("{} = {}: a tag is prepended to source sentences, but the model reads no source from {}",
                      corpus.places.of("tag"), to_toml(OptionValue(corpus.tag)), name);
  }
  return tokenizer.encode(corpus.tag);
}

/// A warning about a tag that has unknown pieces, which another tag may have too, or that is several pieces although it
/// could be one. Tags with spaces, which are prompts, may be several.
std::string tag_warning(CorpusConfig const& corpus, Tokenizer const& tokenizer, std::vector<std::int32_t> const& tag) {
  constexpr char const* start_of_word = "\u2581";  // a piece of its own before a tag
  auto const unknown = std::ranges::count(tag, tokenizer.special_ids().unknown);
  auto const pieces = std::ranges::count_if(tag, [&](std::int32_t id) { return tokenizer.piece(id) != start_of_word; });
  bool const prompt = corpus.tag.find(' ') != std::string::npos;
  if (unknown == 0 && (pieces <= 1 || prompt)) {
    return "";
  }
  std::string const text = to_toml(OptionValue(corpus.tag));
  return fmt::format(
      "{}: the vocabulary {}; `heddle prepare --tag {}` without --vocab-model learns one in which it is a single piece",
      corpus.places.of("tag"),
      unknown > 0 ? fmt::format("lacks characters of the tag {}, which are unknown tokens", text)
                  : fmt::format("has the tag {} only as {} pieces", text, pieces),
      prompt ? "\"<tag>\"" : text);
}

/// A pair as one sequence, of which the source with its end token is the prefix.
TokenSequence prefixed(Sample const& pair, SpecialIds const& ids) {
  auto const& source = pair.source.tokens;
  auto const& [target, weights] = pair.target;
  TokenSequence sequence{pair.number, {ids.begin}, {}, static_cast<std::int32_t>(source.size() + 2)};
  sequence.input.insert(sequence.input.end(), source.begin(), source.end());
  sequence.input.push_back(ids.end);
  sequence.output.assign(sequence.input.size() - 1, -1);
  sequence.input.insert(sequence.input.end(), target.begin(), target.end());
  sequence.output.insert(sequence.output.end(), target.begin(), target.end());
  sequence.output.push_back(ids.end);
  sequence.weights = weights;
  if (weights.size() > 1) {
    sequence.weights.insert(sequence.weights.begin(), sequence.input.size() - weights.size(), 1);
  }
  return sequence;
}

}  // namespace

void add_sample(SampleTotals& totals, std::int64_t length, std::int64_t samples, std::int64_t max_length) {
  if (length > max_length) {
    totals.left_out += samples;
    return;
  }
  totals.usable += samples;
  totals.tokens += length * samples;
  totals.longest = std::max(totals.longest, length);
}

SampleCost cost_of_pair(PairForm form, std::int64_t source, std::int64_t target) {
  if (form == PairForm::targets) {
    return {0, target + 1};
  }
  return form == PairForm::pairs ? SampleCost{source + 1, target + 1} : SampleCost{0, source + target + 2};
}

void fill_pairs(PackFields& into, std::span<Sample const> pairs, PairForm form, SideIds const& ids) {
  if (form != PairForm::prefixed) {
    fill_tokens(into, pairs, ids);
    return;
  }
  std::vector<TokenSequence> sequences;
  std::ranges::transform(pairs, std::back_inserter(sequences),
                         [&](Sample const& pair) { return prefixed(pair, ids.target); });
  fill_tokens(into, sequences, Side::target);
}

std::vector<std::int64_t> MemorySamples::window(std::int64_t /*epoch*/, std::int64_t /*window*/) const {
  std::vector<std::int64_t> indices(pairs_.size());
  std::iota(indices.begin(), indices.end(), std::int64_t{0});
  return indices;
}

void MemorySamples::read(std::int64_t /*epoch*/, std::span<std::int64_t const> indices, std::int32_t /*first_number*/,
                         PackFields& into) const {
  std::vector<Sample> pairs;
  for (std::int64_t const index : indices) {
    pairs.push_back(pairs_[static_cast<std::size_t>(index)]);
  }
  fill_tokens(into, pairs, ids_);
}

SampleTotals MemorySamples::totals(std::int64_t epoch, std::int64_t max_length) const {
  return totals_of(*this, std::ssize(pairs_), epoch, max_length);
}

std::string MemorySamples::describe() const {
  return fmt::format("{} sentence pairs", readable_count(std::ssize(pairs_)));
}

DatasetSamples::DatasetSamples(Dataset const& dataset, PairForm form, std::optional<std::uint64_t> seed,
                               std::vector<std::int32_t> tag, std::string warning, SampleFields fields)
    : dataset_(dataset),
      form_(form),
      fields_(std::move(fields)),
      order_(dataset.size(), seed ? std::optional(random_key(*seed, "batches.blocks")) : std::nullopt),
      tag_(std::move(tag)),
      warning_(std::move(warning)) {}

SampleCost DatasetSamples::cost(std::int64_t /*epoch*/, std::int64_t index) const {
  std::int64_t const source =
      form_ == PairForm::targets ? 0 : dataset_.length(SampleLength::source, index) + std::ssize(tag_);
  return cost_of_pair(form_, source, dataset_.length(SampleLength::target, index));
}

SampleTotals DatasetSamples::totals(std::int64_t epoch, std::int64_t max_length) const {
  if (!tag_.empty()) {  // the dataset has no counts of these lengths
    auto const [known, added] = tagged_totals_.try_emplace(max_length);
    if (added) {
      known->second = totals_of(*this, dataset_.size(), epoch, max_length);
    }
    return known->second;
  }
  bool const prefixed = form_ == PairForm::prefixed;
  std::int64_t const special = prefixed ? 2 : 1;
  SampleTotals totals;
  for (auto const& [length, samples] : dataset_.lengths(prefixed                     ? SampleLength::both
                                                        : form_ == PairForm::targets ? SampleLength::target
                                                                                     : SampleLength::longer)) {
    add_sample(totals, length + special, samples, max_length);
  }
  return totals;
}

void DatasetSamples::read(std::int64_t index, std::int32_t number, Sample& pair) const {
  pair.number = number;
  pair.source.tokens.clear();
  if (form_ != PairForm::targets) {
    dataset_.read(SampleLength::source, index, pair.source.tokens);
  }
  dataset_.read(SampleLength::target, index, pair.target.tokens);
  if (!fields_.empty()) {
    dataset_.read_fields(index, fields_, pair);
  }
}

void DatasetSamples::read(std::int64_t /*epoch*/, std::span<std::int64_t const> indices, std::int32_t first_number,
                          PackFields& into) const {
  pairs_.resize(std::max(pairs_.size(), indices.size()));
  for (std::size_t place = 0; place < indices.size(); ++place) {
    Sample& pair = pairs_[place];
    read(indices[place], first_number++, pair);
    if (form_ == PairForm::pairs) {
      put_tag(dataset_, tag_, pair);
    } else if (form_ == PairForm::prefixed) {
      pair.source.tokens.insert(pair.source.tokens.begin(), tag_.begin(), tag_.end());
    }
  }
  fill_pairs(into, std::span(pairs_).first(indices.size()), form_, dataset_.vocabulary().special_ids());
}

std::string DatasetSamples::describe() const {
  return fmt::format("{} sentence pairs{}", readable_count(dataset_.size()),
                     form_ == PairForm::prefixed ? ", the sources as prefixes of the targets" : "");
}

void put_tag(Dataset const& dataset, std::vector<std::int32_t> const& tag, Sample& pair) {
  auto const language = dataset.source_tokenizer().form().source.language == LanguagePosition::none ? 0 : 1;
  pair.source.tokens.insert(pair.source.tokens.begin() + language, tag.begin(), tag.end());
  for (TokenLink& link : pair.alignment) {
    link.source += link.source < language ? 0 : static_cast<std::int32_t>(tag.size());
  }
}

std::optional<std::uint64_t> SampleUse::seed(TrainConfig const& train) const {
  if (!training) {
    return std::nullopt;
  }
  return corpus.name.empty() ? train.seed : random_key(train.seed, corpus.name);
}

std::unique_ptr<SampleSource> samples_for(Config const& config, Task const& task, Dataset const& dataset,
                                          SampleUse const& use) {
  std::string const where = place_of_task(config);
  std::string const data = fmt::format("{} has {}", dataset.name(), dataset.kind());
  std::optional<PairForm> const form = task.pairs(use.prefixes);
  bool const sources = !dataset.has_lines() && form && *form != PairForm::targets;
  std::vector<std::int32_t> tag = tag_of(use.corpus, dataset.source_tokenizer(), dataset.name(), sources);
  if (dataset.has_lines()) {
    auto samples = text_samples(config, task, std::make_unique<DatasetTexts>(dataset, SampleLength::line),
                                dataset.source_tokenizer(), use, dataset.name());
    if (!samples) {
      throw ConfigError(
          "{} is trained on sentence pairs, but {}; make pairs with `heddle prepare --source … --target …`, "
          "set train.task = \"denoising\", or choose one stack, [\"decoder\"] or [\"encoder\"]",
          where, data);
    }
    return samples;
  }
  if (!form) {
    throw ConfigError(
        "{} is trained on lines of text, but {}; make lines with `heddle prepare --text …`, or choose another task",
        where, data);
  }
  if ((*form == PairForm::prefixed || *form == PairForm::joined) && !dataset.joint()) {
    throw ConfigError(
        "{}{} reads sources and targets as one text, but those of {} have "
        "vocabularies of their own; `heddle prepare` without --separate-vocab makes a joint one",
        where, *form == PairForm::prefixed ? " with mask = \"prefix\"" : "", dataset.name());
  }
  if (*form == PairForm::joined) {
    return joined_samples(std::make_unique<DatasetTexts>(dataset, SampleLength::source, std::move(tag)),
                          std::make_unique<DatasetTexts>(dataset, SampleLength::target),
                          text_rule(config, task, dataset.source_tokenizer(), use, dataset.name()));
  }
  std::string warning = tag_warning(use.corpus, dataset.source_tokenizer(), tag);
  return std::make_unique<DatasetSamples>(dataset, *form, use.seed(config.train), std::move(tag), std::move(warning),
                                          use.fields);
}

std::unique_ptr<SampleSource> samples_for_text(Config const& config, Task const& task,
                                               std::shared_ptr<TextPairs const> pairs, Vocabulary const& vocabulary,
                                               Modifiers modifiers, SampleUse const& use, std::string const& where) {
  std::optional<PairForm> const form = task.pairs(use.prefixes);
  std::string const& name = pairs->name();
  if (!form || *form == PairForm::joined) {
    throw ConfigError("{}: {} {}; {}", where, place_of_task(config),
                      form ? "reads both sides as one text" : "is trained on lines of text",
                      form ? "make a dataset with `heddle prepare`, without modifiers"
                           : fmt::format("but {} has sentence pairs: make lines with `heddle prepare --text …`", name));
  }
  if (*form == PairForm::prefixed && !vocabulary.joint()) {
    throw ConfigError(
        "{} with mask = \"prefix\" reads sources and targets as one text, but {} has a vocabulary for each",
        place_of_task(config), name);
  }
  auto const tag = tag_of(use.corpus, vocabulary.source, name, *form != PairForm::targets);
  constexpr WindowOrder::Sizes of_stream{.block_items = 256, .window_blocks = 4};  // a step waits for two windows
  auto const sizes = pairs->is_stream() ? of_stream : WindowOrder::Sizes();
  return pair_samples({.pairs = std::move(pairs),
                       .vocabulary = vocabulary,
                       .form = *form,
                       .seed = use.seed(config.train),
                       .tag = use.corpus.tag,
                       .warning = tag_warning(use.corpus, vocabulary.source, tag),
                       .modifiers = std::move(modifiers),
                       .fields = use.fields,
                       .sizes = sizes,
                       .max_length = config.model.max_length,
                       .batch_tokens = config.train.batch_tokens});
}

}  // namespace heddle
