#include <algorithm>
#include <cmath>
#include <heddle/core/attention/attention_positions.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/model/model_chunk.hpp>
#include <heddle/core/model/teacher.hpp>
#include <heddle/core/parameters/update_rules.hpp>
#include <ranges>

#include "grid_change.hpp"

namespace heddle {

namespace {

/// The first of a stack's layers `layers` that takes the stack's positions; null if none does.
LayerDescription const* find_with_positions(StackDescription const& stack, IndexRange const& layers) {
  auto const end = stack.layers.begin() + layers.end;
  auto const found = std::find_if(stack.layers.begin() + layers.begin, end, [](LayerDescription const& layer) {
    return std::ranges::any_of(layer.sublayers, [](SublayerDescription const& each) {
      return each.traits.takes_positions && !has_own_positions(each.options);
    });
  });
  return found == end ? nullptr : &*found;
}

/// The stages with a part for which `uses` is true; empty if there is only one.
template <class Uses>
std::vector<int> sharing_stages(PipelinePlan const& plan, Uses const& uses) {
  std::vector<int> stages;
  for (int stage = 0; stage < plan.stages(); ++stage) {
    if (std::ranges::any_of(plan.parts[static_cast<std::size_t>(stage)], uses)) {
      stages.push_back(stage);
    }
  }
  return stages.size() > 1 ? stages : std::vector<int>();
}

/// The parameters that a part of a model may share with other parts, also on other stages: tables of embeddings, the
/// output projection, and the positions that a stack's layers have in common.
class SharedParameters {
 public:
  SharedParameters(LayerSpec const& spec, ModelDescription const& description, VocabularySizes const& vocabulary,
                   PipelinePlan const& plan)
      : spec_(spec), description_(description), vocabulary_(vocabulary), plan_(plan) {
    require_equal_widths();
  }

  /// Tables are declared by their first use on this rank; tied ones share a name. Null where the stack embeds no
  /// tokens.
  Parameter* embedding(std::size_t stack) const { return embeds(stack) ? &declared(table(stack)) : nullptr; }
  Parameter& output() const { return declared(table(description_.stacks.size())); }
  /// The grid that the input of a stack computes in: a table has the grid of the last stack that uses it.
  Grid input_grid(std::size_t stack) const { return embeds(stack) ? grid_of(table(stack)) : description_.grid(stack); }

  /// The positions for the layers `layers` of a stack, counted from its first; null if they take none. `stack_spec` is
  /// the stack's.
  std::shared_ptr<AttentionPositions> positions(LayerSpec const& stack_spec, std::size_t stack,
                                                IndexRange const& layers) const {
    StackDescription const& described = description_.stacks[stack];
    if (!act_in_attention(stack_spec.model.positions) || find_with_positions(described, layers) == nullptr) {
      return nullptr;
    }
    auto const takes_them = [&](IndexRange const& part) {
      return find_with_positions(described, description_.range_in(stack, part)) != nullptr;
    };
    return make_attention_positions({stack_spec, find_with_positions(described, {0, described.count()})->keys->heads,
                                     sharing_stages(plan_, takes_them)});
  }

 private:
  struct Table {
    std::string name;
    std::int64_t size = 0;
    std::int64_t width = 0;
  };

  bool embeds(std::size_t stack) const { return description_.stacks[stack].input.traits.embeds_tokens; }

  /// The table of a stack's embedding, or of the output, whose use follows those of the stacks.
  Table table(std::size_t use) const {
    bool const is_output = use == description_.stacks.size();
    StackDescription const& stack = is_output ? description_.stacks.back() : description_.stacks[use];
    std::int64_t const size = stack.side == Side::source ? vocabulary_.source : vocabulary_.target;
    bool const tied = description_.keys.tie_embeddings;
    bool const shared = tied || (description_.keys.share_embeddings && !is_output);
    if (shared && vocabulary_.joint && !description_.keys.separate_embeddings) {
      return {"embedding.weight", size, stack.keys->d_model};
    }
    return {is_output && !tied ? "output.weight" : stack.name + ".embedding.weight", size, stack.keys->d_model};
  }

