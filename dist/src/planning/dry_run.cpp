#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/operations/softmax_cross_entropy.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/operations/update.hpp>
#include <heddle/core/parameters/update_rules.hpp>
#include <heddle/dist/planning/dry_run.hpp>
#include <heddle/dist/planning/kernel_times.hpp>
#include <limits>

namespace heddle {

namespace {

/// A group in which only this rank exists.
class NullBackend : public CommunicatorBackend {
 public:
  NullBackend(int rank, int size) : rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool reads(MemorySpace) const override { return true; }  // so that nothing is staged
  std::unique_ptr<TransferBackend> run(CollectiveCall const&) override { return nullptr; }
  std::shared_ptr<CommunicatorBackend> split(int, int, std::string const&) override {
    throw Error("split: the other ranks of a dry run are not there to say their colours");
  }

 private:
  int rank_;
  int size_;
};

}  // namespace

ParallelState idle_parallel_state(Mesh const& mesh, ParallelConfig const& config) {
  auto const communicator = [](int rank, int size) {
    return size == 1 ? Communicator::self() : Communicator(std::make_shared<NullBackend>(rank, size));
  };
  ParallelState state(communicator(mesh.rank(), mesh.shape().ranks()), mesh,
                      [communicator](MeshGroup const& group) { return communicator(group.place, group.size); });
  state.set_modes(config.sequence_parallel, config.context_mode);
  state.divide_experts(config.expert);
  state.divide_parameters(shards_of(config));
  return state;
}

void DryRunCalls::selected(KernelSelection const& selection) {
  selections_.insert({std::string(selection.operation), selection.problem, std::string(selection.implementation)});
}

void DryRunCalls::observe(Execution& /*execution*/, KernelCall const& call) {
  if (call.kept.bytes > 0) {
    kept_by_name_[call.kept.name] = static_cast<std::int64_t>(call.kept.bytes);
  }
  largest_call_ = std::max(largest_call_, static_cast<std::int64_t>(call.cost.bytes));
  auto& by_size = calls_[kind_of(call)];
  auto const known = std::ranges::find(by_size, call.cost, &KernelCalls::cost);
  if (known != by_size.end()) {
    known->calls += 1;
  } else {
    by_size.push_back({"", call.cost, 1});
  }
}

std::vector<KernelCalls> DryRunCalls::take() {
  std::vector<KernelCalls> all;
  for (auto& [kind, by_size] : calls_) {
    for (KernelCalls& calls : by_size) {
      calls.kind = kind;
      all.push_back(std::move(calls));
    }
  }
  calls_.clear();
  return all;
}

std::int64_t DryRunCalls::kept_bytes() const {
  std::int64_t sum = 0;
  for (auto const& [name, bytes] : kept_by_name_) {
    sum += bytes;
  }
  return sum;
}

LayerSpec DryRunRank::spec(Config const& config) {
  return {.name = "",
          .model = config.model,
          .dtype = dtype,
          .kernels = {kernels, config.kernels},
          .parallel = parallel,
          .parameters = parameters};
}

DryRunRank::DryRunRank(Config const& config, Mesh const& mesh, VocabularySizes const& vocabulary,
                       Registries const& registries)
    : kernels(registries.kernels.dry_run(calls)),
      dtype(dtype_of(config.train.precision)),
      parallel(idle_parallel_state(mesh, config.parallel)),
      parameters(mesh, division_of(config.parallel)),
      model(spec(config), registries.layers, vocabulary,
            plan_pipeline(describe_model(config.model, registries.layers), config.parallel, vocabulary.target)),
      teachers(make_teachers(model, spec(config), registries.layers, vocabulary, config)),
      pipeline(parallel.pipeline, model, KernelSource{kernels, config.kernels}.select<TensorOps>({dtype}), execution,
               {.split_backward = splits_backward(config.parallel), .arenas = arenas}) {
  assign_rules(config.optimizer, registries.kernels, parameters);
  parameters.arrange();
  DType const values_dtype = parameter_dtype(dtype);
  ParameterSet::BufferSizes const held = parameters.held_sizes();
  std::size_t const bytes =
      static_cast<std::size_t>(held.values + held.gradients + held.rounded) * size_of(values_dtype);
  std::size_t const taught = static_cast<std::size_t>(teacher_elements()) * size_of(values_dtype);
  values.emplace(bytes + taught + 128 * (3 + teachers.size()), arenas);
  try {
    parameters.bind(values->allocate(values_dtype, {held.values}), values->allocate(values_dtype, {held.gradients}),
                    held.rounded > 0 ? values->allocate(DType::bfloat16, {held.rounded}) : Tensor());
    for (Teacher& teacher : teachers) {
      teacher.parameters().bind(values->allocate(values_dtype, {teacher.parameters().size()}), Tensor());
    }
  } catch (Error const& error) {  // training would take twice as much, and touch it
    throw ConfigError(
        "rank {}: parameters and gradients of {} together are more than the system grants ({}); smaller layers "
        "(model.d_model, model.d_ff), or parallel.tensor and parallel.pipeline, which divide them, need less",
        mesh.rank(), readable_size(static_cast<std::int64_t>(bytes)), error.what());
  }
  if (!parameters.sections().empty()) {
    gathered.emplace(parallel, parameters, KernelSource{kernels, config.kernels}.select<TensorOps>({values_dtype}),
                     execution, GatheredParameters::Options{.activations = dtype, .arena = arenas});
  }
}

std::int64_t DryRunRank::teacher_elements() {
  std::int64_t elements = 0;
  for (Teacher& teacher : teachers) {
    elements += teacher.parameters().size();
  }
  return elements;
}

void DryRunRank::unfreeze_all(Registries const& registries) {
  unfreeze(parameters, registries.kernels, std::numeric_limits<std::int64_t>::max());
}

namespace {

/// A micro-batch's way through the parts of a rank.
class StageDryRun {
 public:
  StageDryRun(Config const& config, LayoutChoice const& layout, int stage, VocabularySizes const& vocabulary,
              Registries const& registries, Pack const& pack)
      : config_(config),
        pack_(pack),
        rank_(config, Mesh(layout.shape, dry_run_rank(layout, stage), layout.ranks()), vocabulary, registries) {
    rank_.unfreeze_all(registries);
  }

