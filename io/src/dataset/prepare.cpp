#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/dataset/prepare.hpp>
#include <heddle/io/files/pending_directory.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/text/text.hpp>
#include <iostream>
#include <iterator>
#include <optional>
#include <regex>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "format.hpp"
#include "prepare_options.hpp"
#include "text_findings.hpp"

namespace heddle {
namespace {

using Path = std::filesystem::path;

using Parts = std::vector<TextPart>;

/// A text's file, or its first one of several: "a.en and 2 more".
std::string describe_files(Parts const& parts) {
  std::string const first = parts.front().path.string();
  return parts.size() == 1 ? first : fmt::format("{} and {} more", first, parts.size() - 1);
}

/// The texts of one dataset.
struct Texts {
  std::string name;          ///< "train" or "valid"
  std::vector<Parts> sides;  ///< source and target, with one file of each beside one of the other, or one text
  int64_t lines = 0;

  std::string describe() const {
    bool const two = sides.size() > 1 && sides[0].front().path != sides[1].front().path;
    return describe_files(sides.front()) + (two ? " and " + describe_files(sides[1]) : "");
  }
};

int64_t file_bytes(Parts const& parts) {
  int64_t bytes = 0;
  for (TextPart const& part : parts) {
    std::error_code failure;
    auto const size = std::filesystem::file_size(part.path, failure);
    bytes += failure ? 0 : static_cast<int64_t>(size);
  }
  return bytes;
}

/// Reports the progress of a long pass over a text: on one line that is rewritten if `out` is the terminal's stderr,
/// else as a line every few seconds.
class ProgressLine {
 public:
  ProgressLine(std::ostream& out, std::string what, Parts const& text)
      : out_(out),
        what_(std::move(what)),
        bytes_(file_bytes(text)),
        interactive_(&out == &std::cerr && isatty(STDERR_FILENO) == 1) {}

  void update(PartsReader const& reader) {
    constexpr int64_t lines_between_looks = 256;
    if (reader.line_number() % lines_between_looks != 0 || Clock::now() < next_) {
      return;
    }
    next_ = Clock::now() + interval();
    write(reader.line_number(),
          bytes_ > 0 ? fmt::format(", {} %", std::min<int64_t>(100, reader.file_position() * 100 / bytes_)) : "");
    out_ << (interactive_ ? "" : "\n") << std::flush;
  }

