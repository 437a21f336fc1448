#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/optimizer/distributed_optimizer.hpp>

namespace heddle {

namespace {

/// The number of elements that Adam updates between two calls of the gather's progress: some tens of microseconds.
constexpr std::int64_t elements_between_looks = std::int64_t{1} << 16;

double summed_over(Communicator const& group, double value) {
  all_reduce_values(group, std::span(&value, 1));
  return value;
}

}  // namespace

DistributedOptimizer::DistributedOptimizer(OptimizerConfig const& config, KernelSource const& kernels,
                                           ParallelState const& parallel, ParameterSet& parameters,
                                           Execution& execution, Options const& options)
    : parallel_(parallel),
      parameters_(assign_rules(config, parameters)),
      execution_(execution),
      bucket_elements_(options.bucket_elements),
      sharded_(options.shard && parallel.replicas.size() > 1),
      operations_(kernels.select<TensorOps>({parameters.values().dtype()})),
      reducer_(parallel, parameters, operations_, execution, {options.bucket_elements, sharded_}),
      optimizer_(config, kernels, parameters,
                 sharded_ ? reducer_.parts().parts_of(parallel.replicas.rank())
                          : std::vector<IndexRange>{{0, parameters.size()}}),
      sum_of_squares_(Tensor::allocate(DType::float64, {1})) {
  find_counted();
  if (sharded_) {
    find_updated_buckets();
  }
}

/// Numbers that every tensor rank holds count on the first of them, numbers that several stages hold on the first of
/// those, numbers of frozen parameters nowhere.
void DistributedOptimizer::find_counted() {
  bool joins = false;
  for (Parameter const& parameter : parameters_.all()) {
    bool const shared = parameter.spec.stages.size() > 1;
    if (!counts_here(parameter.spec, parallel_.mesh) || parameter.rule.frozen) {
      joins = false;
      continue;
    }
    // A parameter of several stages is separate: the places of its neighbours depend on the number of replicas.
    if (joins && !shared) {
      counted_.back().end = parameter.place.end;
    } else {
      counted_.push_back(parameter.place);
    }
    joins = !shared;
  }
}

void DistributedOptimizer::find_updated_buckets() {
  std::vector<IndexRange> all_blocks;
  for (IndexRange const& bucket : reducer_.parts().buckets()) {
    if (is_frozen(parameters_, bucket)) {
      continue;
    }
    UpdatedBucket& updated = updated_buckets_.emplace_back(UpdatedBucket{bucket, {}});
    IndexRange const own = reducer_.parts().part(bucket, parallel_.replicas.rank());
    for (std::int64_t begin = own.begin; begin < own.end; begin += elements_between_looks) {
      updated.blocks.push_back({begin, std::min(begin + elements_between_looks, own.end)});
      all_blocks.push_back(updated.blocks.back());
    }
  }
  if (parameters_.values().space() == MemorySpace::host) {
    owned_.emplace(parameters_, optimizer_, all_blocks);
  }
}

void DistributedOptimizer::zero_gradients() {
  operations_->fill(execution_, parameters_.gradients(), 0);
}

void DistributedOptimizer::add_sum_of_squares(Tensor const& sum) const {
  for (IndexRange const& range : intersection(counted_, reducer_.reduced())) {
    operations_->add_sum_of_squares(execution_, parameters_.gradients().rows(range.begin, range.count()), sum);
  }
}

/// The norm of the whole model's gradient, with each number counted once. Collective over tensor × pipeline; if the
/// replicas have separate parts of the sums, over the world.
double DistributedOptimizer::norm_of(double own_sum_of_squares) const {
  double const sum = reducer_.scattered() ? summed_over(parallel_.replicas, own_sum_of_squares) : own_sum_of_squares;
  return std::sqrt(summed_over(parallel_.pipeline, summed_over(parallel_.tensor, sum)));
}

double DistributedOptimizer::update(double learning_rate, std::int64_t step) {
  operations_->fill(execution_, sum_of_squares_, 0);
  add_sum_of_squares(sum_of_squares_);
  double own = 0;
  copy_to_host(&own, sum_of_squares_, &execution_);
  return update(own, learning_rate, step);
}

double DistributedOptimizer::update(double own_sum_of_squares, double learning_rate, std::int64_t step) {
  double const norm = norm_of(own_sum_of_squares);
  if (!std::isfinite(norm)) {
    return norm;
  }
  optimizer_.begin({.learning_rate = learning_rate, .gradient_scale = optimizer_.gradient_scale(norm), .step = step});
  if (owned_) {
    owned_->begin();
  }
  if (sharded_) {
    update_and_gather();
  } else {
    optimizer_.apply(execution_, {0, parameters_.size()});
  }
  parameters_.bump_versions();
  if (owned_) {
    owned_->end();
  }
  return norm;
}

void DistributedOptimizer::update_and_gather() {
  Tensor const& values = parameters_.values();
  Transfer gather;
  for (auto const& [bucket, blocks] : updated_buckets_) {
    for (IndexRange const& block : blocks) {
      if (owned_) {
        owned_->compare(block);
      }
      optimizer_.apply(execution_, block);
      if (owned_) {
        owned_->record(block);
      }
      gather.progress();
    }
    gather.wait();
    IndexRange const own = reducer_.parts().part(bucket, parallel_.replicas.rank());
    gather = parallel_.replicas.start_all_gather(values.rows(own.begin, own.count()),
                                                 values.rows(bucket.begin, bucket.count()));
  }
  gather.wait();
}

std::int64_t DistributedOptimizer::moment_bytes() const {
  return optimizer_.first_moments().bytes() + optimizer_.second_moments().bytes();
}

std::vector<IndexRange> DistributedOptimizer::kept_moments(Parameter const& parameter) const {
  IndexRange const elements = elements_of(parameter);
  std::vector<IndexRange> kept = intersection({elements}, optimizer_.parts());
  for (IndexRange& piece : kept) {
    piece = {piece.begin - elements.begin, piece.end - elements.begin};
  }
  return kept;
}

void DistributedOptimizer::set_moments(Parameter const& parameter, IndexRange const& elements,
                                       std::span<float const> first, std::span<float const> second) {
  auto const expected = static_cast<std::size_t>(elements.count());
  if (first.size() != expected || second.size() != expected) {
    throw Error(fmt::format("moments of {} and {} elements for {} elements of parameter {}", first.size(),
                            second.size(), expected, parameter.spec.name));
  }
  if (owned_) {
    owned_->forget();
  }
  std::int64_t const begin = elements_of(parameter).begin;
  auto const set = [&](Tensor const& moments, std::span<float const> from) {
    Tensor const kept = optimizer_.moments_in(moments, {begin + elements.begin, begin + elements.end});
    kept.require(DType::float32, {elements.count()}, "moments from a checkpoint");
    copy_from_host(kept, from.data());
  };
  set(optimizer_.first_moments(), first);
  set(optimizer_.second_moments(), second);
}

}  // namespace heddle