  RankWork run() {
    RankWork work;
    for (ModelChunk const& part : rank_.model.parts()) {
      add_work_of(part, work);
    }
    work.kept_by_kernels = rank_.calls.kept_bytes();
    count_parameters(work);
    return work;
  }

 private:
  LayerContext context(Arena& arena) {
    return {.execution = rank_.execution,
            .arena = arena,
            .pack = pack_,
            .training = true,
            .seed = config_.train.seed,
            .row_split = row_split_of(rank_.parallel),
            .access = rank_.access()};
  }

  void add_work_of(ModelChunk const& part, RankWork& work) {
    Arena inputs, kept, temporary;
    LayerContext at_input = context(inputs);
    HiddenStates const input = part.allocate_input(at_input);
    HiddenStates const grad_output = part.allocate_grad_output(at_input);
    work.input_bytes.push_back(static_cast<std::int64_t>(inputs.peak()));
    Tensor const sums = Tensor::allocate(DType::float64, {1, SoftmaxCrossEntropy::sums_size});
    Saved saved;
    TrafficByGroup const before = traffic_of(rank_.parallel);
    LayerContext forward = context(kept);
    static_cast<void>(part.forward(forward, input, saved,
                                   {.label_smoothing = config_.train.label_smoothing,
                                    .sums = sums,
                                    .z_loss = config_.train.z_loss,
                                    .r_drop = config_.train.r_drop}));
    TrafficByGroup const between = traffic_of(rank_.parallel);
    work.forward.push_back({rank_.calls.take(), between - before});
    LayerContext backward = context(temporary);
    DeferredGradients weights(kept, inputs,
                              KernelSource{rank_.kernels, config_.kernels}.select<TensorOps>({rank_.dtype}));
    backward.deferred = splits_backward(config_.parallel) ? &weights : nullptr;
    static_cast<void>(part.backward(backward, grad_output, saved));
    TrafficByGroup const after = traffic_of(rank_.parallel);
    work.backward.push_back({rank_.calls.take(), after - between});
    if (splits_backward(config_.parallel)) {
      LayerContext later = context(temporary);
      weights.compute(later, [] {});
      work.weights.push_back({rank_.calls.take(), traffic_of(rank_.parallel) - after});
    }
    work.activations.push_back(static_cast<std::int64_t>(kept.peak()));
    work.temporary = std::max(work.temporary, static_cast<std::int64_t>(temporary.peak()));
  }