  /// Writes the last line of this pass.
  void finish(int64_t lines, std::string const& result) {
    write(lines, result);
    out_ << '\n' << std::flush;
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::chrono::milliseconds interval() const { return std::chrono::milliseconds(interactive_ ? 200 : 5000); }
  void write(int64_t lines, std::string const& rest) {
    std::string const text = fmt::format("{}: {} lines{}", what_, readable_count(lines), rest);
    out_ << (interactive_ ? fmt::format("\r{:<76}", text) : text);
  }

  std::ostream& out_;
  std::string what_;
  int64_t bytes_;  ///< bytes of the text; 0: unknown
  bool interactive_;
  Clock::time_point next_ = Clock::now() + interval();
};

/// Counts the lines of a file, all of which must be UTF-8 with InvalidUtf8::fail.
int64_t survey(TextPart const& part, InvalidUtf8 invalid_utf8, std::ostream& out) {
  ProgressLine progress(out, "reading " + part.path.string(), {part});
  PartsReader reader({part}, invalid_utf8);
  for (std::string line; reader.next(line);) {
    progress.update(reader);
  }
  progress.finish(reader.line_number(), "");
  return reader.line_number();
}

void survey(Texts& texts, InvalidUtf8 invalid_utf8, std::ostream& out) {
  Parts const& first = texts.sides.front();
  for (std::size_t file = 0; file < first.size(); ++file) {
    int64_t const lines = survey(first[file], invalid_utf8, out);
    texts.lines += lines;
    if (texts.sides.size() == 1 || first[file].side != TextPart::Side::whole_line) {
      continue;  // both sides of a pair are on one line
    }
    TextPart const& second = texts.sides[1][file];
    if (int64_t const others = survey(second, invalid_utf8, out); others != lines) {
      throw DataError(fmt::format("{} has {} lines but {} has {}: line n of one must translate line n of the other",
                                  first[file].path.string(), readable_count(lines), second.path.string(),
                                  readable_count(others)));
    }
  }
}

Tokenizer load_model(Path const& path) {
  auto [model, problem] = read_file_text(path, static_cast<std::uintmax_t>(dataset_format::max_model_bytes));
  if (!problem.empty()) {
    throw DataError(problem + "; expected a vocabulary model");
  }
  try {
    return Tokenizer::from_model(std::move(model));
  } catch (DataError const& error) {
    throw DataError(fmt::format("{}: {}", path.string(), error.what()));
  }
}

Tokenizer train_model(PrepareOptions const& options, Parts texts, std::ostream& out) {
  out << fmt::format("learning a {} vocabulary of {} pieces\n", options.vocabulary_type,
                     readable_count(options.vocabulary_size))
      << std::flush;
  TokenizerTraining training;
  training.texts = std::move(texts);
  training.vocabulary_size = options.vocabulary_size;
  training.type = options.vocabulary_type;
  training.mask_token = !options.text.empty();
  training.symbols = options.symbols;
  training.sentinels = options.sentinels;
  training.byte_fallback = options.byte_fallback;
  training.character_coverage = options.character_coverage;
  training.invalid_utf8 = options.invalid_utf8;
  return Tokenizer::train(training);
}

std::optional<Vocabulary> given_vocabulary(PrepareOptions const& options) {
  if (!options.source_model) {
    return options.vocabulary;
  }
  Tokenizer const source = load_model(*options.source_model);
  return Vocabulary{source, options.target_model ? load_model(*options.target_model) : source};
}

/// `sides` are those of the training text.
Vocabulary learn_vocabulary(PrepareOptions const& options, std::vector<Parts> const& sides, std::ostream& out) {
  if (options.separate_vocabularies) {
    Tokenizer const source = train_model(options, sides.front(), out);
    return {source, train_model(options, sides.back(), out)};
  }
  Parts all;
  for (Parts const& side : sides) {
    all.insert(all.end(), side.begin(), side.end());
  }
  Tokenizer const joint = train_model(options, std::move(all), out);
  return {joint, joint};
}

/// The texts of a dataset, read side by side and encoded.
class EncodedTexts {
 public:
  /// The tokens of `frame` are prepended to each text's own.
  EncodedTexts(Texts const& texts, InvalidUtf8 invalid_utf8, Vocabulary const& vocabulary, TextFrame const& frame)
      : texts_(texts) {
    std::array const tokenizers{&vocabulary.source, &vocabulary.target};
    std::array const prefixes{&frame.source, &frame.target};
    for (std::size_t side = 0; side < texts.sides.size(); ++side) {
      sides_.push_back({PartsReader(texts.sides[side], invalid_utf8), *tokenizers[side], *prefixes[side], {}, {}});
    }
  }

  /// False at the end of a text.
  bool next() {
    for (Side& side : sides_) {
      if (!side.reader.next(side.line)) {
        return false;
      }
      side.ids = side.tokenizer.encode(side.line);
      side.empty = side.ids.empty();
      side.ids.insert(side.ids.begin(), side.prefix.begin(), side.prefix.end());
    }
    return true;
  }

  bool empty() const {
    return std::any_of(sides_.begin(), sides_.end(), [](Side const& side) { return side.empty; });
  }
  /// Whether a side was not UTF-8.
  bool repaired() const {
    return std::any_of(sides_.begin(), sides_.end(), [](Side const& side) { return side.reader.repaired(); });
  }
  int64_t longest() const {
    int64_t longest = 0;
    for (Side const& side : sides_) {
      longest = std::max(longest, std::ssize(side.ids));
    }
    return longest;
  }
  void add_to(DatasetWriter& writer, PreparedText& report) {
    if (sides_.size() == 1) {
      writer.add(sides_[0].ids);
    } else {
      writer.add(sides_[0].ids, sides_[1].ids);
    }
    for (std::size_t index = 0; index < sides_.size(); ++index) {
      auto const& [reader, tokenizer, prefix, line, ids, empty] = sides_[index];
      report.tokens[index] += std::ssize(ids);
      report.max_tokens[index] = std::max(report.max_tokens[index], std::ssize(ids));
      auto const unknown = std::count(ids.begin(), ids.end(), tokenizer.special_ids().unknown);
      report.unknown_tokens += unknown;
      if (unknown > 0) {
        unknown_.add(index, line, tokenizer);
      }
    }
    look_at_lines(report);
  }
  /// Completes the report when all samples are added.
  void finish(PreparedText& report) const {
    report.repeats = repeats_.repeats();
    report.repeats_are_estimated = repeats_.is_estimate();
    report.unknown_characters = unknown_.kinds();
    report.frequent_unknown = unknown_.frequent(10);
  }

