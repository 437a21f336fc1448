#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <heddle/core/base/error.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/dataset/prepare.hpp>
#include <heddle/io/text/text.hpp>
#include <iterator>
#include <list>
#include <optional>
#include <ostream>
#include <system_error>
#include <utility>
#include <vector>

#include "files/file_descriptor.hpp"
#include "files/pending_file.hpp"
#include "files/progress_line.hpp"

namespace heddle {
namespace {

using Path = std::filesystem::path;

struct TextPair {
  std::string name;  ///< "train" or "valid"
  Path source;
  Path target;
  int64_t lines = 0;
};

int64_t file_bytes(Path const& path) {
  std::error_code failure;
  auto const size = std::filesystem::file_size(path, failure);
  return failure ? 0 : static_cast<int64_t>(size);
}

/// Counts the lines of a text, all of which must be UTF-8.
int64_t survey(Path const& path, std::ostream& out) {
  ProgressLine progress(out, "reading " + path.string(), file_bytes(path));
  LineReader reader(path);
  for (std::string line; reader.next(line);) {
    progress.update(reader.line_number(), reader.file_position());
  }
  if (reader.line_number() == 0) {
    throw DataError(fmt::format("{}: the file is empty; expected one sentence a line", path.string()));
  }
  progress.finish(reader.line_number(), "");
  return reader.line_number();
}

void survey(TextPair& texts, std::ostream& out) {
  texts.lines = survey(texts.source, out);
  int64_t const target_lines = survey(texts.target, out);
  if (texts.lines != target_lines) {
    throw DataError(fmt::format("{} has {} lines but {} has {}: line n of one must translate line n of the other",
                                texts.source.string(), texts.lines, texts.target.string(), target_lines));
  }
}

std::string read_file(Path const& path) {
  std::error_code failure;
  std::ifstream file(path, std::ios::binary);
  if (!file || !std::filesystem::is_regular_file(path, failure)) {
    throw DataError(fmt::format("{}: cannot read this vocabulary model: {}", path.string(),
                                !file ? std::strerror(errno) : "it is no regular file"));
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

Tokenizer load_model(Path const& path) {
  std::string model = read_file(path);
  try {
    return Tokenizer::from_model(std::move(model));
  } catch (DataError const& error) {
    throw DataError(fmt::format("{}: {}", path.string(), error.what()));
  }
}

Tokenizer train_model(PrepareOptions const& options, std::vector<Path> texts, std::ostream& out) {
  out << fmt::format("learning a {} vocabulary of {} pieces\n", options.vocabulary_type, options.vocabulary_size)
      << std::flush;
  TokenizerTraining training;
  training.texts = std::move(texts);
  training.vocabulary_size = options.vocabulary_size;
  training.type = options.vocabulary_type;
  return Tokenizer::train(training);
}

std::optional<Vocabulary> given_vocabulary(PrepareOptions const& options) {
  if (!options.source_model) {
    return std::nullopt;
  }
  Tokenizer const source = load_model(*options.source_model);
  return Vocabulary{source, options.target_model ? load_model(*options.target_model) : source};
}

Vocabulary learn_vocabulary(PrepareOptions const& options, std::ostream& out) {
  if (options.separate_vocabularies) {
    Tokenizer const source = train_model(options, {options.source}, out);
    return {source, train_model(options, {options.target}, out)};
  }
  Tokenizer const joint = train_model(options, {options.source, options.target}, out);
  return {joint, joint};
}

int64_t count_unknown(std::vector<int32_t> const& ids, Tokenizer const& tokenizer) {
  return std::count(ids.begin(), ids.end(), tokenizer.unknown_id());
}

PreparedText encode(TextPair const& texts, PrepareOptions const& options, Vocabulary const& vocabulary,
                    DatasetWriter& writer, std::ostream& out) {
  ProgressLine progress(out, "encoding " + texts.name, file_bytes(texts.source));
  LineReader source_reader(texts.source);
  LineReader target_reader(texts.target);
  PreparedText report;
  std::string source_line;
  std::string target_line;
  while (source_reader.next(source_line) && target_reader.next(target_line)) {
    std::vector<int32_t> const source = vocabulary.source.encode(source_line);
    std::vector<int32_t> const target = vocabulary.target.encode(target_line);
    if (source.empty() || target.empty()) {
      ++report.empty;
    } else if (std::max(std::ssize(source), std::ssize(target)) > options.max_length) {
      ++report.too_long;
    } else {
      writer.add(source, target);
      report.source_tokens += std::ssize(source);
      report.target_tokens += std::ssize(target);
      report.unknown_tokens += count_unknown(source, vocabulary.source) + count_unknown(target, vocabulary.target);
    }
    progress.update(source_reader.line_number(), source_reader.file_position());
  }
  if (source_reader.line_number() != texts.lines || target_reader.line_number() != texts.lines) {
    throw DataError(fmt::format("{} or {} changed while being read (pipes cannot be read twice; use files)",
                                texts.source.string(), texts.target.string()));
  }
  report.pairs = writer.size();
  if (report.pairs == 0) {
    throw DataError(fmt::format("{} and {}: no sentence pair can be used: {} empty, {} longer than {} tokens",
                                texts.source.string(), texts.target.string(), report.empty, report.too_long,
                                options.max_length));
  }
  progress.finish(texts.lines, fmt::format(" -> {} pairs, {} empty and {} too long left out", report.pairs,
                                           report.empty, report.too_long));
  return report;
}

void check(PrepareOptions const& options) {
  if (options.valid_source.has_value() != options.valid_target.has_value()) {
    throw UsageError("a validation text needs both sides: --valid-source and --valid-target");
  }
  if (options.target_model && !options.source_model) {
    throw UsageError("--target-vocab-model needs --vocab-model for the source side");
  }
  if (options.separate_vocabularies && options.source_model && !options.target_model) {
    throw UsageError("--separate-vocab with --vocab-model needs --target-vocab-model, too");
  }
  if (options.max_length < 1 || options.vocabulary_size < 1) {
    throw UsageError(fmt::format("--max-length ({}) and --vocab-size ({}) must be at least 1", options.max_length,
                                 options.vocabulary_size));
  }
}

/// The files that this command may write to its directory.
constexpr std::array<char const*, 5> output_names = {"train.h5", "valid.h5", "vocab.model", "vocab.source.model",
                                                     "vocab.target.model"};

void refuse_to_replace(PrepareOptions const& options) {
  for (char const* const name : output_names) {
    Path const path = options.directory / name;
    if (!options.overwrite && std::filesystem::exists(path)) {
      throw DataError(fmt::format("{} exists: choose another --out, or replace it with --overwrite", path.string()));
    }
  }
}

/// The vocabulary's model files, written but not yet renamed to their final names.
std::list<PendingFile> write_models(PrepareOptions const& options, Vocabulary const& vocabulary) {
  std::list<PendingFile> files;
  auto const write = [&](char const* name, Tokenizer const& tokenizer) {
    PendingFile& pending = files.emplace_back(options.directory / name);
    write_new_file(pending.temporary(), tokenizer.model());
    pending.sync();
  };
  if (vocabulary.joint()) {
    write("vocab.model", vocabulary.source);
  } else {
    write("vocab.source.model", vocabulary.source);
    write("vocab.target.model", vocabulary.target);
  }
  return files;
}

}  // namespace

PrepareReport prepare(PrepareOptions const& options, std::ostream& progress) {
  check(options);
  refuse_to_replace(options);
  std::optional<Vocabulary> const given = given_vocabulary(options);
  PendingDirectory directory(options.directory);
  std::vector<TextPair> texts = {{"train", options.source, options.target}};
  if (options.valid_source) {
    texts.push_back({"valid", *options.valid_source, *options.valid_target});
  }
  for (TextPair& pair : texts) {
    survey(pair, progress);
  }
  Vocabulary const vocabulary = given ? *given : learn_vocabulary(options, progress);

  // Everything is written under temporary names first, so that any failure leaves no file.
  std::list<PendingFile> models = write_models(options, vocabulary);
  std::vector<DatasetWriter> writers;
  std::vector<PreparedText> reports;
  for (TextPair const& pair : texts) {
    DatasetWriter& writer = writers.emplace_back(options.directory / (pair.name + ".h5"), vocabulary);
    reports.push_back(encode(pair, options, vocabulary, writer, progress));
    writer.finish();
  }
  for (char const* const name : output_names) {
    std::filesystem::remove(options.directory / name);
  }
  for (PendingFile& model : models) {
    model.commit();
  }
  for (DatasetWriter& writer : writers) {
    writer.commit();
  }
  directory.keep();

  PrepareReport report{reports.front(), {}, vocabulary.source.size(), vocabulary.target.size(), vocabulary.joint()};
  if (reports.size() > 1) {
    report.valid = reports[1];
  }
  return report;
}

}  // namespace heddle
