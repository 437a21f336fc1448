#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/dist/mpi/mpi.hpp>
#include <heddle/dist/optimizer/gradient_reducer.hpp>
#include <numeric>

namespace heddle {

namespace {

/// The tag that separates these messages from those of the schedule.
constexpr int exchange_tag = 7001;

/// Gradients of at least as many elements are summed where they are; smaller ones are packed, to go in one message.
constexpr std::int64_t alone_elements = std::int64_t{1} << 14;

/// Throws unless the reducer sums the gradients of such a placement.
void require_supported(Parameter const& parameter, Mesh const& mesh) {
  Placement const& placement = parameter.placement();
  if (placement.is_partial_over(MeshAxis::pipeline)) {
    throw ConfigError(
        "parameter {}: its gradient cannot be partial over pipeline; name the stages that hold it instead",
        parameter.spec.name);
  }
  for (MeshAxis const axis : {MeshAxis::pipeline, MeshAxis::data, MeshAxis::context}) {
    if (placement.is_split_over(axis)) {
      throw ConfigError("parameter {}: {} cannot split a parameter", parameter.spec.name, axis.name());
    }
  }
  std::vector<int> const& stages = placement.stages;
  int const here = mesh.coordinate(MeshAxis::pipeline);
  bool const ascends = std::adjacent_find(stages.begin(), stages.end(), std::greater_equal<>()) == stages.end();
  if (!stages.empty() && (!ascends || stages.front() < 0 || stages.back() >= mesh.size(MeshAxis::pipeline) ||
                          !std::binary_search(stages.begin(), stages.end(), here))) {
    throw Error(
        "parameter {} on stage {}: its stages {{{}}} must ascend within parallel.pipeline = {} and name this one",
        parameter.spec.name, here, fmt::join(stages, ", "), mesh.size(MeshAxis::pipeline));
  }
}

void require_loss_sums(Tensor const& loss_sums) {
  loss_sums.require(DType::float64, {loss_sums.size()}, "the loss sums");
}

}  // namespace

PartialSums::PartialSums(ParallelState const& parallel, ParameterSet const& parameters,
                         std::shared_ptr<TensorOps> operations, Execution& execution, std::int64_t bucket_elements)
    : pipeline_(parallel.pipeline), parameters_(parameters), operations_(std::move(operations)), execution_(execution) {
  for (MeshAxis const axis : parallel.mesh.shape().model_axes()) {
    over_axes_.push_back({axis, parallel.group({axis}), {}});
  }
  std::int64_t packed = 0;
  std::int64_t exchanged = 0;
  std::size_t holders = 0;
  for (Parameter const& parameter : parameters.all()) {
    require_supported(parameter, parallel.mesh);
    if (parameter.frozen()) {
      continue;
    }
    Placement const& placement = parameter.placement();
    IndexRange const elements = elements_of(parameter);
    for (OverAxis& over : over_axes_) {
      if (placement.is_partial_over(over.axis) && over.group.size() > 1) {
        over.elements.push_back(elements);
      }
    }
    if (placement.on_several_stages()) {
      over_stages_.push_back({parameter.spec.name, elements, placement.stages});
      exchanged = std::max(exchanged, std::min(elements.count(), bucket_elements));
      holders = std::max(holders, placement.stages.size());
    }
  }
  for (OverAxis& over : over_axes_) {
    std::ranges::sort(over.elements, {}, &IndexRange::begin);
    packed = std::max(packed, std::accumulate(over.elements.begin(), over.elements.end(), std::int64_t{0},
                                              [](std::int64_t sum, IndexRange const& each) {
                                                return sum + std::min(each.count(), alone_elements - 1);
                                              }));
  }
  std::sort(over_stages_.begin(), over_stages_.end(),
            [](Held const& left, Held const& right) { return left.name < right.name; });
  DType const dtype = parameters.gradients().dtype();
  packed_ = Tensor::allocate(dtype, {packed});
  if (holders > 1) {
    received_ = Tensor::allocate(dtype, {static_cast<std::int64_t>(holders) - 1, exchanged});
  }
}

void PartialSums::sum(std::vector<IndexRange> const& ranges) const {
  for (OverAxis const& over : over_axes_) {
    sum_over(over.group, intersection(over.elements, ranges));
  }
  for (Held const& held : over_stages_) {
    for (IndexRange const& range : intersection({held.elements}, ranges)) {
      std::int64_t const step = received_.dim(1);
      for (std::int64_t begin = range.begin; begin < range.end; begin += step) {
        sum_over_stages({begin, std::min(begin + step, range.end)}, held.stages);
      }
    }
  }
}

void PartialSums::sum_over(Communicator const& group, std::vector<IndexRange> ranges) const {
  auto const large = std::stable_partition(ranges.begin(), ranges.end(),
                                           [](IndexRange const& range) { return range.count() < alone_elements; });
  // Such a reduction adds the ranks in their order: an element's sum does not depend on how many others are summed.
  std::for_each(large, ranges.end(),
                [&](IndexRange const& range) { group.start_all_reduce(parameters_.gradients_in(range)).wait(); });
  ranges.erase(large, ranges.end());
  std::int64_t packed = 0;
  for (IndexRange const& range : ranges) {
    operations_->copy(execution_, parameters_.gradients_in(range), packed_.rows(packed, range.count()));
    packed += range.count();
  }
  if (packed == 0) {
    return;
  }
  group.all_reduce(packed_.rows(0, packed));
  packed = 0;
  for (IndexRange const& range : ranges) {
    operations_->copy(execution_, packed_.rows(packed, range.count()), parameters_.gradients_in(range));
    packed += range.count();
  }
}

void PartialSums::sum_over_stages(IndexRange const& range, std::vector<int> const& stages) const {
  Tensor const own = parameters_.gradients_in(range);
  std::vector<Tensor> terms;
  std::vector<Transfer> transfers;
  std::int64_t row = 0;
  for (int const stage : stages) {
    if (stage == pipeline_.rank()) {
      terms.push_back(own);
      continue;
    }
    Tensor const theirs = received_.rows(row++, 1).reshaped({received_.dim(1)}).rows(0, range.count());
    transfers.push_back(pipeline_.start_receive(theirs, stage, exchange_tag));
    transfers.push_back(pipeline_.start_send(own, stage, exchange_tag));
    terms.push_back(theirs);
  }
  for (Transfer& transfer : transfers) {
    transfer.wait();
  }
  // Every holder adds in the order of the stages, so that all get the same bits.
  for (std::size_t index = 1; index < terms.size(); ++index) {
    operations_->add(execution_, terms.front(), terms[index]);
  }
  if (stages.front() != pipeline_.rank()) {
    operations_->copy(execution_, terms.front(), own);
  }
}

std::int64_t GradientReducer::bucket_for(int replicas) {
  return std::max(default_bucket, replicas * eager_elements);
}

GradientReducer::GradientReducer(ParallelState const& parallel, ParameterSet& parameters,
                                 std::shared_ptr<TensorOps> operations, Execution& execution, Options const& options)
    : parallel_(parallel),
      parameters_(parameters),
      options_(options),
      parts_(parameters, options.bucket_elements, parallel.replicas.size()),
      everything_{{0, parameters.gradient_size()}},
      own_(parts_.parts_of(parallel.replicas.rank())),
      buckets_(parallel.replicas, parameters, execution,
               options.scatter ? parts_ : BufferShards(parameters, options.bucket_elements, 1), options.scatter,
               options.observe),
      partial_sums_(parallel, parameters, operations, execution, options.bucket_elements),
      tree_(parallel.data, operations, execution) {}

/// Sums the gradients that runs of replicas have of the parts that each of them divides.
void GradientReducer::sum_copies() const {
  std::vector<Transfer> transfers;
  for (DividedSection const* const section : parameters_.sections()) {
    if (section->divides_gradient) {
      Communicator const copies = copies_of(parallel_, *section);
      transfers.push_back(copies.start_all_reduce(parameters_.gradients_in(section->own)));
    }
  }
  std::ranges::for_each(transfers, [](Transfer& transfer) { transfer.wait(); });
}

void GradientReducer::reduce(Tensor const& loss_sums) {
  require_loss_sums(loss_sums);
  buckets_.finish();
  sum_copies();
  scattered_ = options_.scatter && parallel_.replicas.size() > 1;
  partial_sums_.sum(reduced());
  parallel_.loss_parts.all_reduce(loss_sums);
  parallel_.pipeline.all_reduce(loss_sums);
}

void GradientReducer::sum_over_context() const {
  Communicator const context = parallel_.group({MeshAxis::context});
  // Ranks are added in their order, so that ScatteredTrees can give the same bits.
  Tensor const& gradients = parameters_.gradients();
  for (std::int64_t begin = 0; begin < gradients.size(); begin += default_bucket) {
    context.start_all_reduce(gradients.rows(begin, std::min(default_bucket, gradients.size() - begin))).wait();
  }
}

IndexRange GradientReducer::begin_tree(std::int64_t micro_batches, Tensor const& loss_sums) {
  require_loss_sums(loss_sums);
  tree_losses_ = loss_sums;
  return tree_.begin(micro_batches, {parameters_.gradients(), loss_sums});
}

void GradientReducer::finish_tree() {
  tree_.finish();
  // The later sums add the same numbers in the same order for any number of data ranks.
  sum_over_context();
  scattered_ = false;
  partial_sums_.sum(reduced());
  parallel_.context.all_reduce(tree_losses_);
  parallel_.pipeline.all_reduce(tree_losses_);
}

void GradientReducer::finish_scattered(Tensor const& loss_sums) {
  require_loss_sums(loss_sums);
  scattered_ = true;
  partial_sums_.sum(reduced());
  parallel_.context.all_reduce(loss_sums);
  parallel_.pipeline.all_reduce(loss_sums);
}

}  // namespace heddle