  Grid grid_of(Table const& table) const {
    std::size_t const output = description_.stacks.size();
    bool const of_last =
        this->table(output).name == table.name || (embeds(output - 1) && this->table(output - 1).name == table.name);
    return of_last ? Grid::decoder : Grid::encoder;
  }

  /// Throws ConfigError where stacks of different width would share a table.
  void require_equal_widths() const {
    StackDescription const& last = description_.stacks.back();
    std::size_t const output = description_.stacks.size();
    for (std::size_t stack = 0; stack + 1 < output; ++stack) {
      Table const own = table(stack);
      bool const shared = (embeds(output - 1) && table(output - 1).name == own.name) || table(output).name == own.name;
      if (embeds(stack) && shared && own.width != last.keys->d_model) {
        StackDescription const& first = description_.stacks[stack];
        throw ConfigError(
            "{} = {}: the {} cannot share the table {} with the {}, whose d_model is {}; set "
            "model.separate_embeddings = true, or equal widths",
            first.keys->place("d_model"), own.width, first.name, own.name, last.name, last.keys->d_model);
      }
    }
  }

  bool uses_table(IndexRange const& part, std::string const& name) const {
    bool uses = part.end == description_.layers() && table(description_.stacks.size()).name == name;
    for (std::size_t stack = 0; stack < description_.stacks.size(); ++stack) {
      uses = uses || (embeds(stack) && description_.has_entry(stack, part) && table(stack).name == name);
    }
    return uses;
  }

  Parameter& declared(Table const& table) const {
    if (Parameter* const present = spec_.parameters.find(table.name)) {
      return *present;
    }
    double const deviation = 1 / std::sqrt(static_cast<double>(table.width));
    spec_.parameters.set_grid(grid_of(table));
    return spec_.parameters.reserve(
        {.name = table.name,
         .placement = {.global_shape = {table.size, table.width},
                       .shards = Placement::sharded_along(0),
                       .stages =
                           sharing_stages(plan_, [&](IndexRange const& part) { return uses_table(part, table.name); })},
         .initializer = Initializer::normal(deviation),
         .rounded = spec_.model.frozen.rounded && is_frozen(spec_.model.frozen, table.name)});
  }

