#include <algorithm>
#include <heddle/core/training/micro_batch_source.hpp>
#include <heddle/core/training/planned_packs.hpp>

namespace heddle {

namespace {

/// The number of elements of a layer's width whose activations fit into the arenas of a dry run.
constexpr std::int64_t dry_run_elements = std::int64_t{1} << 28;
constexpr std::int64_t min_dry_run_tokens = 256;
constexpr std::int64_t max_dry_run_tokens = std::int64_t{1} << 18;
/// A step with more micro-batches needs no more memory.
constexpr std::int64_t max_micro_batches = 256;

std::int64_t divided_up(std::int64_t count, std::int64_t by) {
  return count / by + (count % by > 0 ? 1 : 0);
}

/// The tokens of a pack, on all context ranks, that a dry run of this model can hold.
std::int64_t dry_run_tokens(ModelConfig const& model, int context) {
  std::int64_t const layers = std::max<std::int64_t>(1, model.encoder.layers + model.decoder.layers);
  std::int64_t width = 1;
  for (std::string const& stack : model.stacks) {
    ModelConfig const keys = layer_config(model, stack_kind(stack).config, -1);
    width = std::max({width, keys.d_model, keys.d_ff / 4});
  }
  return context * std::clamp(dry_run_elements / layers / width, min_dry_run_tokens, max_dry_run_tokens);
}

/// The bounds with model.max_length where nothing is known.
SampleBounds known(SampleBounds bounds, ModelConfig const& model) {
  bounds.longest = bounds.longest > 0 ? std::min<std::int64_t>(bounds.longest, model.max_length) : model.max_length;
  bounds.typical = bounds.typical > 0 ? std::min(bounds.typical, bounds.longest) : bounds.longest;
  return bounds;
}

/// The tokens of the largest micro-batch, one pass of it, of a data rank whose share of a batch has at most `share`.
std::int64_t largest_of_share(std::int64_t share, std::int64_t longest, TrainConfig const& train, int stages) {
  std::int64_t const wanted = train.micro_batch_tokens / train.passes();
  std::int64_t const max = std::max<std::int64_t>(wanted, longest);
  std::int64_t largest = std::min(share, max);
  if (stages > 1 && !train.deterministic && share > wanted) {
    // At least two parts of about equal tokens, each of whole samples.
    largest = std::max(largest, std::min(share, std::min(max, divided_up(share, 2)) + longest));
  }
  return largest;
}

}  // namespace

Pack full_pack(std::int64_t tokens, std::int64_t length, ContextSplit const& split, bool prefixes, int passes) {
  PackFields pack_tokens;
  tokens = std::max<std::int64_t>(1, tokens / passes);
  for (SideFields* const side : {&pack_tokens.source, &pack_tokens.target}) {
    side->clear(true);
    side->predicts = true;
    std::int32_t sample = 0;
    for (std::int64_t left = tokens; left > 0; left -= length) {
      auto const here = static_cast<std::int32_t>(std::min(left, length));
      side->sample.push_back(sample++);
      side->length.push_back(here);
      if (prefixes) {
        side->prefix.push_back(here / 2);
      }
    }
    side->id.assign(static_cast<std::size_t>(tokens), 0);  // only sizes count
    side->output.assign(static_cast<std::size_t>(tokens), 0);
  }
  if (passes == 2) {
    add_second_pass(pack_tokens, static_cast<std::int32_t>(pack_tokens.source.sample.size()));
  }
  return make_pack(pack_tokens, split);
}

PlannedPacks full_packs(Config const& config, Mesh const& mesh, DataBounds const& bounds) {
  TrainConfig const& train = config.train;
  SampleBounds const training = known(bounds.training, config.model);
  SampleBounds const validation = known(bounds.validation, config.model);
  int const stages = mesh.size(MeshAxis::pipeline);
  // The fewest ranks that divide the sequences of a stack: a rank may have that share of all tokens.
  int const context = std::min(mesh.shape().size(MeshShape::context_axes(Grid::encoder)),
                               mesh.shape().size(MeshShape::context_axes(Grid::decoder)));
  std::int64_t const data = train.deterministic ? 1 : mesh.size(MeshAxis::data);
  // A sample that is longer than a batch is a batch by itself.
  std::int64_t const batch =
      std::max<std::int64_t>(training.longest, std::min<std::int64_t>(train.batch_tokens, training.tokens));
  std::int64_t const share = data == 1 ? batch : std::min(batch, divided_up(batch, data) + training.longest);
  std::int64_t const trained = train.passes() * largest_of_share(share, training.longest, train, stages);
  std::int64_t const validated =
      bounds.validates && train.validate_every > 0
          ? std::min(std::max<std::int64_t>(train.micro_batch_tokens, validation.longest), validation.tokens)
          : 0;
  std::int64_t const max = std::max(trained, validated);
  PlannedPacks packs{.training = {}, .step_tokens = train.passes() * share, .validation = {}};
  packs.scale = std::max(1.0, static_cast<double>(max) / static_cast<double>(dry_run_tokens(config.model, context)));
  ContextSplit const split = context_split(mesh);
  auto const add = [&](std::vector<Pack>& into, std::int64_t tokens, SampleBounds const& samples, int passes) {
    auto const dry_run_pack =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(tokens) / packs.scale));
    into.push_back(full_pack(dry_run_pack, samples.longest, split, bounds.prefixes, passes));
    if (split.encoder().ranks * split.decoder().ranks > 1 && samples.typical < samples.longest) {
      into.push_back(full_pack(dry_run_pack, samples.typical, split, bounds.prefixes, passes));
    }
  };
  add(packs.training, trained, training, train.passes());
  if (validated > 0) {
    add(packs.validation, validated, validation, 1);
  }
  if (!train.deterministic) {  // in deterministic mode each micro-batch passes the pipeline separately
    // Two neighbouring micro-batches have more than micro_batch_tokens together.
    std::int64_t const count = std::min(
        2 * divided_up(train.passes() * share, std::max<std::int64_t>(1, train.micro_batch_tokens)), max_micro_batches);
    packs.micro_batches = {std::min<std::int64_t>(count, 2 * stages - 1), count};
  }
  return packs;
}

void LargestPacks::add(PackSize const& size, std::int64_t place) {
  std::array<std::int64_t, 8> const measures{size.source,
                                             size.target,
                                             size.source + size.target,
                                             2 * size.source + size.target,
                                             size.source + 2 * size.target,
                                             4 * size.source + size.target,
                                             size.source + 4 * size.target,
                                             size.whole};
  for (std::size_t index = 0; index < measures.size(); ++index) {
    if (measures[index] > largest_[index].measure) {
      largest_[index] = {measures[index], place};
    }
  }
}

std::vector<std::int64_t> LargestPacks::places() const {
  std::vector<std::int64_t> places;
  for (Largest const& largest : largest_) {
    if (largest.measure >= 0) {
      places.push_back(largest.place);
    }
  }
  std::ranges::sort(places);
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return places;
}

}  // namespace heddle