  PartsReader const& first() const { return sides_.front().reader; }
  void require_all_read() const {
    if (std::any_of(sides_.begin(), sides_.end(),
                    [&](Side const& side) { return side.reader.line_number() != texts_.lines; })) {
      throw DataError(
          fmt::format("{} changed while being read (pipes cannot be read twice; use files)", texts_.describe()));
    }
  }

 private:
  struct Side {
    PartsReader reader;
    Tokenizer tokenizer;
    std::vector<int32_t> prefix;
    std::string line;
    std::vector<int32_t> ids;
    bool empty = false;  ///< its text has no tokens
  };

  /// Counts what is worth a look in the lines of a sample.
  void look_at_lines(PreparedText& report) {
    std::string sample;
    for (Side const& side : sides_) {
      sample += side.line + '\n';
    }
    repeats_.add(sample);
    report.control +=
        std::ranges::any_of(sides_, [](Side const& side) { return has_control_characters(side.line); }) ? 1 : 0;
  }

  Texts const& texts_;
  std::vector<Side> sides_;
  RepeatCounter repeats_;
  UnknownCharacters unknown_;
};

/// The files of one dataset: each has at most `max` samples, if that is above 0.
class DatasetFiles {
 public:
  DatasetFiles(Path directory, std::string name, Vocabulary vocabulary, bool lines, int64_t max)
      : directory_(std::move(directory)),
        name_(std::move(name)),
        vocabulary_(std::move(vocabulary)),
        lines_(lines),
        max_(max) {}

  /// The file for the next sample.
  DatasetWriter& writer() {
    if (writers_.empty() || (max_ > 0 && writers_.back().size() == max_)) {
      if (!writers_.empty()) {
        writers_.back().finish();
      }
      Path const path =
          directory_ / (max_ > 0 ? fmt::format("{}-{:05}.h5", name_, writers_.size() + 1) : name_ + ".h5");
      lines_ ? writers_.emplace_back(path, vocabulary_.source) : writers_.emplace_back(path, vocabulary_);
    }
    return writers_.back();
  }
  int64_t samples() const {
    int64_t samples = 0;
    for (DatasetWriter const& writer : writers_) {
      samples += writer.size();
    }
    return samples;
  }
  void commit() { std::ranges::for_each(writers_, &DatasetWriter::commit); }

