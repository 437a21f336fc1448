#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/core/parameters/update_rules.hpp>
#include <heddle/dist/optimizer/distributed_optimizer.hpp>
#include <utility>

namespace heddle {

namespace {

/// The number of elements that are updated between two calls of the gather's progress: some tens of microseconds.
constexpr std::int64_t elements_between_looks = std::int64_t{1} << 16;

/// Allocated parameters with their rules, on which the division of the buffers depends.
ParameterSet& with_rules(OptimizerConfig const& config, KernelSource const& kernels, ParameterSet& parameters) {
  assign_rules(config, kernels.registries, parameters);
  return parameters;
}

}  // namespace

DistributedOptimizer::DistributedOptimizer(OptimizerConfig const& config, KernelSource const& kernels,
                                           ParallelState const& parallel, ParameterSet& parameters,
                                           Execution& execution, Options const& options)
    : parallel_(parallel),
      parameters_(with_rules(config, kernels, parameters)),
      registries_(kernels.registries),
      execution_(execution),
      bucket_elements_(options.bucket_elements),
      observe_(options.observe),
      sharded_(options.shard && parallel.replicas.size() > 1),
      operations_(kernels.select<TensorOps>({parameters.values().dtype()})),
      reducer_(std::in_place, parallel, parameters, operations_, execution, reducer_options()),
      optimizer_(config, kernels, parameters,
                 sharded_ ? reducer_->parts().parts_of(parallel.replicas.rank())
                          : std::vector<IndexRange>{{0, parameters.gradient_size()}}),
      matrices_(parallel, parameters, optimizer_, operations_, execution, parts()),
      sum_of_squares_(Tensor::allocate(DType::float64, {1})) {
  find_ranges();
}

void DistributedOptimizer::find_ranges() {
  find_counted();
  if (sharded_) {
    find_updated_buckets();
  }
}

/// Elements of frozen parameters count nowhere.
void DistributedOptimizer::find_counted() {
  counted_.clear();
  bool joins = false;
  for (Parameter const* const parameter : parameters_.trained()) {
    bool const alone = parameter->placement().on_several_stages() || parameter->updated_whole();
    if (!parameters_.counts(*parameter) || parameter->frozen()) {
      joins = false;
      continue;
    }
    // A parameter that is alone is separate: the places of its neighbours depend on the number of replicas.
    if (joins && !alone) {
      counted_.back().end = parameter->place.end;
    } else {
      counted_.push_back(parameter->place);
    }
    joins = !alone;
  }
}

void DistributedOptimizer::find_updated_buckets() {
  updated_buckets_.clear();
  std::vector<IndexRange> all_blocks;
  for (BufferShards::Bucket const& bucket : reducer_->parts().buckets()) {
    if (is_frozen(parameters_, bucket.range)) {
      continue;
    }
    UpdatedBucket& updated = updated_buckets_.emplace_back(UpdatedBucket{bucket, {}});
    IndexRange const own = reducer_->parts().part(bucket, parallel_.replicas.rank());
    std::int64_t const step = bucket.owner < 0 ? elements_between_looks : bucket.range.count();
    for (std::int64_t begin = own.begin; begin < own.end; begin += step) {
      updated.blocks.push_back({begin, std::min(begin + step, own.end)});
      all_blocks.push_back(updated.blocks.back());
    }
  }
  if (parameters_.values().space() == MemorySpace::host) {
    owned_.emplace(parameters_, optimizer_, all_blocks);
  }
}

void DistributedOptimizer::zero_gradients() {
  if (!std::exchange(gradients_are_zero_, false)) {
    operations_->fill(execution_, parameters_.gradients(), 0);
  }
}

void DistributedOptimizer::add_sum_of_squares(Tensor const& sum) const {
  for (IndexRange const& range : intersection(counted_, reducer_->reduced())) {
    optimizer_.add_sum_of_squares(execution_, range, sum);
  }
}

/// The norm of the whole model's gradient, with each element counted once. Collective over the axes but replica_axes;
/// if the replicas have separate parts of the sums, over the world.
double DistributedOptimizer::norm_of(double own_sum_of_squares) const {
  std::span const sum(&own_sum_of_squares, 1);
  if (reducer_->scattered()) {
    all_reduce_values(parallel_.replicas, sum);
  }
  sum_over_model(parallel_, sum);
  return std::sqrt(own_sum_of_squares);
}

double DistributedOptimizer::update(double learning_rate, std::int64_t step, GradientsAfter after) {
  operations_->fill(execution_, sum_of_squares_, 0);
  add_sum_of_squares(sum_of_squares_);
  double own = 0;
  copy_to_host(&own, sum_of_squares_, &execution_);
  return update(own, learning_rate, step, after);
}

double DistributedOptimizer::update(double own_sum_of_squares, double learning_rate, std::int64_t step,
                                    GradientsAfter after) {
  double const norm = norm_of(own_sum_of_squares);
  if (!std::isfinite(norm)) {
    return norm;
  }
  optimizer_.begin({.learning_rate = learning_rate, .gradient_scale = optimizer_.gradient_scale(norm), .step = step});
  if (owned_) {
    owned_->begin();
    compare_matrices();
  }
  optimizer_.direct(execution_);
  matrices_.run(optimizer_, step);
  if (sharded_) {
    change_and_gather([this](BufferShards::Bucket const& bucket, IndexRange const& block) {
      if (owned_ && bucket.owner < 0) {
        owned_->compare(block);
      }
      optimizer_.apply(execution_, block);
      if (owned_) {
        owned_->record(block);
      }
    });
  } else {
    bool const zero = after == GradientsAfter::zero && parameters_.gradients().space() == MemorySpace::host;
    optimizer_.apply(execution_, {0, parameters_.gradient_size()}, zero ? GradientsAfter::zero : GradientsAfter::kept);
    gradients_are_zero_ = zero;
  }
  parameters_.bump_versions();
  if (owned_) {
    owned_->end();
  }
  return norm;
}

/// Compares what this rank owns alone before the first part of an update of matrices, which changes their state.
void DistributedOptimizer::compare_matrices() {
  for (auto const& [bucket, blocks] : updated_buckets_) {
    for (IndexRange const& block : blocks) {
      if (bucket.owner >= 0) {
        owned_->compare(block);
      }
    }
  }
}

void DistributedOptimizer::swap_averages(std::int64_t updates) {
  bool const recorded = owned_ && owned_->is_recorded();
  if (sharded_) {
    change_and_gather([&](BufferShards::Bucket const& /*bucket*/, IndexRange const& block) {
      optimizer_.swap_averages(execution_, block, updates);
    });
  } else {
    optimizer_.swap_averages(execution_, {0, parameters_.gradient_size()}, updates);
  }
  parameters_.bump_versions();
  averages_swapped_ = !averages_swapped_;
  if (averages_swapped_) {
    recorded_before_swap_ = recorded;
  } else if (recorded_before_swap_) {
    owned_->end();  // the bits are those of the last update again
  }
}

void DistributedOptimizer::change_and_gather(
    std::function<void(BufferShards::Bucket const&, IndexRange const&)> const& change) {
  Transfer gather;
  for (auto const& [bucket, blocks] : updated_buckets_) {
    for (IndexRange const& block : blocks) {
      change(bucket, block);
      gather.progress();
    }
    gather.wait();
    if (parameters_.section_of(bucket.range.begin) != nullptr) {
      gather = Transfer();  // the next step gathers it
      continue;
    }
    Tensor const whole = parameters_.values_in(bucket.range);
    if (bucket.owner >= 0) {
      parallel_.replicas.broadcast(whole, bucket.owner);
      gather = Transfer();
      continue;
    }
    IndexRange const own = reducer_->parts().part(bucket, parallel_.replicas.rank());
    gather = parallel_.replicas.start_all_gather(parameters_.values_in(own), whole);
  }
  gather.wait();
}

std::vector<IndexRange> DistributedOptimizer::kept_state(Parameter const& parameter, std::string const& key) const {
  if (parameter.whole_state.contains(key)) {
    Tensor const whole = matrices_.state(parameter, key);
    return whole.empty() ? std::vector<IndexRange>() : std::vector<IndexRange>{{0, whole.size()}};
  }
  IndexRange const elements = elements_of(parameter);
  std::vector<IndexRange> kept = intersection({elements}, optimizer_.parts());
  for (IndexRange& piece : kept) {
    piece = {piece.begin - elements.begin, piece.end - elements.begin};
  }
  return kept;
}

Tensor DistributedOptimizer::state_in(Parameter const& parameter, std::string const& key,
                                      IndexRange const& elements) const {
  if (!parameter.whole_state.contains(key)) {
    std::int64_t const begin = parameter.place.begin;
    return optimizer_.state_in(key, {begin + elements.begin, begin + elements.end});
  }
  Tensor const whole = matrices_.state(parameter, key);
  if (whole.empty() || elements.begin < 0 || elements.end > whole.size()) {
    throw Error("{} of parameter {} [{}, {}) is not kept here", key, parameter.spec.name, elements.begin, elements.end);
  }
  return whole.rows(elements.begin, elements.count());
}

std::vector<DealtMatrix> DistributedOptimizer::dealt_matrices() const {
  return deal_matrices(parameters_, parallel_.mesh.shape(), parts());
}

void DistributedOptimizer::set_state(Parameter const& parameter, std::string const& key, IndexRange const& elements,
                                     std::span<float const> values) {
  if (values.size() != static_cast<std::size_t>(elements.count())) {
    throw Error("{} of {} elements for {} elements of parameter {}", key, values.size(), elements.count(),
                parameter.spec.name);
  }
  if (owned_) {
    owned_->forget();
  }
  Tensor const kept = state_in(parameter, key, elements);
  kept.require(DType::float32, {elements.count()}, "state from a checkpoint");
  copy_from_host(kept, values.data());
}

void DistributedOptimizer::set_state_begins(StateBegins begins) {
  state_begins_ = std::move(begins);
  for (Parameter& parameter : parameters_.all()) {
    auto const found = state_begins_.find(parameter.spec.name);
    parameter.state_begin = found == state_begins_.end() ? 0 : found->second;
  }
  optimizer_.regroup();
}

void DistributedOptimizer::unfreeze(std::int64_t updates) {
  heddle::unfreeze(parameters_, registries_, updates);
  optimizer_.regroup();
  reducer_.emplace(parallel_, parameters_, operations_, execution_, reducer_options());
  find_ranges();
}

}  // namespace heddle
