#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/dist/training/training_engine.hpp>

namespace heddle {

namespace {

KernelSource kernels_of(TrainingEngine::Setup const& setup) {
  return {setup.registries.kernels, setup.config.kernels};
}

GroupMember row_split_of(ParallelState const& parallel) {
  return parallel.sequence_parallel ? GroupMember{parallel.tensor.rank(), parallel.tensor.size()} : GroupMember{};
}

/// The set with its buffers, once the model has declared what it needs.
ParameterSet& allocated(ParameterSet& parameters, DType dtype) {
  parameters.allocate(parameter_dtype(dtype));
  return parameters;
}

}  // namespace

TrainingEngine::TrainingEngine(Setup const& setup)
    : setup_(setup),
      row_split_(row_split_of(setup.parallel)),
      plan_(plan_pipeline(setup.config.model, setup.config.parallel, setup.vocabulary.target)),
      parameters_(setup.parallel.mesh),
      model_(layer_spec(), setup.registries.layers, setup.vocabulary, plan_),
      pipeline_(setup.parallel.pipeline, model_, kernels_of(setup).tensor_ops({setup.dtype}), setup.execution),
      optimizer_(setup.config.optimizer, kernels_of(setup), setup.parallel, allocated(parameters_, setup.dtype),
                 setup.execution, {.shard = setup.config.parallel.shard_optimizer}),
      loss_sum_(Tensor::allocate(DType::float64, {1})) {}

LayerSpec TrainingEngine::layer_spec() {
  return {.name = "",
          .model = setup_.config.model,
          .dtype = setup_.dtype,
          .kernels = kernels_of(setup_),
          .parallel = setup_.parallel,
          .parameters = parameters_};
}

double TrainingEngine::accumulate(TrainingBatch const& batch) {
  PipelineStep const step{.micro_batches = batch.micro_batches,
                          .make_pack = batch.make_pack,
                          .loss = {setup_.config.train.label_smoothing, 1 / static_cast<double>(batch.target_tokens)},
                          .seed = setup_.config.train.seed,
                          .step = batch.step,
                          .row_split = row_split_};
  if (setup_.config.train.deterministic) {
    // A micro-batch is a leaf of the tree, so each passes the pipeline by itself.
    optimizer_.reduce_tree(batch.micro_batches, loss_sum_, [&](std::int64_t index) { train(step, index, 1); });
  } else {
    double const zero = 0;
    copy_from_host(loss_sum_, &zero);
    optimizer_.zero_gradients();
    train(step, 0, batch.micro_batches);
    optimizer_.reduce(loss_sum_);
  }
  return to_host<double>(loss_sum_).front() / static_cast<double>(batch.target_tokens);
}

void TrainingEngine::train(PipelineStep const& step, std::int64_t first, std::int64_t count) {
  PipelineStep part = step;
  part.micro_batches = count;
  part.make_pack = [&](std::int64_t index) { return step.make_pack(first + index); };
  double const loss = to_host<double>(loss_sum_).front() + pipeline_.train(part).smoothed;
  copy_from_host(loss_sum_, &loss);
}

}  // namespace heddle
