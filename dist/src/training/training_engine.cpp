#include <algorithm>
#include <array>
#include <cmath>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/core/parameters/update_rules.hpp>
#include <heddle/dist/training/training_engine.hpp>
#include <sstream>

namespace heddle {

namespace {

KernelSource kernels_of(TrainingEngine::Setup const& setup) {
  return {setup.registries.kernels, setup.config.kernels};
}

bool is_finite(StepResult const& result) {
  return std::isfinite(result.loss) && std::isfinite(result.gradient_norm);
}

/// The mixtures of a stage in lines, "LAYER EXPERTS".
std::string mixtures_of(ParameterSet const& parameters) {
  std::ostringstream lines;
  for (ChoiceCounts const& layer : parameters.choices()) {
    lines << layer.layer << ' ' << layer.experts << '\n';
  }
  return lines.str();
}

}  // namespace

TrainingEngine::TrainingEngine(Setup const& setup)
    : setup_(setup),
      row_split_(row_split_of(setup.parallel)),
      parameters_(setup.parallel.mesh, division_of(setup.config.parallel)),
      row_losses_(statistics_dtype(setup.dtype)) {
  Config const& config = setup.config;
  plan_ =
      plan_pipeline(describe_model(config.model, setup.registries.layers), config.parallel, setup.vocabulary.target);
  // The layers declare their parameters in their constructors.
  model_.emplace(layer_spec(), setup.registries.layers, setup.vocabulary, plan_);
  model_->observe(setup.observer);
  teachers_ = make_teachers(*model_, layer_spec(), setup.registries.layers, setup.vocabulary, config);
  for (Teacher& teacher : teachers_) {
    teacher.parameters().bind(Tensor::allocate(parameter_dtype(setup.dtype), {teacher.parameters().size()}), Tensor());
  }
  KernelSource const kernels = kernels_of(setup);
  assign_rules(config.optimizer, kernels.registries, parameters_);  // frozen parameters get no gradient
  parameters_.allocate(parameter_dtype(setup.dtype));
  tensor_ops_ = kernels.select<TensorOps>({setup.dtype});
  pipeline_.emplace(setup.parallel.pipeline, *model_, tensor_ops_, setup.execution,
                    Pipeline::Options{.split_backward = setup.split_backward || splits_backward(config.parallel)});
  // Also on a stage that has nothing to divide: all stages run their micro-batches in one order.
  bool const divides = divides_model(config.parallel) && setup.parallel.replicas.size() > 1;
  if (divides && any_of(setup.parallel.pipeline, !parameters_.sections().empty())) {
    gathered_.emplace(setup.parallel, parameters_, kernels.select<TensorOps>({parameter_dtype(setup.dtype)}),
                      setup.execution,
                      GatheredParameters::Options{.activations = setup.dtype, .observer = setup.observer});
  }
  find_mixtures();
  std::int64_t const sums = measures_noise() ? 3 : 2;
  results_ = Tensor::allocate(DType::float64, {sums + 1});
  loss_sums_ = results_.rows(0, sums);
  sum_of_squares_ = results_.rows(sums, 1);
  DistributedOptimizer::Options options{
      .shard = shards_optimizer(config.parallel),
      .bucket_elements = setup.bucket_elements.value_or(GradientReducer::bucket_for(setup.parallel.replicas.size()))};
  if (measures_noise()) {
    options.observe = [this, operations =
                                 kernels.select<TensorOps>({parameter_dtype(setup.dtype)})](Tensor const& gradients) {
      operations->add_sum_of_squares(setup_.execution, gradients, loss_sums_.rows(2, 1));
    };
  }
  optimizer_.emplace(config.optimizer, kernels, setup.parallel, parameters_, setup.execution, options);
  if (gathered_ && config.train.deterministic) {
    trees_.emplace(setup.parallel, parameters_, optimizer_->reducer().parts(),
                   kernels.select<TensorOps>({parameter_dtype(setup.dtype)}), setup.execution);
    gathered_->sum_in(&*trees_);
  }
}

void TrainingEngine::find_mixtures() {
  auto const stages = gather_texts(setup_.parallel.pipeline, mixtures_of(parameters_));
  for (int stage = 0; stage < std::ssize(stages); ++stage) {
    std::istringstream lines(stages[static_cast<std::size_t>(stage)]);
    std::size_t experts = 0;
    for (std::string layer; lines >> layer >> experts;) {
      mixtures_.push_back({.layer = layer, .choices = std::vector<double>(experts)});
      first_choice_ += stage < setup_.parallel.pipeline.rank() ? experts + 1 : 0;
    }
  }
}

bool TrainingEngine::measures_noise() const {
  ParallelState const& parallel = setup_.parallel;
  return setup_.config.train.noise_scale && !setup_.config.train.deterministic && parallel.data.size() > 1 &&
         parallel.data.size() == parallel.world.size();
}

GradientNoise TrainingEngine::noise_of(double squares_of_parts, double norm, double tokens) const {
  // With n parts of a batch, the mean of the squared norms of the parts' mean gradients is n * squares_of_parts: its
  // expectation is square + variance * n / tokens, where that of the whole batch's is square + variance / tokens.
  auto const parts = static_cast<double>(setup_.parallel.data.size());
  double const excess = (parts * squares_of_parts - norm * norm) / (parts - 1);
  return {excess * tokens, norm * norm - excess};
}

LayerSpec TrainingEngine::layer_spec() {
  return {.name = "",
          .model = setup_.config.model,
          .dtype = setup_.dtype,
          .kernels = kernels_of(setup_),
          .parallel = setup_.parallel,
          .parameters = parameters_};
}

StepResult TrainingEngine::step(MicroBatchSource const& batch, std::int64_t steps_done, double learning_rate,
                                GradientsAfter after) {
  launch(batch, steps_done);
  optimizer_->add_sum_of_squares(sum_of_squares_);
  // The step's only wait for the kernels, if there is one rank.
  std::array<double, 4> results{};
  copy_to_host(results.data(), results_, &setup_.execution);
  double const sum_of_squares = results[static_cast<std::size_t>(loss_sums_.size())];
  double const tokens = predicted_tokens(batch);
  double const loss = results[0] / tokens;
  // A deterministic step sets the gradients to zero before each micro-batch.
  GradientsAfter const left = setup_.config.train.deterministic ? GradientsAfter::kept : after;
  double const norm =
      std::isfinite(loss) ? optimizer_->update(sum_of_squares, learning_rate, steps_done + 1, left) : loss;
  StepResult result{loss, norm, results[1] / tokens};
  if (measures_noise()) {
    result.noise = noise_of(results[2], norm, tokens);
  }
  if (std::isfinite(loss)) {
    result.expert_loads = balance_experts(std::isfinite(norm), steps_done);
    result.group_nll = group_sums(batch.groups());
  }
  return result;
}

double TrainingEngine::predicted_tokens(MicroBatchSource const& batch) const {
  return static_cast<double>(setup_.config.train.passes() * batch.tokens().target);
}

std::vector<ExpertLoad> TrainingEngine::balance_experts(bool update, std::int64_t steps_done) {
  std::size_t size = 0;
  for (ExpertLoad const& mixture : mixtures_) {
    size += mixture.choices.size() + 1;
  }
  std::vector<double> sums(size);
  Tensor const& own_sums = parameters_.choice_sums();
  std::span<double> own(sums.data() + first_choice_, static_cast<std::size_t>(own_sums.size()));
  if (!own.empty()) {
    copy_to_host(own.data(), own_sums, &setup_.execution);
    all_reduce_values(setup_.parallel.replicas, own);
  }
  for (ChoiceCounts const& layer : parameters_.choices()) {
    auto const experts = static_cast<std::size_t>(layer.experts);
    if (update && layer.bias != nullptr) {
      UpdateRule const rule = update_rule(setup_.config.optimizer, layer.bias->spec.name);
      if (!rule.frozen && rule.frozen_until <= steps_done) {
        balance(layer, own.first(experts));
      }
    }
    own = own.subspan(experts + 1);
  }
  if (!sums.empty()) {
    all_reduce_values(setup_.parallel.pipeline, std::span(sums));
  }
  std::vector<ExpertLoad> loads = mixtures_;
  auto next = sums.begin();
  for (ExpertLoad& load : loads) {
    auto const end = next + std::ssize(load.choices);
    load.choices.assign(next, end);
    load.dropped = *end;
    next = end + 1;
  }
  return loads;
}

std::vector<double> TrainingEngine::group_sums(SampleGroups const& groups) {
  if (groups.count == 0) {
    return {};
  }
  std::vector<double> sums = row_losses_.sums(groups.count, groups.of_sample);
  row_losses_.clear();
  all_reduce_values(setup_.parallel.loss_parts, std::span(sums));
  all_reduce_values(setup_.parallel.pipeline, std::span(sums));
  double const unit = RowLosses::unit / setup_.config.train.passes();
  std::ranges::for_each(sums, [unit](double& sum) { sum *= unit; });
  return sums;
}

double TrainingEngine::accumulate(MicroBatchSource const& batch, std::int64_t steps_done) {
  launch(batch, steps_done);
  return to_host<double>(loss_sums_).front() / predicted_tokens(batch);
}

void TrainingEngine::launch(MicroBatchSource const& batch, std::int64_t steps_done) {
  PipelineStep step{.micro_batches = {0, batch.count()},
                    .loss = {.label_smoothing = setup_.config.train.label_smoothing,
                             .scale = 1 / predicted_tokens(batch),
                             .z_loss = setup_.config.train.z_loss,
                             .r_drop = setup_.config.train.r_drop},
                    .seed = setup_.config.train.seed,
                    .step = static_cast<std::uint32_t>(steps_done),
                    .row_split = row_split_,
                    .access = gathered(),
                    .observer = setup_.observer,
                    .row_losses = batch.groups().count > 0 ? &row_losses_ : nullptr};
  row_losses_.clear();
  tensor_ops_->fill(setup_.execution, results_, 0);
  if (!parameters_.choice_sums().empty()) {
    tensor_ops_->fill(setup_.execution, parameters_.choice_sums(), 0);
  }
  if (setup_.config.train.deterministic) {
    trees_ ? train_in_rounds(batch, step) : train_one_by_one(batch, step);
  } else {
    optimizer_->zero_gradients();
    if (gathered_) {
      // Reductions of other gradients, which begin when they may, would begin in another order on another replica.
      step.max_micro_batches = max_of(setup_.parallel.data, batch.count());
      train(batch, step);
      gathered_->finish();
    } else {
      step.gradients = &optimizer_->reducer().progress();
      train(batch, step);
    }
    reduce();
  }
}

void TrainingEngine::train_one_by_one(MicroBatchSource const& batch, PipelineStep step) {
  // A micro-batch is a leaf of the tree, so each passes the pipeline separately.
  IndexRange const mine = optimizer_->reducer().begin_tree(batch.count(), loss_sums_);
  for (std::int64_t index = mine.begin; index < mine.end; ++index) {
    step.micro_batches = {index, index + 1};
    train(batch, step);
    optimizer_->reducer().micro_batch_done();
  }
  optimizer_->reducer().finish_tree();
}

/// Runs a deterministic step where replicas divide parameters: data rank r of d computes micro-batches r, r + d, …, one
/// in each round, and in a last round those without one gather parameters with the others.
void TrainingEngine::train_in_rounds(MicroBatchSource const& batch, PipelineStep step) {
  Communicator const& data = setup_.parallel.data;
  std::int64_t const count = batch.count();
  optimizer_->zero_gradients();
  trees_->begin(count, loss_sums_);
  step.max_micro_batches = 1;
  for (std::int64_t first = 0; first < count; first += data.size()) {
    std::int64_t const index = std::min(first + data.rank(), count);
    step.micro_batches = {index, std::min(index + 1, count)};
    train(batch, step);
    trees_->round_done(loss_sums_);
  }
  trees_->finish(loss_sums_);
  optimizer_->reducer().finish_scattered(loss_sums_);
}

void TrainingEngine::reduce() {
  bool const waits = setup_.parallel.replicas.size() > 1;
  WorkScope const work(waits ? setup_.observer : nullptr,
                       {WorkKind::waiting, optimizer_->sharded() ? "replicas.reduce_scatter" : "replicas.all_reduce"});
  optimizer_->reducer().reduce(loss_sums_);
}

void TrainingEngine::train(MicroBatchSource const& batch, PipelineStep const& step) {
  Tensor const sums = pipeline_->train(batch, step);
  for (std::int64_t index = 0; index < sums.dim(0); ++index) {
    tensor_ops_->add(setup_.execution, loss_sums_.rows(0, 2), sums.rows(index, 1).columns(0, 2).reshaped({2}));
  }
}

LossSums TrainingEngine::evaluate(MicroBatchSource const& micro_batches, std::function<void()> const& between) {
  Communicator const& data = setup_.parallel.data;
  std::int64_t const count = micro_batches.count();
  IndexRange const mine = share(count, data.rank(), data.size());
  std::int64_t const largest_share = count / data.size() + 1;
  // Each round fills the pipeline and ends with a wait for the kernels.
  std::int64_t const round = between ? 4 * setup_.parallel.pipeline.size() : largest_share;
  std::vector<LossSums> losses;
  for (std::int64_t done = 0; done < largest_share; done += round) {
    if (between) {
      between();
    }
    IndexRange const next{std::min(mine.begin + done, mine.end), std::min(mine.begin + done + round, mine.end)};
    if (next.begin < next.end || gathered_) {
      auto const more = pipeline_->evaluate(micro_batches, {.micro_batches = next,
                                                            .max_micro_batches = std::min(round, largest_share - done),
                                                            .loss = {},
                                                            .row_split = row_split_,
                                                            .access = gathered(),
                                                            .observer = setup_.observer});
      losses.insert(losses.end(), more.begin(), more.end());
    }
  }
  // Each micro-batch has its own elements, and they are added in one order: the sum does not depend on which rank
  // computed it.
  constexpr std::size_t values = 3;
  std::vector<double> places(values * static_cast<std::size_t>(count), 0.0);
  for (std::size_t index = 0; index < losses.size(); ++index) {
    std::size_t const place = values * (static_cast<std::size_t>(mine.begin) + index);
    places[place] = losses[index].negative_log_likelihood;
    places[place + 1] = static_cast<double>(losses[index].tokens);
    places[place + 2] = static_cast<double>(losses[index].correct);
  }
  all_reduce_values(setup_.parallel.loss_parts, std::span(places));
  all_reduce_values(setup_.parallel.pipeline, std::span(places));
  LossSums sums;
  for (std::size_t place = 0; place < places.size(); place += values) {
    sums +=
        {0, places[place], static_cast<std::int64_t>(places[place + 1]), static_cast<std::int64_t>(places[place + 2])};
  }
  return sums;
}

FiniteSteps::Outcome FiniteSteps::run(std::function<StepResult()> const& step) {
  Outcome outcome{step()};
  if (!is_finite(outcome.result)) {
    outcome.repeated = true;
    outcome.result = step();
    outcome.skipped = !is_finite(outcome.result);
  }
  skipped_in_a_row_ = outcome.skipped ? skipped_in_a_row_ + 1 : 0;
  return outcome;
}

}  // namespace heddle
