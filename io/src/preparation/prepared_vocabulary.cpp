#include "prepared_vocabulary.hpp"

#include <fmt/format.h>

#include <future>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/tokenizers/line_sample.hpp>
#include <heddle/io/vocabularies/foreign_vocabularies.hpp>
#include <ostream>

#include "line_blocks.hpp"
#include "progress_line.hpp"
#include "tokenizers/tokenizer_model.hpp"

namespace heddle {
namespace {

Tokenizer load_model(std::filesystem::path const& path, std::ostream& progress) {
  auto [model, problem] = read_file_text(path, static_cast<std::uintmax_t>(max_model_bytes));
  if (!problem.empty()) {
    throw DataError(problem + "; expected a vocabulary model");
  }
  try {
    std::string const note = is_json(model) ? "" : complete_start_and_end(model);
    Tokenizer tokenizer = Tokenizer::from_model(std::move(model));
    if (!note.empty()) {
      progress << fmt::format("{}: {}\n", path.string(), note) << std::flush;
    }
    return tokenizer;
  } catch (DataError const& error) {
    throw DataError("{}: {}", path.string(), error.what());
  }
}

Tokenizer train_model(PrepareOptions const& options, LineSample const& sample) {
  TokenizerTraining training;
  training.vocabulary_size = options.vocabulary_size;
  training.type = options.vocabulary_type;
  training.mask_token = options.lines();
  training.symbols = options.symbols;
  training.sentinels = options.sentinels;
  training.byte_fallback = options.byte_fallback;
  training.split_digits = options.split_digits;
  training.character_coverage = options.character_coverage;
  training.normalization = options.normalization;
  return Tokenizer::train(training, sample);
}

/// Adds the lines of a text, whose sides are numbered from `first` on, to a sample for each side, or to one for both.
/// Counts the lines.
void draw_samples(PrepareOptions const& options, bool ahead, GivenTexts& texts, std::size_t first,
                  std::vector<LineSample>& samples, std::ostream& progress) {
  ProgressLine line(progress, "reading " + texts.describe(), file_bytes(texts.sides.front()));
  LineBlockReader reader(texts, {}, options.invalid_utf8, ahead);
  for (LineBlock block; reader.next(block);) {
    line.update(reader.lines(), reader.file_position());
    for (std::size_t side = 0; side < block.sides.size(); ++side) {
      LineSample& sample = samples.size() > 1 ? samples.at(first + side) : samples.front();
      for (std::size_t index = 0; index < block.size(); ++index) {
        bool const left_out = options.invalid_utf8 == InvalidUtf8::skip && (block.repaired[index] >> side & 1) != 0;
        sample.add(first + side, left_out ? std::string_view() : block.sides[side][index]);
      }
    }
  }
  texts.lines = reader.lines();
  line.finish(reader.lines(), "");
}

}  // namespace

std::optional<Vocabulary> given_vocabulary(PrepareOptions const& options, std::ostream& progress) {
  if (!options.source_model) {
    return options.vocabulary;
  }
  Tokenizer const source = load_model(*options.source_model, progress);
  return Vocabulary{source, options.target_model ? load_model(*options.target_model, progress) : source};
}

Vocabulary learn_vocabulary(PrepareOptions const& options, int threads, GivenTexts& texts, std::ostream& progress) {
  constexpr std::int64_t sample_bytes = std::int64_t{64} << 20;
  std::vector<LineSample> samples(options.separate_vocabularies ? 2 : 1, LineSample(sample_bytes));
  if (options.only_vocabulary && options.tsv.empty()) {  // the sides need not have as many lines
    for (std::size_t side = 0; side < texts.sides.size(); ++side) {
      GivenTexts alone{texts.name, {texts.sides[side]}};
      draw_samples(options, threads > 1, alone, side, samples, progress);
    }
  } else {
    draw_samples(options, threads > 1, texts, 0, samples, progress);
  }
  progress << fmt::format("learning {} of {} pieces\n",
                          options.separate_vocabularies ? fmt::format("two {} vocabularies", options.vocabulary_type)
                                                        : fmt::format("a {} vocabulary", options.vocabulary_type),
                          readable_count(options.vocabulary_size))
           << std::flush;
  if (samples.size() == 1) {
    Tokenizer const joint = train_model(options, samples.front());
    return {joint, joint};
  }
  auto const policy = threads > 1 ? std::launch::async : std::launch::deferred;
  auto target = std::async(policy, [&] { return train_model(options, samples.back()); });
  Tokenizer source = train_model(options, samples.front());
  return {std::move(source), target.get()};
}

}  // namespace heddle
