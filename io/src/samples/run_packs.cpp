#include <algorithm>
#include <heddle/io/samples/run_packs.hpp>
#include <iterator>
#include <set>

namespace heddle {

namespace {

SampleBounds bounds_of(SampleTotals const& totals) {
  return {.tokens = totals.tokens,
          .longest = totals.longest,
          .typical = std::max<std::int64_t>(1, totals.tokens / std::max<std::int64_t>(1, totals.usable))};
}

/// Each set is cut into micro-batches by itself.
SampleBounds bounds_of_both(SampleBounds const& one, SampleBounds const& other) {
  return {.tokens = std::max(one.tokens, other.tokens),
          .longest = std::max(one.longest, other.longest),
          .typical = std::min(one.typical, other.typical)};
}

std::vector<Pack> all_of(SampledMicroBatches const& micro_batches, IndexRange const& mine) {
  std::vector<Pack> packs;
  for (std::int64_t index = mine.begin; index < mine.end; ++index) {
    packs.push_back(micro_batches.micro_batch(index));
  }
  return packs;
}

/// The largest micro-batches of this rank's share.
std::vector<Pack> largest_of(SampledMicroBatches const& micro_batches, IndexRange const& mine) {
  LargestPacks largest;
  for (std::int64_t index = mine.begin; index < mine.end; ++index) {
    largest.add(micro_batches.size(index), index);
  }
  std::vector<Pack> packs;
  for (std::int64_t const index : largest.places()) {
    packs.push_back(micro_batches.micro_batch(index));
  }
  return packs;
}

GroupMember member(Mesh const& mesh, MeshAxis axis) {
  return {mesh.coordinate(axis), mesh.size(axis)};
}

/// The result of micro_batch_cut, for a rank of a mesh that need not run.
MicroBatchCut cut_of(TrainConfig const& train, Mesh const& mesh) {
  MicroBatchCut cut{.max_tokens = train.micro_batch_tokens, .context = context_split(mesh), .passes = train.passes()};
  if (!train.deterministic) {
    cut.data = member(mesh, MeshAxis::data);
    cut.equal = mesh.size(MeshAxis::pipeline) > 1;
  }
  return cut;
}

/// The micro-batches of a cut that the rank computes: in deterministic mode the cut is the whole batch's.
IndexRange own_of(SampledMicroBatches const& micro_batches, TrainConfig const& train, Mesh const& mesh) {
  return train.deterministic ? share(micro_batches.count(), mesh.coordinate(MeshAxis::data), mesh.size(MeshAxis::data))
                             : IndexRange{0, micro_batches.count()};
}

}  // namespace

RunPacks::RunPacks(Setup const& setup) : training_(setup.training), validation_(setup.validation) {
  Config const& config = setup.config;
  SampleTotals const totals = training_.totals(config.model.max_length);
  bounds_ = {.training = bounds_of(totals), .validates = !validation_.empty(), .prefixes = setup.prefixes};
  if (setup.sequences || totals.estimated) {
    bounds_.training.longest = config.model.max_length;
  }
  for (SampleSource const* samples : validation_) {
    SampleBounds const bounds = bounds_of(samples->totals(0, config.model.max_length));
    validated_.push_back(all_samples(*samples, config.model.max_length));
    validated_tokens_ += bounds.tokens;
    bounds_.validation = validated_.size() == 1 ? bounds : bounds_of_both(bounds_.validation, bounds);
  }
  if (setup.listed && !totals.estimated) {  // to list estimated ones would tokenize the text of the whole run
    list_batches(config, totals);
  }
}

void RunPacks::list_batches(Config const& config, SampleTotals const& totals) {
  double const tokens_of_a_batch =
      static_cast<double>(std::min<std::int64_t>(config.train.batch_tokens, totals.tokens));
  double const samples = tokens_of_a_batch * static_cast<double>(config.train.steps) *
                         static_cast<double>(totals.usable) /
                         static_cast<double>(std::max<std::int64_t>(1, totals.tokens));
  if (samples > static_cast<double>(max_listed)) {
    return;
  }
  BatchPlanner planner(training_, {.batch_tokens = config.train.batch_tokens, .max_length = config.model.max_length},
                       config.train.seed);
  for (std::int64_t step = 0; step < config.train.steps; ++step) {
    batches_.push_back(planner.next());
  }
}

PlannedPacks RunPacks::largest(Config const& config, Mesh const& mesh) const {
  PlannedPacks packs = full_packs(config, mesh, bounds_);
  if (packs.scale > 1) {
    return packs;  // too large to be read for a plan
  }
  if (!batches_.empty()) {
    packs = of_batches(config.train, mesh);
  }
  packs.validation = of_validation(config.train, mesh, !packs.steps.empty());
  return packs;
}

PlannedPacks RunPacks::of_batches(TrainConfig const& train, Mesh const& mesh) const {
  MicroBatchCut const cut = cut_of(train, mesh);
  PlannedPacks packs;
  std::set<std::int64_t> numbers;
  LargestPacks largest;
  std::int64_t tokens = 0;
  constexpr int index_bits = 32;
  for (std::size_t batch = 0; batch < batches_.size(); ++batch) {
    SampledMicroBatches const micro_batches(training_, batches_[batch], cut);
    IndexRange const mine = own_of(micro_batches, train, mesh);
    numbers.insert(train.deterministic ? 1 : mine.count());
    for (std::int64_t index = mine.begin; index < mine.end; ++index) {
      PackSize const size = micro_batches.size(index);
      largest.add(size, static_cast<std::int64_t>(batch) << index_bits | index);
      tokens += size.whole;
    }
    packs.step_tokens = std::max(packs.step_tokens, micro_batches.longer_tokens());
  }
  packs.micro_batches.assign(numbers.begin(), numbers.end());
  bool const small_validation = validated_tokens_ <= max_tokens_in_order;
  if (std::ssize(batches_) <= max_steps_in_order && tokens <= max_tokens_in_order && small_validation) {
    packs.steps = in_order(train, mesh);
    return packs;
  }
  for (std::int64_t const place : largest.places()) {
    SampledMicroBatches const micro_batches(training_, batches_[static_cast<std::size_t>(place >> index_bits)], cut);
    packs.training.push_back(micro_batches.micro_batch(place & ((std::int64_t{1} << index_bits) - 1)));
  }
  return packs;
}

std::vector<std::vector<Pack>> RunPacks::in_order(TrainConfig const& train, Mesh const& mesh) const {
  std::vector<std::vector<Pack>> steps;
  for (GlobalBatch const& batch : batches_) {
    SampledMicroBatches const micro_batches(training_, batch, cut_of(train, mesh));
    IndexRange const mine = own_of(micro_batches, train, mesh);
    if (!train.deterministic) {
      steps.push_back(all_of(micro_batches, mine));
      continue;
    }
    for (std::int64_t index = mine.begin; index < mine.end; ++index) {
      steps.push_back(all_of(micro_batches, {index, index + 1}));
    }
  }
  return steps;
}

std::vector<Pack> RunPacks::of_validation(TrainConfig const& train, Mesh const& mesh, bool all) const {
  std::vector<Pack> packs;
  for (std::size_t set = 0; set < validation_.size() && train.validate_every > 0; ++set) {
    SampledMicroBatches const micro_batches(
        *validation_[set], validated_[set],
        validation_cut(validated_[set], train.micro_batch_tokens, context_split(mesh)));
    IndexRange const mine = share(micro_batches.count(), mesh.coordinate(MeshAxis::data), mesh.size(MeshAxis::data));
    std::ranges::move(all ? all_of(micro_batches, mine) : largest_of(micro_batches, mine), std::back_inserter(packs));
  }
  return packs;
}

}  // namespace heddle