  /// The elements that replicas keep of a section, copies included: as many as if each kept an equal part of a whole.
  std::int64_t of_all_replicas(DividedSection const& section) const {
    return section.own.count() * rank_.parallel.mesh.shape().size(replica_axes());
  }
  std::int64_t of_all_replicas(IndexRange const& range) const {
    std::int64_t elements = range.count();
    for (DividedSection const* const section : rank_.parameters.sections()) {
      bool const inside = section->range.begin >= range.begin && section->range.begin < range.end;
      elements += inside ? of_all_replicas(*section) - section->range.count() : 0;
    }
    return elements;
  }
  bool has_copies(DividedSection const& section) const {
    return section.parts < rank_.parallel.mesh.shape().size(replica_axes());
  }

  void count_parameters(RankWork& work) {
    ParameterSet const& parameters = rank_.parameters;
    ParameterSet::BufferSizes const held = parameters.held_sizes();
    work.parameters = held.values + held.rounded + rank_.teacher_elements();
    work.rounded = held.rounded;
    for (DividedSection const* const section : parameters.sections()) {
      work.divided_values += section->trained ? of_all_replicas(*section) : 0;
      work.divided_gradients += section->divides_gradient ? of_all_replicas(*section) : 0;
      work.copied_gradients += section->divides_gradient && has_copies(*section) ? section->own.count() : 0;
    }
    if (rank_.gathered) {
      work.gathered_values = rank_.gathered->value_bytes();
      work.gathered_gradients = rank_.gathered->gradient_bytes();
    }
    work.parameter_dtype = parameter_dtype(dtype_of(config_.train.precision));
    for (auto const& [range, first] : rule_ranges(parameters)) {
      if (!first->frozen()) {
        UpdateWork& update = work.updates[first->rule.name];
        update.elements += of_all_replicas(range);
        update.state = std::ssize(first->state) - std::ssize(first->whole_state);
      }
    }
    for (Parameter const& parameter : parameters.all()) {
      if (parameter.matrix_cost > 0) {
        count_matrix(parameter, work.updates[parameter.rule.name]);
      }
      std::int64_t const elements = parameter.local_shape.size();
      Placement const& placement = parameter.placement();
      if (parameter.frozen()) {
        continue;
      }
      if (placement.on_several_stages()) {
        DividedSection const* const section = parameters.section_of(parameter);
        work.shared_divided_values += section != nullptr && section->trained ? elements : 0;
        work.shared_divided_gradients += section != nullptr && section->divides_gradient ? elements : 0;
        work.shared_elements += elements;
        work.updates[parameter.rule.name].shared += elements;
        work.max_holders = std::max(work.max_holders, static_cast<int>(placement.stages.size()));
      }
      MeshShape const& shape = rank_.parallel.mesh.shape();
      for (MeshAxis const axis : shape.model_axes()) {
        work.partial_elements += placement.is_partial_over(axis) && shape.size(axis) > 1 ? elements : 0;
      }
    }
  }

  void count_matrix(Parameter const& parameter, UpdateWork& update) const {
    RuleDefinition const rule = rule_definition(rank_.kernels, parameter.rule.name, "optimizer.name");
    Cost const whole = rule.matrices.cost(matrix_of(parameter, rule, parameter_dtype(rank_.dtype)));
    std::int64_t slices = 1;
    for (int axis = 0; axis < parameter.global_shape().rank(); ++axis) {
      slices *= parameter.placement().shards_along(axis, rank_.parallel.mesh.shape());
    }
    update.matrices += 1;
    update.split_elements += slices > 1 ? parameter.local_shape.size() : 0;
    update.functions += 1 / static_cast<double>(slices) * whole;
  }

