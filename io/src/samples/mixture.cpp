#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <heddle/io/samples/mixture.hpp>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace heddle {

namespace {

namespace json = boost::json;

constexpr int cursor_version = 1;
constexpr std::int64_t max_epoch = std::int64_t{1} << 32;  // 32 bits of random numbers' counters

bool same_epoch(SampleId const& left, SampleId const& right) {
  return left.corpus == right.corpus && left.epoch == right.epoch;
}

}  // namespace

std::string corpus_key(std::string const& name) {
  return name.empty() ? "data.train" : "data.corpus." + name;
}

Mixture::Mixture(SampleSource const& samples)
    : corpora_{{.samples = std::shared_ptr<SampleSource const>(std::shared_ptr<void>(), &samples)}} {}

void Mixture::read(std::span<SampleId const> samples, std::int32_t first_number, PackFields& into) const {
  into.source.clear(false);
  into.target.clear(false);
  PackFields part;
  std::vector<std::int64_t> indices;
  for (auto begin = samples.begin(); begin != samples.end();) {
    auto const end = std::find_if_not(begin, samples.end(), [&](SampleId const& id) { return same_epoch(*begin, id); });
    indices.clear();
    std::transform(begin, end, std::back_inserter(indices), [](SampleId const& id) { return id.index; });
    bool const all = begin == samples.begin() && end == samples.end();
    source(*begin).read(begin->epoch, indices, first_number, all ? into : part);
    if (!all) {
      into.source.append(part.source);
      into.target.append(part.target);
    }
    first_number += static_cast<std::int32_t>(end - begin);
    begin = end;
  }
}

SampleTotals Mixture::totals(std::int64_t max_length) const {
  SampleTotals totals;
  for (Corpus const& corpus : corpora_) {
    SampleTotals const own = corpus.samples->totals(0, max_length);
    totals.usable += own.usable;
    totals.left_out += own.left_out;
    totals.tokens += own.tokens;
    totals.longest = std::max(totals.longest, own.longest);
    totals.estimated = totals.estimated || own.estimated;
  }
  return totals;
}

std::vector<std::string> Mixture::warnings() const {
  std::vector<std::string> warnings;
  for (Corpus const& corpus : corpora_) {
    if (std::string const warning = corpus.samples->warning(); !warning.empty()) {
      warnings.push_back(warning);
    }
  }
  return warnings;
}

std::string Mixture::describe() const {
  if (corpora_.size() == 1) {
    return corpora_.front().samples->describe();
  }
  double sum = 0;
  for (Corpus const& corpus : corpora_) {
    sum += corpus.weight;
  }
  std::string text;
  for (Corpus const& corpus : corpora_) {
    text += fmt::format("{}{}: {}{}", text.empty() ? "" : "; ", corpus.name, corpus.samples->describe(),
                        stages_.empty() ? fmt::format(", {:.1f} % of the samples", 100 * corpus.weight / sum) : "");
  }
  return stages_.empty() ? text : text + fmt::format("; in {} stages", stages_.size());
}

MixtureCursor data_cursor(CheckpointContents const& contents, std::string const& where) {
  if (contents.cursor.empty()) {
    return {.corpora = {{.epoch = contents.state.epoch, .position = contents.state.position}}};
  }
  try {
    json::object const cursor = json::parse(contents.cursor).as_object();
    if (cursor.at("version").as_int64() != cursor_version) {
      throw DataError("{}: a data cursor of version {}; this program reads version {}", where,
                      cursor.at("version").as_int64(), cursor_version);
    }
    MixtureCursor result;
    for (json::value const& entry : cursor.at("corpora").as_array()) {
      json::object const& own = entry.as_object();
      json::value const* const digest = own.if_contains("digest");
      result.corpora.push_back({.corpus = std::string(own.at("corpus").as_string()),
                                .epoch = own.at("epoch").as_int64(),
                                .position = own.at("position").as_int64(),
                                .credit = own.at("credit").as_int64(),
                                .digest = digest == nullptr ? "" : std::string(digest->as_string())});
      SampleCursor const& read = result.corpora.back();
      if (read.epoch < 0 || read.epoch > max_epoch || read.position < 0) {
        throw std::out_of_range(fmt::format("epoch {} and position {} are impossible", read.epoch, read.position));
      }
    }
    if (json::value const* const stage = cursor.if_contains("stage")) {
      result.stage = {.stage = stage->at("number").as_int64(),
                      .steps = stage->at("steps").as_int64(),
                      .start_epochs = stage->at("start_epochs").to_number<double>()};
      if (result.stage.stage < 0 || result.stage.steps < 0) {
        throw std::out_of_range("a stage before the first one");
      }
    }
    return result;
  } catch (DataError const&) {
    throw;
  } catch (std::exception const& error) {
    throw DataError("{}: not a data cursor: {}", where, error.what());
  }
}

void set_data_cursor(CheckpointContents& contents, MixtureCursor const& cursor) {
  SampleCursor const& first = cursor.corpora.front();
  bool const alone = cursor.corpora.size() == 1 && first.corpus.empty();
  contents.state.epoch = alone ? first.epoch : 0;  // a step can be any number of a small corpus's epochs
  contents.state.position = alone ? first.position : 0;
  contents.cursor.clear();
  if (alone) {
    return;
  }
  json::array corpora;
  for (SampleCursor const& own : cursor.corpora) {
    json::object entry{
        {"corpus", own.corpus}, {"epoch", own.epoch}, {"position", own.position}, {"credit", own.credit}};
    if (!own.digest.empty()) {
      entry["digest"] = own.digest;
    }
    corpora.push_back(std::move(entry));
  }
  json::object text{{"version", cursor_version}, {"corpora", std::move(corpora)}};
  if (cursor.stage != StageCursor()) {
    text["stage"] = json::object{
        {"number", cursor.stage.stage}, {"steps", cursor.stage.steps}, {"start_epochs", cursor.stage.start_epochs}};
  }
  contents.cursor = json::serialize(text);
}

}  // namespace heddle