  LayerSpec const& spec_;
  ModelDescription const& description_;
  VocabularySizes const& vocabulary_;
  PipelinePlan const& plan_;
};

LayerSpec stack_spec(LayerSpec const& spec, StackDescription const& stack, Grid grid) {
  LayerSpec own = spec.in_grid(grid).with_keys(stack.name, *stack.keys);
  own.side = stack.side;
  own.encoder_side = stack.encoder_side;
  return own;
}

/// The tokens that the rows of a side are to predict.
RowTargets const& output_tokens(Pack const& pack, Side side) {
  RowTargets const& targets = side == Side::source ? pack.source_output : pack.target_output;
  if (targets.id.empty()) {
    throw Error("this pack has no tokens to predict for the rows of the model's last stack");
  }
  return targets;
}

void begin_use(LayerContext const& context, ParameterUnit* unit, bool gradient) {
  if (unit != nullptr) {
    context.begin_use(*unit, gradient);
  }
}

void end_use(LayerContext const& context, ParameterUnit* unit) {
  if (unit != nullptr) {
    context.end_use(*unit);
  }
}

struct Activations {
  std::vector<Saved> inputs;  ///< one per stack
  std::vector<Saved> stacks;
  Tensor grad_hidden;  ///< of the last layer's output, from the loss
  double loss_scale = 0;
};

}  // namespace

ModelChunk::ModelChunk(LayerSpec const& spec, LayerRegistry const& registry, ModelDescription const& description,
                       VocabularySizes const& vocabulary, PipelinePlan const& plan, IndexRange const& layers)
    : parallel_(spec.parallel),
      layers_(layers),
      dtype_(spec.dtype),
      tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})) {
  SharedParameters const shared(spec, description, vocabulary, plan);
  // Tables are declared before everything else. Each is a unit, which inputs and the output may share.
  std::vector<Parameter*> tables;
  auto const unit_of = [&](Parameter const* table) -> ParameterUnit* {
    auto& units = spec.parameters.units();
    auto const known = std::ranges::find_if(
        units, [&](ParameterUnit const& unit) { return std::ranges::count(unit.members, table) > 0; });
    return table == nullptr ? nullptr : known != units.end() ? &*known : &spec.parameters.add_unit({&table, 1});
  };
  for (std::size_t index = 0; index < description.stacks.size(); ++index) {
    StackDescription const& stack = description.stacks[index];
    extents_.push_back({description.range(index), stack.side, stack.keys->d_model, description.grid(index)});
    tables.push_back(description.has_entry(index, layers) ? shared.embedding(index) : nullptr);
  }
  bool const ends_model = layers.end == description.layers();
  Parameter* const output = ends_model ? &shared.output() : nullptr;
  for (std::size_t index = 0; index < description.stacks.size(); ++index) {
    StackDescription const& stack = description.stacks[index];
    bool const begins = description.has_entry(index, layers);
    IndexRange const range = description.range_in(index, layers);
    if (!begins && range.count() == 0) {
      continue;
    }
    Grid const grid = description.grid(index);
    Grid const input_grid = shared.input_grid(index);
    LayerSpec named = stack_spec(spec, stack, grid);
    spec.parameters.set_grid(grid);
    named.positions = shared.positions(named, index, range);
    std::unique_ptr<StackInput> input;
    std::size_t const uses_before = spec.parameters.uses().size();
    if (begins) {
      LayerSpec of_input = stack_spec(spec, stack, input_grid);
      of_input.positions = named.positions;
      of_input.options = stack.input.options;
      of_input.table = tables[index];
      spec.parameters.set_grid(input_grid);
      input = registry.inputs.build(stack.input.name, of_input);
      spec.parameters.set_grid(grid);
    }
    auto used = spec.parameters.uses_since(uses_before);
    stacks_.push_back({index, stack.side, stack.encoder_side, begins, description.has_exit(index, layers),
                       std::move(input), ResidualStack(named, registry, stack, range), stack.name + ".embedding",
                       std::move(used), unit_of(tables[index]), grid, input_grid});
  }
  spec.parameters.set_grid(Grid::decoder);
  if (extents_.size() > 1) {
    grid_change_ = std::make_unique<GridChange>(spec, extents_[extents_.size() - 2].side);
  }
  if (output != nullptr) {
    output_table_ = unit_of(output);
    std::size_t const uses_before = spec.parameters.uses().size();
    output_.emplace(stack_spec(spec, description.stacks.back(), Grid::decoder), *output);
    output_parameters_ = spec.parameters.uses_since(uses_before);
  }
}

ModelChunk::~ModelChunk() = default;

void ModelChunk::observe(WorkObserver* observer) {
  observer_ = observer;
  for (Stack& stack : stacks_) {
    stack.layers.observe(observer);
  }
}

HiddenStates ModelChunk::forward(LayerContext& context, HiddenStates const& input, Saved& saved,
                                 OutputLoss::Training const& training) const {
  if (context.access != nullptr) {
    context.access->begin(uses(Direction::forward, training.scale != 0));
  }
  LayerContext of_layers = context;
  of_layers.loss_sums = training.sums;
  of_layers.loss_scale = training.scale;
  auto& activations = saved.renew<Activations>();
  activations.grad_hidden = Tensor();
  activations.loss_scale = training.scale;
  activations.inputs.resize(stacks_.size());
  activations.stacks.resize(stacks_.size());
  HiddenStates stream = input;
  for (std::size_t index = 0; index < stacks_.size(); ++index) {
    Stack const& stack = stacks_[index];
    if (stack.begins) {
      WorkScope const work(observer_, {WorkKind::layer, stack.input_name});
      begin_use(context, stack.table, false);
      stream.hidden = enter(context, stack, activations.inputs[index]);
      end_use(context, stack.table);
    }
    LayerContext own = in_grid(of_layers, stack.grid);
    stream = stack.layers.forward(own, stream, activations.stacks[index]);
    if (stack.ends && stack.index + 1 < extents_.size()) {
      stream = {Tensor(), passed_on(context, stack, stream.hidden, Direction::forward)};
    }
  }
  if (output_) {
    WorkScope const work(observer_, {WorkKind::layer, "output"});
    if (training.scale != 0) {
      activations.grad_hidden = context.arena.allocate(stream.hidden.dtype(), stream.hidden.shape());
    }
    begin_use(context, output_table_, training.scale != 0);
    evaluate(context, stream.hidden, training, activations.grad_hidden);
    end_use(context, output_table_);
    if (training.scale != 0) {
      context.uses_done(output_parameters_);
    }
  }
  return output_ ? HiddenStates{stream.hidden, Tensor()} : stream;
}