 private:
  Path directory_;
  std::string name_;
  Vocabulary vocabulary_;
  bool lines_;
  int64_t max_;
  std::vector<DatasetWriter> writers_;
};

PreparedText encode(Texts const& texts, PrepareOptions const& options, Vocabulary const& vocabulary,
                    DatasetFiles& files, std::ostream& out) {
  ProgressLine progress(out, "encoding " + texts.name, texts.sides.front());
  bool const pairs = texts.sides.size() > 1;
  EncodedTexts encoded(texts, options.invalid_utf8, vocabulary,
                       pairs ? frame_of(vocabulary, options.languages) : TextFrame());
  PreparedText report;
  while (encoded.next()) {
    progress.update(encoded.first());
    report.invalid += encoded.repaired() ? 1 : 0;
    if (options.invalid_utf8 == InvalidUtf8::skip && encoded.repaired()) {
      continue;
    }
    if (encoded.empty()) {
      ++report.empty;
    } else if (pairs && encoded.longest() > options.max_length) {
      ++report.too_long;
    } else {
      encoded.add_to(files.writer(), report);
    }
  }
  encoded.require_all_read();
  encoded.finish(report);
  report.samples = files.samples();
  std::string const invalid =
      report.invalid > 0 ? fmt::format(", {} not UTF-8", readable_count(report.invalid)) : std::string();
  if (report.samples == 0) {
    throw DataError(pairs ? fmt::format("{}: no sentence pair can be used: {} empty, {} longer than {} tokens{}",
                                        texts.describe(), readable_count(report.empty), readable_count(report.too_long),
                                        readable_count(options.max_length), invalid)
                          : fmt::format("{}: none of its {} lines has a token{}", texts.describe(),
                                        readable_count(texts.lines), invalid));
  }
  progress.finish(texts.lines, pairs ? fmt::format(" -> {} pairs, {} empty and {} too long left out{}",
                                                   readable_count(report.samples), readable_count(report.empty),
                                                   readable_count(report.too_long), invalid)
                                     : fmt::format(" -> {} lines, {} empty left out{}", readable_count(report.samples),
                                                   readable_count(report.empty), invalid));
  return report;
}

/// Whether this command gives files this name.
bool is_output(std::string const& name) {
  constexpr std::array<std::string_view, 4> others = {"valid.h5", "vocab.model", "vocab.source.model",
                                                      "vocab.target.model"};
  return is_training_file(name) || std::ranges::find(others, name) != others.end();
}

/// Throws for files of an earlier command that stay, or that cannot be replaced.
void check_earlier_files(PrepareOptions const& options) {
  std::error_code absent;
  std::set<Path> earlier;
  for (auto const& entry : std::filesystem::directory_iterator(options.directory, absent)) {
    if (is_output(entry.path().filename().string())) {
      earlier.insert(entry.path());
    }
  }
  if (!options.overwrite && !earlier.empty()) {
    throw UsageError(
        fmt::format("{} exists: choose another --out, or replace it with --overwrite", earlier.begin()->string()));
  }
  std::ranges::for_each(earlier, require_replaceable);
}

void write_models(Path const& directory, Vocabulary const& vocabulary) {
  if (vocabulary.source.model() == vocabulary.target.model()) {
    replace_file(directory / "vocab.model", vocabulary.source.model());
  } else {
    replace_file(directory / "vocab.source.model", vocabulary.source.model());
    replace_file(directory / "vocab.target.model", vocabulary.target.model());
  }
}

Parts parts_of(PrepareOptions::Paths const& paths, TextPart::Side side = TextPart::Side::whole_line) {
  Parts parts;
  std::ranges::transform(paths, std::back_inserter(parts), [side](Path const& path) { return TextPart(path, side); });
  return parts;
}

/// The sides of a text that is given in one of three forms; none if it is not given.
std::vector<Parts> sides_of(PrepareOptions::Paths const& source, PrepareOptions::Paths const& target,
                            PrepareOptions::Paths const& tsv, PrepareOptions::Paths const& text) {
  if (!text.empty()) {
    return {parts_of(text)};
  }
  if (!tsv.empty()) {
    return {parts_of(tsv, TextPart::Side::source), parts_of(tsv, TextPart::Side::target)};
  }
  return source.empty() ? std::vector<Parts>() : std::vector<Parts>{parts_of(source), parts_of(target)};
}

std::vector<Texts> texts_of(PrepareOptions const& options) {
  std::vector<Texts> texts{{"train", sides_of(options.source, options.target, options.tsv, options.text)}};
  if (auto sides = sides_of(options.valid_source, options.valid_target, options.valid_tsv, options.valid_text);
      !sides.empty()) {
    texts.push_back({"valid", std::move(sides)});
  }
  return texts;
}

}  // namespace

bool is_training_file(std::string const& name) {
  static std::regex const form(R"(train(-\d{5,})?\.h5)");
  return std::regex_match(name, form);
}

PrepareReport prepare(PrepareOptions const& options, std::ostream& progress) {
  check_options(options);
  check_earlier_files(options);
  std::optional<Vocabulary> const given = given_vocabulary(options);
  if (given && options.text.empty()) {
    frame_of(*given, options.languages);  // before the texts are read
  }
  PendingDirectory directory(options.directory, PendingDirectory::Target::any);
  std::vector<Texts> texts = texts_of(options);
  for (Texts& each : texts) {
    survey(each, options.invalid_utf8, progress);
  }
  Vocabulary const vocabulary = given ? *given : learn_vocabulary(options, texts.front().sides, progress);

  write_models(directory.path(), vocabulary);
  std::vector<PreparedText> reports;
  for (Texts const& each : texts) {
    DatasetFiles files(directory.path(), each.name, vocabulary, !options.text.empty(),
                       each.name == "train" ? options.samples_per_file : 0);
    reports.push_back(encode(each, options, vocabulary, files, progress));
    files.commit();
  }
  directory.commit(options.overwrite ? is_output : nullptr);

  PrepareReport report{reports.front(), {}, vocabulary.source.size(), vocabulary.target.size(), vocabulary.joint()};
  if (reports.size() > 1) {
    report.valid = reports[1];
  }
  return report;
}

}  // namespace heddle
