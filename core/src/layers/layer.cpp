#include <heddle/core/base/index_range.hpp>
#include <heddle/core/layers/linear.hpp>

namespace heddle {

GroupMember row_split_of(ParallelState const& parallel) {
  return parallel.sequence_parallel ? GroupMember{parallel.tensor.rank(), parallel.tensor.size()} : GroupMember{};
}

LayerContext LayerContext::in_grid(ParallelState const& parallel, Grid grid) const {
  if (!pack.encoder || grid == Grid::decoder) {
    return *this;
  }
  return {.execution = execution,
          .arena = arena,
          .pack = pack.encoder->pack,
          .training = training,
          .seed = seed,
          .step = step,
          .row_split = row_split_of(parallel.of(grid)),
          .gradients = gradients,
          .deferred = deferred,
          .access = access,
          .loss_sums = loss_sums,
          .loss_scale = loss_scale};
}

void LayerContext::uses_done(std::span<Parameter const* const> parameters) const {
  if (gradients == nullptr) {
    return;
  }
  if (deferred != nullptr) {
    deferred->uses_done(parameters);
    return;
  }
  for (Parameter const* const parameter : parameters) {
    gradients->use_done(*parameter);
  }
  gradients->progress();
}

void LayerContext::progress() const {
  if (gradients != nullptr) {
    gradients->progress();
  }
  if (access != nullptr) {
    access->progress();
  }
}

void LayerContext::begin_use(ParameterUnit& unit, bool gradient) const {
  if (access != nullptr && !unit.sections.empty()) {
    access->use(unit, gradient);
  }
}

void LayerContext::end_use(ParameterUnit& unit) const {
  if (access != nullptr && !unit.sections.empty()) {
    access->done(unit);
  }
}

Tensor LayerContext::gradient_of(Parameter const& parameter) const {
  return parameter.gradient.empty() ? arena.allocate(parameter.value.dtype(), parameter.value.shape())
                                    : parameter.gradient;
}

Dropout make_dropout(LayerContext const& context, double rate, std::string_view name, Side side) {
  Dropout dropout;
  if (context.training && rate > 0) {
    TokenRows const& rows = context.pack.rows(side);
    dropout.rate = static_cast<float>(rate);
    dropout.key = random_key(context.seed, name);
    dropout.step = context.step;
    dropout.sample = rows.sample;
    dropout.position = rows.position;
  }
  return dropout;
}

Dropout make_stream_dropout(LayerContext const& context, double rate, std::string_view name, Side side) {
  Dropout dropout = make_dropout(context, rate, name, side);
  if (dropout.active() && context.row_split.ranks > 1) {
    IndexRange const rows = share(dropout.sample.dim(0), context.row_split.rank, context.row_split.ranks);
    dropout.sample = dropout.sample.rows(rows.begin, rows.count());
    dropout.position = dropout.position.rows(rows.begin, rows.count());
  }
  return dropout;
}

}  // namespace heddle
