#include "dataset_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/readable.hpp>
#include <heddle/dataset.hpp>
#include <heddle/io/preparation/prepare.hpp>
#include <numeric>
#include <string_view>
#include <utility>

namespace heddle {
namespace {

struct DatasetSide {
  char const* name;
  SampleLength length;
  char const* tokens;
};

std::vector<DatasetSide> sides_of(Dataset const& dataset) {
  return dataset.has_lines() ? std::vector<DatasetSide>{{"line", SampleLength::line, "tokens"}}
                             : std::vector<DatasetSide>{{"source", SampleLength::source, "source tokens"},
                                                        {"target", SampleLength::target, "target tokens"}};
}

/// The length that `share` of the samples do not exceed.
std::int64_t quantile(LengthCounts const& lengths, double share) {
  auto const samples = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0},
                                       [](std::int64_t sum, auto const& one) { return sum + one.second; });
  auto left = static_cast<std::int64_t>(share * static_cast<double>(samples - 1));
  return std::ranges::find_if(lengths, [&](auto const& one) { return (left -= one.second) < 0; })->first;
}

struct LengthBin {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t samples = 0;
};

/// At most `max` bins of equal width up to the 99th percentile, and one more for longer samples.
std::vector<LengthBin> length_bins(LengthCounts const& lengths, std::int64_t max) {
  std::int64_t const common = quantile(lengths, 0.99);
  std::int64_t const longest = lengths.rbegin()->first;
  std::int64_t const width = (common + max - 1) / max;
  std::vector<LengthBin> bins;
  for (std::int64_t first = 1; first <= common; first += width) {
    bins.push_back({first, std::min(first + width - 1, longest)});
  }
  if (bins.back().last < longest) {
    bins.push_back({bins.back().last + 1, longest});
  }
  for (auto const& [length, samples] : lengths) {
    std::ranges::lower_bound(bins, length, {}, &LengthBin::last)->samples += samples;
  }
  return bins;
}

/// Five numbers and a histogram.
std::string describe_lengths(LengthCounts const& lengths, double mean) {
  constexpr std::int64_t bins = 10;
  constexpr std::int64_t bar = 50;
  auto const all = length_bins(lengths, bins);
  std::int64_t const max = std::ranges::max_element(all, {}, &LengthBin::samples)->samples;
  std::string text = fmt::format("min {}, median {}, mean {:.1f}, 99 % up to {}, max {}\n",
                                 readable_count(lengths.begin()->first), readable_count(quantile(lengths, 0.5)), mean,
                                 readable_count(quantile(lengths, 0.99)), readable_count(lengths.rbegin()->first));
  for (auto const& [first, last, inside] : all) {
    std::string const range =
        first == last ? readable_count(first) : fmt::format("{} - {}", readable_count(first), readable_count(last));
    text += fmt::format("  {:>13} {:>11}  {}\n", range, readable_count(inside),
                        std::string(static_cast<std::size_t>((inside * bar + max - 1) / max), '#'));
  }
  return text;
}

/// Counts and ratios of the dataset's text, each with its meaning.
std::vector<std::pair<std::string, std::string>> findings_of(Dataset const& dataset) {
  std::vector<std::pair<std::string, std::string>> found;
  for (TextFinding const& finding : text_findings) {
    if (auto const value = dataset.findings().find(finding.name); value != dataset.findings().end()) {
      bool const ratio = std::string_view(finding.name).starts_with("ratio");
      found.emplace_back(finding.meaning, ratio ? fmt::format("{:.2f}", value->second)
                                                : readable_count(static_cast<std::int64_t>(value->second)));
    }
  }
  return found;
}

/// The texts of a sample's sides.
std::vector<std::string> texts_of(Dataset const& dataset, std::int64_t index) {
  if (dataset.has_lines()) {
    return {dataset.source_tokenizer().decode(dataset.line(index))};
  }
  return {dataset.source_tokenizer().decode(dataset.source(index)),
          dataset.target_tokenizer().decode(dataset.target(index))};
}