  Config const& config_;
  Pack const& pack_;
  DryRunRank rank_;
};

void add_pass(PassWork& into, PassWork const& from, std::int64_t count) {
  for (KernelCalls const& calls : from.kernels) {
    auto const known = std::ranges::find_if(
        into.kernels, [&](KernelCalls const& old) { return old.cost == calls.cost && old.kind == calls.kind; });
    if (known != into.kernels.end()) {
      known->calls += static_cast<double>(count) * calls.calls;
    } else {
      into.kernels.push_back(calls);
      into.kernels.back().calls *= static_cast<double>(count);
    }
  }
  for (std::size_t group = 0; group < traffic_groups; ++group) {
    for (std::size_t collective = 0; collective < collectives; ++collective) {
      into.traffic[group][collective] += count * from.traffic[group][collective];
    }
  }
}

}  // namespace

int dry_run_rank(LayoutChoice const& layout, int stage) {
  MeshShape const& shape = layout.shape;
  MeshAxes inner = shape.axes_except(MeshAxis::pipeline);
  std::erase(inner, MeshAxis::data);
  return shape.rank_at({MeshAxis::pipeline}, stage, shape.rank_at(inner, shape.size(inner) - 1, 0));
}

RankWork dry_run_stage(Config const& config, LayoutChoice const& layout, int stage, VocabularySizes const& vocabulary,
                       Registries const& registries, Pack const& pack) {
  return StageDryRun(config, layout, stage, vocabulary, registries, pack).run();
}

RankWork sum_of_layers(std::vector<std::vector<LayerGroup>> const& parts, int stages) {
  RankWork sum;
  std::int64_t shared = 0, shared_values = 0, shared_gradients = 0;
  std::map<std::string, std::int64_t> shared_by_rule;
  for (std::vector<LayerGroup> const& groups : parts) {
    PassWork& forward = sum.forward.emplace_back();
    PassWork& backward = sum.backward.emplace_back();
    bool const split = !groups.front().layer->weights.empty();
    PassWork& weights = split ? sum.weights.emplace_back() : backward;
    std::int64_t& activations = sum.activations.emplace_back(0);
    sum.input_bytes.push_back(groups.front().layer->input_bytes.front());
    for (auto const& [layer, count] : groups) {
      add_pass(forward, layer->forward.front(), count);
      add_pass(backward, layer->backward.front(), count);
      if (split) {
        add_pass(weights, layer->weights.front(), count);
      }
      activations += count * layer->activations.front();
      sum.temporary = std::max(sum.temporary, layer->temporary);
      sum.kept_by_kernels += count * layer->kept_by_kernels;
      sum.parameters += count * layer->parameters;
      sum.rounded += count * layer->rounded;
      sum.divided_values += count * layer->divided_values;
      sum.divided_gradients += count * layer->divided_gradients;
      sum.copied_gradients += count * layer->copied_gradients;
      sum.gathered_values = std::max(sum.gathered_values, layer->gathered_values);
      sum.gathered_gradients = std::max(sum.gathered_gradients, layer->gathered_gradients);
      sum.partial_elements += count * layer->partial_elements;
      shared += count * layer->shared_elements;
      shared_values += count * layer->shared_divided_values;
      shared_gradients += count * layer->shared_divided_gradients;
      sum.shared_divided_values = std::max(sum.shared_divided_values, layer->shared_divided_values);
      sum.shared_divided_gradients = std::max(sum.shared_divided_gradients, layer->shared_divided_gradients);
      sum.shared_elements = std::max(sum.shared_elements, layer->shared_elements);
      sum.max_holders = std::max(sum.max_holders, std::min(layer->max_holders, stages));
      sum.parameter_dtype = layer->parameter_dtype;
      for (auto const& [rule, update] : layer->updates) {
        UpdateWork& all = sum.updates[rule];
        all.elements += count * update.elements;
        all.shared = std::max(all.shared, update.shared);
        all.state = update.state;
        all.matrices += count * update.matrices;
        all.split_elements += count * update.split_elements;
        all.functions += static_cast<double>(count) * update.functions;
        shared_by_rule[rule] += count * update.shared;
      }
    }
  }
  sum.parameters -= shared - sum.shared_elements;
  sum.divided_values -= shared_values - sum.shared_divided_values;
  sum.divided_gradients -= shared_gradients - sum.shared_divided_gradients;
  for (auto& [rule, update] : sum.updates) {
    update.elements -= shared_by_rule[rule] - update.shared;
  }
  return sum;
}

std::int64_t RankWork::trained() const {
  std::int64_t elements = 0;
  for (auto const& [rule, update] : updates) {
    elements += update.elements;
  }
  return elements;
}

std::vector<KernelCalls> update_kernels(RankWork const& work, int ranks) {
  auto const name = name_of(work.parameter_dtype);
  auto const element = static_cast<double>(work.element_bytes());
  TensorOpsProblem const tensors{work.parameter_dtype};
  auto const own = [&](std::int64_t elements) { return static_cast<double>((elements + ranks - 1) / ranks); };
  std::int64_t const trained = work.trained();
  std::vector<KernelCalls> calls{
      {fmt::format("tensor_ops fill, {}; {}", name, timing_key(tensors)),
       {0, static_cast<double>(trained) * element},
       1},
      {fmt::format("tensor_ops sum of squares, {}; {}", name, timing_key(tensors)), {0, own(trained) * element}, 1}};
  for (auto const& [rule, update] : work.updates) {
    UpdateProblem const problem{rule, work.parameter_dtype};
    calls.push_back({fmt::format("update update, {}; {}", name, timing_key(problem)),
                     cost(problem, own(update.elements), static_cast<double>(update.state) * own(update.elements)), 1});
  }
  return calls;
}

}  // namespace heddle
