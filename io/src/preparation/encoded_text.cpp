#include "encoded_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <numeric>
#include <utility>

#include "progress_line.hpp"

namespace heddle {
namespace {

/// The first `count` values, which are taken from `values`.
template <class Value>
std::span<Value const> take(std::span<Value const>& values, std::int32_t count) {
  auto const taken = values.first(static_cast<std::size_t>(count));
  values = values.subspan(taken.size());
  return taken;
}

/// Throws DataError for a text without samples.
void require_samples(PreparedText const& report, std::string const& invalid, GivenTexts const& texts,
                     std::int64_t lines, PrepareOptions const& options) {
  if (report.samples > 0) {
    return;
  }
  if (options.lines()) {
    throw DataError("{}: none of its {} lines has a token{}", texts.describe(), readable_count(lines), invalid);
  }
  throw DataError("{}: no sentence pair can be used: {} empty, {} longer than {} tokens{}", texts.describe(),
                  readable_count(report.empty), readable_count(report.too_long), readable_count(options.max_length),
                  invalid);
}

}  // namespace

DatasetFiles::DatasetFiles(std::filesystem::path directory, std::string name, Vocabulary vocabulary, bool lines,
                           SampleFields fields, std::int64_t max)
    : directory_(std::move(directory)),
      name_(std::move(name)),
      vocabulary_(std::move(vocabulary)),
      lines_(lines),
      fields_(std::move(fields)),
      max_(max) {}

DatasetWriter& DatasetFiles::writer() {
  if (writers_.empty() || (max_ > 0 && writers_.back().size() == max_)) {
    if (!writers_.empty()) {
      writers_.back().finish();
    }
    auto const path = directory_ / (max_ > 0 ? fmt::format("{}-{:05}.h5", name_, writers_.size() + 1) : name_ + ".h5");
    lines_ ? writers_.emplace_back(path, vocabulary_.source) : writers_.emplace_back(path, vocabulary_, fields_);
  }
  return writers_.back();
}

std::int64_t DatasetFiles::samples() const {
  return std::transform_reduce(writers_.begin(), writers_.end(), std::int64_t{0}, std::plus(),
                               [](DatasetWriter const& writer) { return writer.size(); });
}

void DatasetFiles::commit() {
  std::ranges::for_each(writers_, &DatasetWriter::commit);
}

void SampleCollector::add(EncodedBlock const& block) {
  Values next{block.tokens[0], block.tokens[1], block.links, block.weights};
  for (EncodedSample const& sample : block.samples) {
    add(sample, next);
  }
  report_.empty += block.empty;
  report_.too_long += block.too_long;
  report_.invalid += block.invalid;
  unknown_.add(block.unknown_characters);
}

void SampleCollector::add(EncodedSample const& sample, Values& next) {
  auto const source = take(next.source, sample.tokens[0]);
  auto const target = take(next.target, sample.tokens[1]);
  if (pairs_) {
    files_.writer().add({source, target, take(next.links, sample.links), take(next.weights, sample.weights)});
    ratios_.add(sample.tokens[0], sample.tokens[1]);
  } else {
    files_.writer().add(source);
  }
  for (std::size_t side = 0; side < sample.tokens.size(); ++side) {
    report_.tokens.at(side) += sample.tokens.at(side);
    report_.max_tokens.at(side) = std::max<std::int64_t>(report_.max_tokens.at(side), sample.tokens.at(side));
  }
  report_.unknown_tokens += sample.unknown;
  report_.control += sample.control;
  repeats_.add(sample.hash);
}

PreparedText SampleCollector::finish() {
  report_.samples = files_.samples();
  report_.repeats = repeats_.repeats();
  report_.repeats_are_estimated = repeats_.is_estimate();
  report_.unknown_characters = unknown_.kinds();
  report_.frequent_unknown = unknown_.frequent(10);
  std::map<std::string, double> found;
  for (auto const& [name, count] : {std::pair("unknown_tokens", report_.unknown_tokens),
                                    {"unknown_characters", report_.unknown_characters},
                                    {"repeats", report_.repeats},
                                    {"control_characters", report_.control},
                                    {"invalid", report_.invalid},
                                    {"empty", report_.empty},
                                    {"too_long", report_.too_long}}) {
    found[name] = static_cast<double>(count);
  }
  for (auto const& [name, share] : {std::pair("ratio_1", 0.01), {"ratio_50", 0.5}, {"ratio_99", 0.99}}) {
    if (pairs_ && report_.samples > 0) {
      found[name] = ratios_.quantile(share);
    }
  }
  if (report_.samples > 0) {
    files_.set_findings(std::move(found));
  }
  return report_;
}

PreparedText encode_text(GivenTexts const& texts, PrepareOptions const& options, bool ahead, BlockPipeline& pipeline,
                         DatasetFiles& files, std::ostream& progress) {
  bool const pairs = !options.lines();
  ProgressLine line(progress, "encoding " + texts.name, file_bytes(texts.sides.front()));
  GivenFields const fields(texts.name == "train" ? options : PrepareOptions());
  LineBlockReader reader(texts, fields.files(), options.invalid_utf8, ahead);
  SampleCollector collector(files, pairs);
  pipeline.run(reader, [&](EncodedBlock const& block) {
    collector.add(block);
    line.update(reader.lines(), reader.file_position());
  });
  if (texts.lines > 0 && texts.lines != reader.lines()) {
    throw DataError("{} changed while being read", texts.describe());
  }
  PreparedText const report = collector.finish();
  std::string const invalid =
      report.invalid > 0 ? fmt::format(", {} not UTF-8", readable_count(report.invalid)) : std::string();
  require_samples(report, invalid, texts, reader.lines(), options);
  line.finish(reader.lines(),
              pairs ? fmt::format(" -> {} pairs, {} empty and {} too long left out{}", readable_count(report.samples),
                                  readable_count(report.empty), readable_count(report.too_long), invalid)
                    : fmt::format(" -> {} lines, {} empty left out{}", readable_count(report.samples),
                                  readable_count(report.empty), invalid));
  return report;
}

}  // namespace heddle