/// The sequences of a pack's side as text, their special pieces by name.
boost::json::array texts_of(SideFields const& side, Tokenizer const& tokenizer) {
  constexpr std::string_view start_of_word = "\u2581";
  boost::json::array texts;
  auto token = side.id.begin();
  for (std::int32_t const length : side.length) {
    std::string text;
    for (auto const end = token + length; token != end; ++token) {
      std::string const piece = tokenizer.piece(*token);
      text += piece.starts_with(start_of_word) ? " " + piece.substr(start_of_word.size()) : piece;
    }
    texts.emplace_back(text);
  }
  return texts;
}

/// Passes the indices of at most `count` samples, evenly spread, to `visit`.
template <class Visit>
void for_each_example(Dataset const& dataset, std::int64_t count, Visit const& visit) {
  std::int64_t const shown = std::min(count, dataset.size());
  for (std::int64_t example = 0; example < shown; ++example) {
    visit(example * dataset.size() / shown);
  }
}

}  // namespace

std::vector<std::filesystem::path> datasets_at(std::filesystem::path const& path) {
  if (!std::filesystem::is_directory(path)) {
    return {path};
  }
  std::vector<std::filesystem::path> found;
  for (auto const& entry : std::filesystem::directory_iterator(path)) {
    std::string const name = entry.path().filename().string();
    if (is_training_file(name) || name == "valid.h5") {
      found.push_back(entry.path());
    }
  }
  std::ranges::sort(found);
  return found;
}

std::string describe(Vocabulary const& vocabulary, std::string const& digest, bool has_lines) {
  auto const special = [](Tokenizer const& tokenizer) {
    SpecialIds const& ids = tokenizer.special_ids();
    return fmt::format("{} pieces (padding {}, unknown {}, begin {}, end {}{})", readable_count(tokenizer.size()),
                       ids.padding, ids.unknown, ids.begin, ids.end,
                       ids.mask == SpecialIds::absent ? "" : fmt::format(", mask {}", ids.mask));
  };
  std::string const sizes =
      vocabulary.joint()
          ? fmt::format("vocabulary: {}{}", has_lines ? "" : "joint, ", special(vocabulary.source))
          : fmt::format("vocabularies: source {}; target {}", special(vocabulary.source), special(vocabulary.target));
  return fmt::format("{}\nvocabulary digest: {}\n", sizes, digest);
}

std::string describe(Dataset const& dataset, std::int64_t samples) {
  auto const sides = sides_of(dataset);
  std::string lengths;
  std::vector<std::string> tokens;
  for (DatasetSide const& side : sides) {
    std::int64_t const count = dataset.tokens(side.length);
    tokens.push_back(fmt::format("{} {}", readable_count(count), side.tokens));
    lengths += fmt::format("{} in a {}: {}", side.tokens, dataset.has_lines() ? "line" : "sentence",
                           describe_lengths(dataset.lengths(side.length),
                                            static_cast<double>(count) / static_cast<double>(dataset.size())));
  }
  std::string text = fmt::format(
      "{} {}, {}\ndigest: {}\n{}{}", readable_count(dataset.size()), dataset.kind(), fmt::join(tokens, " and "),
      dataset.digest(), describe(dataset.vocabulary(), dataset.vocabulary_digest(), dataset.has_lines()), lengths);
  for (auto const& [meaning, value] : findings_of(dataset)) {
    text += fmt::format("{}: {}\n", meaning, value);
  }
  for_each_example(dataset, samples, [&](std::int64_t index) {
    text += fmt::format("{} {}\n", dataset.has_lines() ? "line" : "pair", readable_count(index));
    auto const texts = texts_of(dataset, index);
    for (std::size_t side = 0; side < texts.size(); ++side) {
      text += fmt::format("  {}{}\n", dataset.has_lines() ? "" : fmt::format("{}: ", sides[side].name), texts[side]);
    }
  });
  return text;
}

