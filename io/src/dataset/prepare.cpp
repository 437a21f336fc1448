#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/dataset/prepare.hpp>
#include <heddle/io/files/pending_directory.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <heddle/io/vocabularies/foreign_vocabularies.hpp>
#include <iostream>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <system_error>

#include "format.hpp"
#include "given_fields.hpp"
#include "given_texts.hpp"
#include "prepare_options.hpp"
#include "text_findings.hpp"
#include "tokenizers/tokenizer_model.hpp"

namespace heddle {
namespace {

using Path = std::filesystem::path;

int64_t file_bytes(TextFiles const& parts) {
  int64_t bytes = 0;
  for (TextFile const& part : parts) {
    std::error_code failure;
    auto const size = std::filesystem::file_size(part.copy.empty() ? part.path : part.copy, failure);
    bytes += failure ? 0 : static_cast<int64_t>(size);
  }
  return bytes;
}

/// Reports the progress of a long pass over a text: on one line that is rewritten if `out` is the terminal's stderr,
/// else as a line every few seconds.
class ProgressLine {
 public:
  ProgressLine(std::ostream& out, std::string what, TextFiles const& text)
      : out_(out),
        what_(std::move(what)),
        bytes_(file_bytes(text)),
        interactive_(&out == &std::cerr && isatty(STDERR_FILENO) == 1) {}

