#include "corpus/reference_loss.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/base/readable.hpp>
#include <heddle/io/samples/batches.hpp>

namespace heddle {
namespace {

/// Places in the sums. Those of the start of the text are of the same lines in both directions.
struct Place {
  enum : std::size_t { loss, tokens, left_out, start_loss, start_tokens, swapped_loss, swapped_tokens };
};

/// The lines at the start of a text whose direction is checked.
constexpr std::int64_t checked_lines = 64;

struct DirectionLoss {
  LossSums sums = {};
  std::size_t left_out = 0;
};

/// Computes the loss of references given their sources, or the other way round.
DirectionLoss direction_loss(TrainedModel& model, std::span<GeneratedLine const> lines, bool swapped) {
  Vocabulary const& vocabulary = model.vocabulary();
  auto const framed = [](std::vector<std::int32_t> frame, std::vector<std::int32_t> const& text) {
    frame.insert(frame.end(), text.begin(), text.end());
    return frame;
  };
  std::vector<Sample> pairs;
  for (GeneratedLine const& each : lines) {
    std::string const& source = swapped ? each.line.references.front() : each.line.text;
    std::string const& target = swapped ? each.line.text : each.line.references.front();
    pairs.push_back({static_cast<std::int32_t>(pairs.size()),
                     framed(model.frame().source, vocabulary.source.encode(source)),
                     framed(model.frame().target, vocabulary.target.encode(target))});
  }
  std::size_t const count = pairs.size();
  MemorySamples const samples(std::move(pairs), vocabulary.special_ids());
  GlobalBatch batch = all_samples(samples, model.longest_source() + 1, SampleOrder::by_length);
  DirectionLoss result{.left_out = count - batch.samples.size()};
  if (!batch.samples.empty()) {
    constexpr std::int64_t pack_tokens = 4096;
    result.sums = model.loss(SampledMicroBatches(samples, std::move(batch), {.max_tokens = pack_tokens}));
  }
  return result;
}

}  // namespace

std::vector<double> reference_loss_sums(TrainedModel& model, std::vector<GeneratedLine> const& lines) {
  DirectionLoss const all = direction_loss(model, lines, false);
  std::vector<double> sums(ReferenceLoss::sums_count);
  sums[Place::loss] = all.sums.negative_log_likelihood;
  sums[Place::tokens] = static_cast<double>(all.sums.tokens);
  sums[Place::left_out] = static_cast<double>(all.left_out);
  auto const after = std::ranges::find_if(lines, [](auto const& each) { return each.line.number > checked_lines; });
  if (after != lines.begin()) {
    std::span const start(lines.begin(), after);
    LossSums const given = direction_loss(model, start, false).sums;
    LossSums const swapped = direction_loss(model, start, true).sums;
    sums[Place::start_loss] = given.negative_log_likelihood;
    sums[Place::start_tokens] = static_cast<double>(given.tokens);
    sums[Place::swapped_loss] = swapped.negative_log_likelihood;
    sums[Place::swapped_tokens] = static_cast<double>(swapped.tokens);
  }
  return sums;
}

LossSums ReferenceLoss::loss() const {
  return {.negative_log_likelihood = sums_[Place::loss], .tokens = static_cast<std::int64_t>(sums_[Place::tokens])};
}

std::string ReferenceLoss::left_out_message() const {
  return sums_[Place::left_out] == 0 ? ""
                                     : fmt::format("perplexity: {} pairs longer than the model takes are left out",
                                                   readable_count(static_cast<std::int64_t>(sums_[Place::left_out])));
}

std::string ReferenceLoss::advice() const {
  constexpr double clear = 1;  // nats of a token
  double const given = sums_[Place::start_loss] / std::max(sums_[Place::start_tokens], 1.0);
  double const swapped = sums_[Place::swapped_loss] / std::max(sums_[Place::swapped_tokens], 1.0);
  if (!(given > swapped + clear)) {
    return "";
  }
  return fmt::format(
      "in the first lines the model predicts the source from the reference much better (perplexity {:.4g}) than the "
      "reference from the source ({:.4g}): are --source and --reference swapped?",
      std::exp(swapped), std::exp(given));
}

}  // namespace heddle