void ModelChunk::set_teachers(std::vector<Teacher const*> teachers, double weight) {
  teachers_ = std::move(teachers);
  teacher_weight_ = weight;
}

void ModelChunk::evaluate(LayerContext& context, Tensor const& hidden, OutputLoss::Training training,
                          Tensor const& grad_hidden) const {
  ArenaScope const scope(context.arena);
  std::vector<OutputLoss::Teacher> outputs;
  if (!grad_hidden.empty()) {
    std::ranges::transform(teachers_, std::back_inserter(outputs),
                           [&](Teacher const* teacher) { return teacher->output(context); });
  }
  training.teachers = outputs;
  training.teacher_weight = teacher_weight_;
  output_->evaluate(context, hidden, output_tokens(context.pack, extents_.back().side), training, grad_hidden);
}

Tensor ModelChunk::infer(LayerContext& context) const {
  HiddenStates stream;
  for (Stack const& stack : stacks_) {
    Saved of_input;
    stream.hidden = enter(context, stack, of_input);
    LayerContext own = in_grid(context, stack.grid);
    stream = stack.layers.encode(own, stream);
    if (stack.index + 1 < extents_.size()) {
      stream = {Tensor(), passed_on(context, stack, stream.hidden, Direction::forward)};
    }
  }
  return stream.hidden;
}

std::int64_t ModelChunk::output_rows(Pack const& pack) const {
  return output_tokens(pack, extents_.back().side).id.dim(0);
}

HiddenStates ModelChunk::backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const {
  auto const& activations = saved.get<Activations>();
  if (context.access != nullptr) {
    context.access->begin(uses(Direction::backward, true));
  }
  LayerContext of_layers = context;
  of_layers.loss_scale = activations.loss_scale;
  HiddenStates grad = grad_output;
  if (output_) {
    grad.hidden = activations.grad_hidden;
  }
  for (std::size_t index = stacks_.size(); index-- > 0;) {
    Stack const& stack = stacks_[index];
    if (stack.ends && stack.index + 1 < extents_.size()) {
      grad = {passed_on(context, stack, grad.encoder_output, Direction::backward), Tensor()};
    }
    if (stack.encoder_side && grad.encoder_output.empty()) {
      grad.encoder_output = allocate_stream(context, extents_[stack.index - 1], stack.grid);
      tensor_ops_->fill(context.execution, grad.encoder_output, 0);
    }
    LayerContext own = in_grid(of_layers, stack.grid);
    grad = stack.layers.backward(own, grad, activations.stacks[index]);
    if (stack.begins) {
      WorkScope const work(observer_, {WorkKind::layer, stack.input_name, Direction::backward});
      begin_use(context, stack.table, true);
      leave(context, stack, grad.hidden, activations.inputs[index]);
      end_use(context, stack.table);
      context.uses_done(stack.input_parameters);
      grad.hidden = Tensor();
    }
  }
  return grad;
}

std::vector<UnitUse> ModelChunk::uses(Direction direction, bool training) const {
  std::vector<UnitUse> uses;
  auto const add = [&](ParameterUnit* unit, bool gradient) {
    if (unit != nullptr && !unit->sections.empty()) {
      uses.push_back({unit, gradient});
    }
  };
  if (direction == Direction::forward) {
    for (Stack const& stack : stacks_) {
      add(stack.table, false);
      stack.layers.add_uses(direction, uses);
    }
    add(output_table_, training);
    return uses;
  }
  for (Stack const& stack : stacks_ | std::views::reverse) {
    stack.layers.add_uses(direction, uses);
    add(stack.table, true);
  }
  return uses;
}