  void update(TextFilesReader const& reader) {
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
int64_t survey(TextFile const& part, InvalidUtf8 invalid_utf8, std::ostream& out) {
  ProgressLine progress(out, "reading " + part.path.string(), {part});
  TextFilesReader reader({part}, invalid_utf8);
  for (std::string line; reader.next(line);) {
    progress.update(reader);
  }
  progress.finish(reader.line_number(), "");
  return reader.line_number();
}

void survey(GivenTexts& texts, InvalidUtf8 invalid_utf8, std::ostream& out) {
  TextFiles const& first = texts.sides.front();
  for (std::size_t file = 0; file < first.size(); ++file) {
    int64_t const lines = survey(first[file], invalid_utf8, out);
    texts.lines += lines;
    if (texts.sides.size() == 1 || first[file].column != 0) {
      continue;  // both sides of a pair are on one line
    }
    TextFile const& second = texts.sides[1][file];
    if (int64_t const others = survey(second, invalid_utf8, out); others != lines) {
      throw DataError("{} has {} lines but {} has {}: line n of one must translate line n of the other",
                      first[file].path.string(), readable_count(lines), second.path.string(), readable_count(others));
    }
  }
}

/// The vocabulary in a file, with pieces for the start and the end of a text where a SentencePiece model has none.
Tokenizer load_model(Path const& path, std::ostream& out) {
  auto [model, problem] = read_file_text(path, static_cast<std::uintmax_t>(max_model_bytes));
  if (!problem.empty()) {
    throw DataError(problem + "; expected a vocabulary model");
  }
  try {
    std::string const note = is_json(model) ? "" : complete_start_and_end(model);
    Tokenizer tokenizer = Tokenizer::from_model(std::move(model));
    if (!note.empty()) {
      out << fmt::format("{}: {}\n", path.string(), note) << std::flush;
    }
    return tokenizer;
  } catch (DataError const& error) {
    throw DataError("{}: {}", path.string(), error.what());
  }
}

Tokenizer train_model(PrepareOptions const& options, TextFiles texts, std::ostream& out) {
  out << fmt::format("learning a {} vocabulary of {} pieces\n", options.vocabulary_type,
                     readable_count(options.vocabulary_size))
      << std::flush;
  TokenizerTraining training;
  training.texts = std::move(texts);
  training.vocabulary_size = options.vocabulary_size;
  training.type = options.vocabulary_type;
  training.mask_token = options.lines();
  training.symbols = options.symbols;
  training.sentinels = options.sentinels;
  training.byte_fallback = options.byte_fallback;
  training.character_coverage = options.character_coverage;
  training.normalization = options.normalization;
  training.invalid_utf8 = options.invalid_utf8;
  return Tokenizer::train(training);
}

std::optional<Vocabulary> given_vocabulary(PrepareOptions const& options, std::ostream& out) {
  if (!options.source_model) {
    return options.vocabulary;
  }
  Tokenizer const source = load_model(*options.source_model, out);
  return Vocabulary{source, options.target_model ? load_model(*options.target_model, out) : source};
}

/// `sides` are those of the training text.
Vocabulary learn_vocabulary(PrepareOptions const& options, std::vector<TextFiles> const& sides, std::ostream& out) {
  if (options.separate_vocabularies) {
    Tokenizer const source = train_model(options, sides.front(), out);
    return {source, train_model(options, sides.back(), out)};
  }
  TextFiles all;
  for (TextFiles const& side : sides) {
    all.insert(all.end(), side.begin(), side.end());
  }
  Tokenizer const joint = train_model(options, std::move(all), out);
  return {joint, joint};
}

/// The texts of a dataset, read side by side and encoded.
class EncodedTexts {
 public:
  /// The tokens of `frame` are prepended to each text's own; files of fields are read beside them.
  EncodedTexts(GivenTexts const& texts, InvalidUtf8 invalid_utf8, Vocabulary const& vocabulary, TextFrame const& frame,
               GivenFields& fields)
      : texts_(texts), fields_(fields) {
    for (TextFiles const& side : texts.sides) {
      bool const first = sides_.empty();
      sides_.push_back({TextFilesReader(side, invalid_utf8), first ? vocabulary.source : vocabulary.target,
                        first ? frame.source : frame.target});
    }
  }

  /// False at the end of a text.
  bool next() {
    for (Side& side : sides_) {
      if (!side.reader.next(side.line)) {
        return false;
      }
      side.ids = side.tokenizer.encode(side.line);
      side.ids.insert(side.ids.begin(), side.prefix.begin(), side.prefix.end());
    }
    fields_.next();
    return true;
  }

  bool empty() const {
    return std::any_of(sides_.begin(), sides_.end(),
                       [](Side const& side) { return side.ids.size() == side.prefix.size(); });
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
      Sample pair{0, sides_[0].ids, sides_[1].ids};
      fields_.set(sides_[0].encoded(), sides_[1].encoded(), pair);
      writer.add(pair);
    }
    for (std::size_t index = 0; index < sides_.size(); ++index) {
      auto const& [reader, tokenizer, prefix, line, ids] = sides_[index];
      report.tokens[index] += std::ssize(ids);
      report.max_tokens[index] = std::max(report.max_tokens[index], std::ssize(ids));
      auto const unknown = std::count(ids.begin(), ids.end(), tokenizer.special_ids().unknown);
      report.unknown_tokens += unknown;
      if (unknown > 0) {
        unknown_.add(index, line, tokenizer);
      }
    }
    if (sides_.size() > 1) {
      ratios_.add(std::ssize(sides_[0].ids), std::ssize(sides_[1].ids));
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

  /// The report's numbers that the dataset records.
  std::map<std::string, double> findings(PreparedText const& report) const {
    std::map<std::string, double> found;
    for (auto const& [name, count] : {std::pair("unknown_tokens", report.unknown_tokens),
                                      {"unknown_characters", report.unknown_characters},
                                      {"repeats", report.repeats},
                                      {"control_characters", report.control},
                                      {"invalid", report.invalid},
                                      {"empty", report.empty},
                                      {"too_long", report.too_long}}) {
      found[name] = static_cast<double>(count);
    }
    for (auto const& [name, share] : {std::pair("ratio_1", 0.01), {"ratio_50", 0.5}, {"ratio_99", 0.99}}) {
      if (sides_.size() > 1 && report.samples > 0) {
        found[name] = ratios_.quantile(share);
      }
    }
    return found;
  }

  TextFilesReader const& first() const { return sides_.front().reader; }
  void require_all_read() {
    if (std::any_of(sides_.begin(), sides_.end(),
                    [&](Side const& side) { return side.reader.line_number() != texts_.lines; })) {
      throw DataError("{} changed while being read", texts_.describe());
    }
    fields_.require_all_read();
  }

 private:
  struct Side {
    TextFilesReader reader;
    Tokenizer tokenizer;
    std::vector<int32_t> prefix;
    std::string line = {};
    std::vector<int32_t> ids = {};
    EncodedSide encoded() const { return {tokenizer, line, ids, prefix.size()}; }
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

  GivenTexts const& texts_;
  GivenFields& fields_;
  std::vector<Side> sides_;
  RepeatCounter repeats_;
  RatioCounter ratios_;
  UnknownCharacters unknown_;
};

/// The files of one dataset: each has at most `max` samples, if that is above 0.
class DatasetFiles {
 public:
  DatasetFiles(Path directory, std::string name, Vocabulary vocabulary, bool lines, SampleFields fields, int64_t max)
      : directory_(std::move(directory)),
        name_(std::move(name)),
        vocabulary_(std::move(vocabulary)),
        lines_(lines),
        fields_(std::move(fields)),
        max_(max) {}

  /// The file for the next sample.
  DatasetWriter& writer() {
    if (writers_.empty() || (max_ > 0 && writers_.back().size() == max_)) {
      if (!writers_.empty()) {
        writers_.back().finish();
      }
      Path const path =
          directory_ / (max_ > 0 ? fmt::format("{}-{:05}.h5", name_, writers_.size() + 1) : name_ + ".h5");
      lines_ ? writers_.emplace_back(path, vocabulary_.source) : writers_.emplace_back(path, vocabulary_, fields_);
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
  /// Sets those of all samples, before finish().
  void set_findings(std::map<std::string, double> findings) { writers_.back().set_findings(std::move(findings)); }
  void finish() { std::ranges::for_each(writers_, &DatasetWriter::finish); }
  void commit() { std::ranges::for_each(writers_, &DatasetWriter::commit); }

 private:
  Path directory_;
  std::string name_;
  Vocabulary vocabulary_;
  bool lines_;
  SampleFields fields_;
  int64_t max_;
  std::vector<DatasetWriter> writers_;
};

PreparedText encode(GivenTexts const& texts, PrepareOptions const& options, Vocabulary const& vocabulary,
                    GivenFields& fields, DatasetFiles& files, std::ostream& out) {
  ProgressLine progress(out, "encoding " + texts.name, texts.sides.front());
  bool const pairs = texts.sides.size() > 1;
  EncodedTexts encoded(texts, options.invalid_utf8, vocabulary,
                       pairs ? frame_of(vocabulary, options.languages) : TextFrame(), fields);
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
  files.set_findings(encoded.findings(report));
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

/// The files in the directory that this command may have written.
std::set<Path> earlier_files(Path const& directory) {
  std::set<Path> found;
  std::error_code absent;
  for (auto const& entry : std::filesystem::directory_iterator(directory, absent)) {
    if (is_output(entry.path().filename().string())) {
      found.insert(entry.path());
    }
  }
  return found;
}

/// Whether this command replaces files of this name. A validation set is put beside a training dataset of its
/// vocabulary.
bool replaces(PrepareOptions const& options, std::string const& name) {
  return options.has_training_text() ? is_output(name) : name == "valid.h5";
}

/// Throws for files of an earlier command that stay, or that cannot be replaced.
void check_earlier_files(PrepareOptions const& options) {
  auto earlier = earlier_files(options.directory);
  std::erase_if(earlier, [&](Path const& file) { return !replaces(options, file.filename().string()); });
  auto const dataset = std::ranges::find_if(earlier, [](Path const& file) { return file.extension() == ".h5"; });
  if (options.only_vocabulary && dataset != earlier.end()) {
    throw UsageError("{} exists and has a vocabulary of its own: choose another --out for --only-vocab",
                     dataset->string());
  }
  if (!options.overwrite && !earlier.empty()) {
    throw UsageError("{} exists: choose another --out, or replace it with --overwrite", earlier.begin()->string());
  }
  std::ranges::for_each(earlier, require_replaceable);
}

/// Writes the vocabulary's model files. Those of a training dataset to which a validation set is added are there
/// already: throws UsageError if they are others.
void write_models(Path const& directory, PrepareOptions const& options, Vocabulary const& vocabulary) {
  std::map<std::string, std::string> models{{"vocab.model", vocabulary.source.model()}};
  if (vocabulary.source.model() != vocabulary.target.model()) {
    models = {{"vocab.source.model", vocabulary.source.model()}, {"vocab.target.model", vocabulary.target.model()}};
  }
  if (!options.has_training_text()) {
    for (Path const& file : earlier_files(options.directory)) {
      auto const model = models.find(file.filename().string());
      if (file.extension() == ".model" && (model == models.end() || read_regular(file) != model->second)) {
        throw UsageError("{} has another vocabulary: choose another --out, or give --vocab-model {}", file.string(),
                         options.directory.string());
      }
      models.erase(file.filename().string());
    }
  }
  for (auto const& [name, bytes] : models) {
    replace_file(directory / name, bytes);
  }
}

}  // namespace

bool is_training_file(std::string const& name) {
  if (!name.starts_with("train") || !name.ends_with(".h5")) {
    return false;
  }
  std::string const number = name.substr(5, name.size() - 8);  // "" or "-00012"
  return number.empty() ||
         (number.size() >= 6 && number[0] == '-' && number.find_first_not_of("0123456789", 1) == std::string::npos);
}

PrepareReport prepare(PrepareOptions const& options, std::ostream& progress) {
  check_options(options);
  check_earlier_files(options);
  std::optional<Vocabulary> const given = given_vocabulary(options, progress);
  if (given && !options.lines()) {
    frame_of(*given, options.languages);  // before the texts are read
  }
  PendingDirectory directory(options.directory, PendingDirectory::Target::any);
  std::vector<GivenTexts> texts = given_texts(options);
  std::optional<CopiedTexts> copies(std::in_place, texts, directory.path(), progress);
  for (GivenTexts& each : texts) {
    if (!options.only_vocabulary) {
      survey(each, options.invalid_utf8, progress);
    }
  }
  Vocabulary const vocabulary = given ? *given : learn_vocabulary(options, texts.front().sides, progress);
  if (options.only_vocabulary) {
    texts.clear();
  }
  write_models(directory.path(), options, vocabulary);
  PrepareReport report{{}, {}, vocabulary.source.size(), vocabulary.target.size(), vocabulary.joint()};
  for (GivenTexts const& each : texts) {
    bool const train = each.name == "train";
    GivenFields fields(train ? options : PrepareOptions());
    DatasetFiles files(directory.path(), each.name, vocabulary, options.lines(), fields.fields(),
                       train ? options.samples_per_file : 0);
    (train ? report.train : report.valid).emplace(encode(each, options, vocabulary, fields, files, progress));
    files.commit();
  }
  copies.reset();  // NFS keeps a name in the directory for a file that is removed and open
  directory.commit([&](std::string const& name) { return options.overwrite && replaces(options, name); });
  return report;
}

}  // namespace heddle