boost::json::object to_json(Dataset const& dataset, std::int64_t samples) {
  constexpr std::int64_t max_bins = 40;
  boost::json::array sides;
  for (DatasetSide const& side : sides_of(dataset)) {
    boost::json::array histogram;
    for (auto const& [first, last, inside] : length_bins(dataset.lengths(side.length), max_bins)) {
      histogram.push_back(boost::json::array{first, last, inside});
    }
    sides.push_back(
        {{"name", side.name}, {"tokens", dataset.tokens(side.length)}, {"histogram", std::move(histogram)}});
  }
  boost::json::array examples;
  for_each_example(dataset, samples,
                   [&](std::int64_t index) { examples.push_back(boost::json::value_from(texts_of(dataset, index))); });
  boost::json::array findings;
  for (auto const& [meaning, value] : findings_of(dataset)) {
    findings.push_back(boost::json::array{meaning, value});
  }
  return {{"name", dataset.name()},          {"kind", dataset.kind()},    {"samples", dataset.size()},
          {"findings", std::move(findings)}, {"sides", std::move(sides)}, {"examples", std::move(examples)}};
}

boost::json::array pack_of_samples(SampleSource const& samples, Dataset const& dataset, std::int64_t max_length) {
  constexpr std::int64_t packed_tokens = 512;  // of the longer side
  constexpr std::int64_t with_text = 3;
  std::vector<std::int64_t> first;
  boost::json::array source;
  boost::json::array target;
  SampleCost all;
  for (std::int64_t const index : samples.window(0, 0)) {
    SampleCost const cost = samples.cost(0, index);
    if (cost.longer() > max_length) {
      continue;
    }
    if (all.longer() > 0 && all.longer() + cost.longer() > packed_tokens) {
      break;
    }
    if (std::ssize(first) < with_text) {
      first.push_back(index);
    }
    all.source += cost.source;
    all.target += cost.target;
    source.emplace_back(cost.source);
    target.emplace_back(cost.target);
  }
  PackFields tokens;
  if (!first.empty()) {
    samples.read(0, first, 0, tokens);
  }
  boost::json::array sides;
  auto const add = [&](std::string const& name, bool alone, boost::json::array& lengths, boost::json::array texts) {
    std::string const joined = fmt::format("lines, joined to at most {} tokens", readable_count(max_length));
    std::string const of_lines = alone ? joined : fmt::format("{} of {}", name, joined);
    sides.push_back({{"name", dataset.has_lines() ? of_lines : name},
                     {"lengths", std::move(lengths)},
                     {"texts", std::move(texts)}});
  };
  if (all.source > 0) {
    add("source", all.target == 0, source, texts_of(tokens.source, dataset.source_tokenizer()));
  }
  if (all.target > 0) {
    add("target", all.source == 0, target, texts_of(tokens.target, dataset.target_tokenizer()));
  }
  return sides;
}

std::vector<SentenceText> first_pairs(Dataset const& dataset, std::int64_t count) {
  std::vector<SentenceText> pairs;
  for (std::int64_t index = 0; !dataset.has_lines() && index < std::min(count, dataset.size()); ++index) {
    auto const texts = texts_of(dataset, index);
    pairs.push_back({texts.front(), texts.back()});
  }
  return pairs;
}

std::vector<SentenceText> example_sentences(Dataset const& dataset, std::size_t count) {
  constexpr std::int64_t searched = 500;
  constexpr std::int64_t shortest = 6;
  constexpr std::int64_t longest = 20;
  std::vector<SentenceText> sentences;
  for (std::int64_t index = 0; index < std::min(searched, dataset.size()) && sentences.size() < count; ++index) {
    std::int64_t const length = dataset.has_lines() ? dataset.length(SampleLength::line, index)
                                                    : std::max(dataset.length(SampleLength::source, index),
                                                               dataset.length(SampleLength::target, index));
    if (length >= shortest && length <= longest) {
      auto const texts = texts_of(dataset, index);
      sentences.push_back({texts.front(), texts.size() > 1 ? std::optional(texts.back()) : std::nullopt});
    }
  }
  return sentences;
}

}  // namespace heddle