void ModelChunk::attend(LayerContext& context, Direction direction, bool training, Saved& saved) const {
  context.access->begin(uses(direction, training));
  auto& stacks = saved.renew<std::vector<Saved>>();
  stacks.resize(stacks_.size());
  auto const use_table = [&](ParameterUnit* table, bool gradient) {
    begin_use(context, table, gradient);
    end_use(context, table);
  };
  if (direction == Direction::forward) {
    for (std::size_t index = 0; index < stacks_.size(); ++index) {
      use_table(stacks_[index].table, false);
      stacks_[index].layers.attend(context, direction, stacks[index]);
    }
    use_table(output_table_, training);
    return;
  }
  for (std::size_t index = stacks_.size(); index-- > 0;) {
    stacks_[index].layers.attend(context, direction, stacks[index]);
    use_table(stacks_[index].table, true);
  }
}

Tensor ModelChunk::enter(LayerContext& context, Stack const& stack, Saved& saved) const {
  LayerContext own = in_grid(context, stack.input_grid);
  Tensor const hidden = stack.input->forward(own, saved);
  return stack.input_grid == stack.grid ? hidden : grid_change_->move(context, hidden, stack.input_grid);
}

void ModelChunk::leave(LayerContext& context, Stack const& stack, Tensor const& grad_hidden, Saved const& saved) const {
  LayerContext own = in_grid(context, stack.input_grid);
  Tensor const grad =
      stack.input_grid == stack.grid ? grad_hidden : grid_change_->move(context, grad_hidden, stack.grid);
  stack.input->backward(own, grad, saved);
}

Tensor ModelChunk::passed_on(LayerContext const& context, Stack const& stack, Tensor const& stream,
                             Direction direction) const {
  Grid const next = extents_[stack.index + 1].grid;
  return stack.grid == next ? stream
                            : grid_change_->move(context, stream, direction == Direction::forward ? stack.grid : next);
}

Tensor ModelChunk::allocate_stream(LayerContext& context, Extent const& stack, Grid grid) const {
  LayerContext const own = in_grid(context, grid);
  std::int64_t const rows = TensorRegion::stream_rows(own, own.pack.rows(stack.side).tokens);
  return context.arena.allocate(dtype_, {rows, stack.d_model});
}

HiddenStates ModelChunk::allocate_boundary(LayerContext& context, std::int64_t layer) const {
  HiddenStates stream;
  for (std::size_t index = 0; index < extents_.size(); ++index) {
    Extent const& stack = extents_[index];
    bool const inside = layer > stack.layers.begin && layer < stack.layers.end;
    bool const before = layer > 0 && layer == stack.layers.begin && stack.layers.count() > 0;
    if (inside) {
      stream.hidden = allocate_stream(context, stack, stack.grid);
    }
    if ((inside || before) && index > 0) {
      stream.encoder_output = allocate_stream(context, extents_[index - 1], stack.grid);
    }
  }
  return stream;
}

ModelChunk::Stack const* ModelChunk::stack(std::size_t index) const {
  auto const found = std::ranges::find(stacks_, index, &Stack::index);
  return found == stacks_.end() ? nullptr : &*found;
}

Tensor ModelChunk::encode(LayerContext& context, Stack const& stack, Tensor const& hidden) const {
  Tensor input = hidden;
  if (stack.begins) {
    Saved of_input;
    input = stack.input->forward(context, of_input);
  }
  return stack.layers.encode(context, {input, {}}).hidden;
}

Tensor ModelChunk::decode(LayerContext& context, Stack const& stack, DecodeInput const& input, DecodeStep const& step,
                          std::vector<DecodeCache>& caches) const {
  HiddenStates states = input.previous;
  if (stack.begins) {
    states.hidden = stack.input->decode(context, input.tokens, input.rows);
  }
  return stack.layers.decode(context, states, step, caches).hidden;
}

}  // namespace heddle
