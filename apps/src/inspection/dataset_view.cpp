#include "dataset_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/readable.hpp>
#include <string>
#include <utility>

namespace heddle {
namespace {

constexpr std::int64_t packed_tokens = 512;  ///< of the longer side

struct DatasetSide {
  char const* name;
  SampleLength length;
};

std::vector<DatasetSide> sides_of(Dataset const& dataset) {
  return dataset.has_lines()
             ? std::vector<DatasetSide>{{"line", SampleLength::line}}
             : std::vector<DatasetSide>{{"source", SampleLength::source}, {"target", SampleLength::target}};
}

/// At most 40 bins of equal width: [first length, last length, samples].
boost::json::array histogram(LengthCounts const& lengths) {
  constexpr std::int64_t max = 40;
  std::int64_t const longest = lengths.rbegin()->first;
  std::int64_t const width = (longest + max - 1) / max;
  std::vector<std::int64_t> counts(static_cast<std::size_t>((longest + width - 1) / width));
  for (auto const& [length, samples] : lengths) {
    counts[static_cast<std::size_t>((length - 1) / width)] += samples;
  }
  boost::json::array bins;
  for (std::size_t bin = 0; bin < counts.size(); ++bin) {
    auto const first = static_cast<std::int64_t>(bin) * width + 1;
    bins.push_back(boost::json::array{first, first + width - 1, counts[bin]});
  }
  return bins;
}

/// A side of a pack and the lengths of its sequences.
struct PackedSide {
  std::string name;
  boost::json::array lengths = {};
};

boost::json::object to_json(std::vector<PackedSide> sides) {
  boost::json::array packed;
  for (PackedSide& side : sides) {
    packed.push_back({{"name", side.name}, {"lengths", std::move(side.lengths)}});
  }
  return {{"sides", std::move(packed)}};
}

/// The lengths of the first samples that together have packed_tokens on their longer side, with the end token.
boost::json::object pack_of_dataset(Dataset const& dataset, std::vector<DatasetSide> const& sides) {
  std::vector<PackedSide> packed;
  for (DatasetSide const& side : sides) {
    packed.push_back({dataset.has_lines() ? "lines, before they are joined" : side.name});
  }
  std::int64_t tokens = 0;
  for (std::int64_t index = 0; index < dataset.size(); ++index) {
    std::int64_t longer = 0;
    for (DatasetSide const& side : sides) {
      longer = std::max(longer, dataset.length(side.length, index) + 1);
    }
    if (index > 0 && tokens + longer > packed_tokens) {
      break;
    }
    tokens += longer;
    for (std::size_t side = 0; side < sides.size(); ++side) {
      packed[side].lengths.emplace_back(dataset.length(sides[side].length, index) + 1);
    }
  }
  return to_json(std::move(packed));
}

boost::json::array example_text(Dataset const& dataset, std::int64_t index) {
  if (dataset.has_lines()) {
    return {dataset.source_tokenizer().decode(dataset.line(index))};
  }
  return {dataset.source_tokenizer().decode(dataset.source(index)),
          dataset.target_tokenizer().decode(dataset.target(index))};
}

}  // namespace

boost::json::object pack_of_samples(SampleSource const& samples, Dataset const& dataset, std::int64_t max_length) {
  std::string const joined = fmt::format("lines, joined to at most {} tokens", readable_count(max_length));
  PackedSide source{dataset.has_lines() ? joined : "source"};
  PackedSide target{dataset.has_lines() ? joined : "target"};
  SampleCost all;
  for (std::int64_t const index : samples.window(0, 0)) {
    SampleCost const cost = samples.cost(0, index);
    if (cost.longer() > max_length) {
      continue;
    }
    if (all.longer() > 0 && all.longer() + cost.longer() > packed_tokens) {
      break;
    }
    all.source += cost.source;
    all.target += cost.target;
    source.lengths.emplace_back(cost.source);
    target.lengths.emplace_back(cost.target);
  }
  std::vector<PackedSide> sides;
  if (all.source > 0) {
    sides.push_back(std::move(source));
  }
  if (all.target > 0) {
    sides.push_back(std::move(target));
  }
  return to_json(std::move(sides));
}

boost::json::object to_json(Dataset const& dataset, std::int64_t examples) {
  auto const sides = sides_of(dataset);
  boost::json::array side_entries;
  for (DatasetSide const& side : sides) {
    side_entries.push_back({{"name", side.name},
                            {"tokens", dataset.tokens(side.length)},
                            {"histogram", histogram(dataset.lengths(side.length))}});
  }
  std::int64_t const shown = std::min(examples, dataset.size());
  boost::json::array texts;
  for (std::int64_t example = 0; example < shown; ++example) {
    texts.push_back(example_text(dataset, example * dataset.size() / shown));
  }
  return {{"name", dataset.name()},       {"content", dataset.content()},
          {"samples", dataset.size()},    {"sides", std::move(side_entries)},
          {"examples", std::move(texts)}, {"pack", pack_of_dataset(dataset, sides)}};
}

std::vector<SentenceText> example_sentences(Dataset const& dataset, std::size_t count) {
  constexpr std::int64_t searched = 500;
  constexpr std::int64_t shortest = 6;
  constexpr std::int64_t longest = 20;
  std::vector<SentenceText> texts;
  for (std::int64_t index = 0; index < std::min(searched, dataset.size()) && texts.size() < count; ++index) {
    std::int64_t const length = dataset.has_lines() ? dataset.length(SampleLength::line, index)
                                                    : std::max(dataset.length(SampleLength::source, index),
                                                               dataset.length(SampleLength::target, index));
    if (length >= shortest && length <= longest) {
      texts.push_back(dataset.has_lines()
                          ? SentenceText{dataset.source_tokenizer().decode(dataset.line(index)), std::nullopt}
                          : SentenceText{dataset.source_tokenizer().decode(dataset.source(index)),
                                         dataset.target_tokenizer().decode(dataset.target(index))});
    }
  }
  return texts;
}

}  // namespace heddle
