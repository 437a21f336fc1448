#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/model/layout.hpp>
#include <heddle/core/model/pipeline_plan.hpp>
#include <limits>

namespace heddle {

namespace {

/// Names a layer and the key that it cannot be used with.
std::string layers_problem(Config const& config, ModelDescription const& model, MeshShape const& shape) {
  auto const use = [&](Grid grid) {
    return LayerUse{.tensor = shape.size(MeshShape::tensor_axes(grid)),
                    .context = shape.size(MeshShape::context_axes(grid)),
                    .expert = config.parallel.expert,
                    .context_mode = config.parallel.context_mode,
                    .sequence_parallel = config.parallel.sequence_parallel};
  };
  std::string const of_encoder = model.unsupported_reason(use(Grid::encoder), {}).value_or("");
  if (of_encoder.empty() || !shape.has_grids()) {
    return model.unsupported_reason(use(Grid::encoder), use(Grid::decoder)).value_or("");
  }
  return fmt::format("in the encoder's grid, context {} × tensor {}: {}", use(Grid::encoder).context,
                     use(Grid::encoder).tensor, of_encoder);
}

std::string context_problem(Config const& config, MeshShape const& shape, std::int64_t longest) {
  int const context = shape.size(MeshShape::context_axes(Grid::decoder));
  if (context > longest) {
    return fmt::format("{} = {} ranks would share the tokens of sequences that have at most {}",
                       config.parallel.places.of("context"), context, longest);
  }
  int const of_encoder = shape.size(MeshShape::context_axes(Grid::encoder));
  return of_encoder <= longest
             ? ""
             : fmt::format("{}: {} ranks would share the tokens of the encoder's sequences, which have at most {}",
                           config.parallel.places.of("encoder_tensor"), of_encoder, longest);
}

/// The problem with parallel.encoder_tensor: it does not divide the ranks of context × tensor, or the model cannot use
/// a second grid; empty if there is none.
std::string grid_problem(ParallelConfig const& parallel, ModelDescription const& model) {
  if (parallel.encoder_tensor == 0 || parallel.encoder_tensor == parallel.tensor) {
    return "";
  }
  std::string const place = fmt::format("{} = {}", parallel.places.of("encoder_tensor"), parallel.encoder_tensor);
  if (std::int64_t const ranks = std::int64_t{parallel.context} * parallel.tensor;
      ranks % parallel.encoder_tensor != 0) {
    return fmt::format("{} does not divide the {} of context × tensor", place,
                       ranks == 1 ? "1 rank" : fmt::format("{} ranks", ranks));
  }
  if (model.stacks.size() == 1) {
    return place + ": the model has no encoder beside its only stack; expected 0";
  }
  if (std::any_of(model.stacks.begin(), model.stacks.end() - 1,
                  [](auto const& stack) { return stack.side != Side::source; })) {
    return place + ": a stack before the last one has the target's tokens; expected 0";
  }
  return has_experts(model) ? place + ": a model with experts has one grid for all stacks; expected 0" : "";
}

/// A key that cannot be used where the replicas divide parameters.
std::string division_problem(Config const& config, MeshShape const& shape) {
  ParallelConfig const& parallel = config.parallel;
  if (!parallel.shard_parameters || shape.size(replica_axes()) == 1) {
    return "";
  }
  auto const problem = [&](KeyLocations const& places, std::string const& key, std::string_view why) {
    return fmt::format("{} = true with {} = true: {}; expected one of the two", places.of(key),
                       parallel.places.of("shard_parameters"), why);
  };
  if (parallel.zero_bubble && shape.size(MeshAxis::pipeline) > 1) {
    return problem(parallel.places, "zero_bubble", "gradients that are put off would need parameters' memory longer");
  }
  if (config.train.noise_scale) {
    return problem(config.train.places, "noise_scale", "no rank has the gradient of its part of the batch");
  }
  return "";
}

/// Runs of replicas that do not divide them, or have no experts to divide.
std::string runs_problem(Config const& config, ModelDescription const& model, MeshShape const& shape) {
  ParallelConfig const& parallel = config.parallel;
  int const replicas = shape.size(replica_axes());
  if (parallel.expert > 1 && !has_experts(model)) {
    return fmt::format("{} = {}: no layer of the model has experts", parallel.places.of("expert"), parallel.expert);
  }
  for (auto const& [key, ranks] : {std::pair("expert", parallel.expert), {"shard_ranks", shards_of(parallel)}}) {
    if (replicas % ranks != 0) {
      return fmt::format("{} = {} does not divide the {} of data × context{}", parallel.places.of(key), ranks,
                         replicas == 1 ? "1 rank" : fmt::format("{} ranks", replicas),
                         shape.has_grids() ? ", of the context that both grids have" : "");
    }
  }
  if (parallel.shard_parameters && parallel.shard_ranks == 1) {
    return fmt::format("{} = 1: a rank alone divides nothing; expected 0, for all replicas, or at least 2",
                       parallel.places.of("shard_ranks"));
  }
  if (parallel.expert > 1 && config.train.noise_scale) {
    return fmt::format(
        "{} = true with parallel.expert = {}: no rank has the gradient of its part of the batch; expected "
        "one of the two",
        config.train.places.of("noise_scale"), parallel.expert);
  }
  return "";
}

/// The layout needs another number of ranks than run. Begins with the first size that was given.
std::string ranks_problem(ParallelConfig const& parallel, MeshShape const& shape, int ranks) {
  std::string place;
  for (auto const& [axis, size] : parallel_axes) {
    std::string const key(axis);
    if (place.empty() && parallel.places.given(key)) {
      place = parallel.places.of(key) + ": ";
    }
  }
  int const product = shape.ranks();
  return fmt::format("{}the layout {} needs {}{} {}, but {} {}", place, shape.to_string(),
                     product == std::numeric_limits<int>::max() ? "at least " : "", product,
                     product == 1 ? "rank" : "ranks", ranks, ranks == 1 ? "runs" : "run");
}

std::string pipeline_problem(Config const& config, ModelDescription const& model, int pipeline) {
  ParallelConfig parallel = config.parallel;
  parallel.pipeline = pipeline;
  try {
    plan_pipeline(model, parallel, config.model.d_model);
  } catch (ConfigError const& error) {
    return error.what();
  }
  return "";
}

[[noreturn]] void refuse(Config const& config, ModelDescription const& model, MeshShape const& wanted, int ranks,
                         std::string const& reason, std::int64_t longest_sequence) {
  auto const nearest = [&](Config const& tried) {
    return nearest_shapes(wanted, ranks, [&](MeshShape const& shape) {
      return layout_problem(tried, model, shape, longest_sequence).empty();
    });
  };
  auto layouts = nearest(config);
  std::string without;
  if (layouts.empty() && !config.parallel.stage_layers.empty()) {
    Config by_cost = config;
    by_cost.parallel.stage_layers.clear();
    layouts = nearest(by_cost);
    without = " without parallel.stage_layers";
  }
  if (layouts.empty() && config.parallel.expert > 1) {
    Config without_runs = config;
    without_runs.parallel.expert = 1;
    layouts = nearest(without_runs);
    without = " without parallel.expert";
  }
  if (int const encoder = config.parallel.encoder_tensor; encoder > 0 && encoder != config.parallel.tensor) {
    without = " without parallel.encoder_tensor";
  }
  std::string const of_ranks = ranks == 1 ? "1 rank" : fmt::format("{} ranks", ranks);
  throw ConfigError(layouts.empty() ? fmt::format("{}; no layout of {} works for this model", reason, of_ranks)
                                    : fmt::format("{}; with {}, these layouts work{}: {}", reason, of_ranks, without,
                                                  list_shapes(layouts)));
}

/// Sentences for the keys of frozen groups that would only say how to update their parameters.
std::vector<std::string> keys_of_frozen_groups(OptimizerConfig const& optimizer) {
  std::vector<std::string> notes;
  for (ParameterGroup const& group : optimizer.groups) {
    auto const note = [&](bool set, std::string const& key) {
      if (set && group.rule.frozen) {
        notes.push_back(fmt::format("{} has no effect where the group is frozen", group.places.of(key)));
      }
    };
    note(group.rule.learning_rate_factor != UpdateRule().learning_rate_factor, "learning_rate_factor");
    note(group.rule.weight_decay != optimizer.weight_decay, "weight_decay");
    note(!group.rule.name.empty() && group.rule.name != optimizer.name, "name");
  }
  return notes;
}

}  // namespace

std::string layout_problem(Config const& config, ModelDescription const& model, MeshShape const& shape,
                           std::int64_t longest_sequence) {
  std::string problem = layers_problem(config, model, shape);
  if (problem.empty()) {
    problem = context_problem(config, shape, longest_sequence);
  }
  if (problem.empty()) {
    problem = division_problem(config, shape);
  }
  if (problem.empty()) {
    problem = runs_problem(config, model, shape);
  }
  return problem.empty() ? pipeline_problem(config, model, shape.size(MeshAxis::pipeline)) : problem;
}

bool has_experts(ModelDescription const& model) {
  return model.unsupported_reason({.expert = std::numeric_limits<int>::max()}).has_value();  // more than a layer has
}

MeshShape shape_of(ParallelConfig const& parallel) {
  MeshShape shape;
  for (auto const& [axis, size] : parallel_axes) {
    shape = shape.with(axis, parallel.*size);
  }
  int const encoder = parallel.encoder_tensor;
  bool const divides = encoder > 0 && std::int64_t{parallel.context} * parallel.tensor % encoder == 0;
  return divides ? shape.with_encoder_tensor(encoder) : shape;
}

void set_shape(ParallelConfig& parallel, MeshShape const& shape) {
  for (auto const& [axis, size] : parallel_axes) {
    parallel.*size = shape.size(axis);
  }
  parallel.context = shape.size(MeshShape::context_axes(Grid::decoder));
  parallel.tensor = shape.size(MeshShape::tensor_axes(Grid::decoder));
  parallel.encoder_tensor = shape.has_grids() ? shape.size(MeshShape::tensor_axes(Grid::encoder)) : 0;
}

Mesh make_mesh(Config const& config, ModelDescription const& model, int rank, int ranks) {
  ParallelConfig const& parallel = config.parallel;
  MeshShape const wanted = shape_of(parallel);
  int const others = wanted.with(MeshAxis::data, 1).ranks();
  MeshShape const shape = parallel.data > 0 ? wanted : wanted.with(MeshAxis::data, std::max(1, ranks / others));
  std::string problem = grid_problem(parallel, model);
  if (std::string const runs = runs_problem(config, model, shape);
      problem.empty() && !runs.empty() && shape.ranks() == ranks) {
    throw ConfigError("{}", runs);
  }
  if (problem.empty()) {
    problem = layout_problem(config, model, shape, config.model.max_length);
  }
  if (problem.empty() && shape.ranks() != ranks) {
    problem = ranks_problem(parallel, shape, ranks);
  }
  if (!problem.empty()) {
    refuse(config, model, wanted, ranks, problem, config.model.max_length);
  }
  return {shape, rank, ranks};
}

void require_long_enough(Config const& config, ModelDescription const& model, Mesh const& mesh, int ranks,
                         std::int64_t longest_sequence) {
  std::string const problem = context_problem(config, mesh.shape(), longest_sequence);
  if (!problem.empty()) {
    refuse(config, model, mesh.shape(), ranks, problem, longest_sequence);
  }
}

std::vector<std::string> keys_without_effect(Config const& config, Mesh const& mesh, Task const& task) {
  ModelConfig const& model = config.model;
  ParallelConfig const& parallel = config.parallel;
  ModelConfig const defaults;
  std::vector<std::string> notes = places_of_absent_stacks(model);
  for (std::string& note : notes) {
    note += " has no effect: model.stacks does not name its stack";
  }
  auto const note = [&](bool unused, KeyLocations const& places, std::string const& key, std::string const& where) {
    if (unused) {
      notes.push_back(fmt::format("{} has no effect where {}", places.of(key), where));
    }
  };
  auto const note_positions = [&](bool set, std::string const& key, std::vector<Positions> const& kinds) {
    std::vector<std::string> names;
    std::ranges::transform(kinds, std::back_inserter(names),
                           [](Positions kind) { return fmt::format("\"{}\"", name_of(kind)); });
    note(set && std::ranges::find(kinds, model.positions) == kinds.end(), model.places, key,
         fmt::format("model.positions is not {}", fmt::join(names, " or ")));
  };
  auto const note_axis = [&](bool set, MeshAxis axis, std::string const& key) {
    note(set && mesh.size(axis) == 1, parallel.places, key, fmt::format("parallel.{} is 1", axis.name()));
  };
  auto const note_axes = [&](bool set, MeshAxes (*axes)(Grid), MeshAxis axis, std::string const& key) {
    note_axis(set && mesh.shape().size(axes(Grid::encoder)) * mesh.shape().size(axes(Grid::decoder)) == 1, axis, key);
  };
  note_positions(model.max_distance != defaults.max_distance, "max_distance",
                 {Positions::relative, Positions::relative_buckets});
  note_positions(model.position_buckets != defaults.position_buckets, "position_buckets",
                 {Positions::relative_buckets});
  note_positions(model.rotary_base != defaults.rotary_base, "rotary_base", {Positions::rotary});
  note_positions(model.position_layout != defaults.position_layout, "position_layout",
                 {Positions::sinusoidal, Positions::rotary});
  auto const note_task = [&](bool set, std::string const& key, std::string const& where) {
    std::vector<std::string> const used = task.keys();
    note(set && std::ranges::find(used, key) == used.end(), config.train.places, key, where);
  };
  TrainConfig const usual;
  note_task(config.train.mask_rate != usual.mask_rate, "mask_rate", "the task masks no tokens");
  note_task(config.train.noise != usual.noise, "noise", "the task masks no spans");
  note_task(config.train.span_length != usual.span_length, "span_length", "the task masks no spans");
  auto const note_start = [&](std::vector<std::string> const& patterns, std::string const& key) {
    note(!patterns.empty() && config.train.initialize_from.empty(), config.train.places, key,
         "train.initialize_from is empty");
  };
  note_start(config.train.initialize_missing, "initialize_missing");
  note_start(config.train.initialize_rename, "initialize_rename");
  note(model.frozen.rounded && model.frozen.frozen.empty() && model.frozen.trained.empty(), config.train.places,
       "frozen_precision", "nothing is frozen in all steps");
  std::ranges::move(keys_of_frozen_groups(config.optimizer), std::back_inserter(notes));
  bool const data_alone = mesh.size(MeshAxis::data) > 1 && mesh.size(MeshAxis::data) == mesh.shape().ranks();
  note(config.train.noise_scale && config.train.deterministic, config.train.places, "noise_scale",
       "train.deterministic is true");
  note(config.train.noise_scale && !config.train.deterministic && !data_alone, config.train.places, "noise_scale",
       "several ranks do not divide the data and nothing else");
  note_axes(parallel.sequence_parallel, MeshShape::tensor_axes, MeshAxis::tensor, "sequence_parallel");
  note_axes(parallel.context_mode == ContextMode::ulysses, MeshShape::context_axes, MeshAxis::context, "context_mode");
  note(parallel.encoder_tensor > 0 && !mesh.shape().has_grids(), parallel.places, "encoder_tensor",
       "it is parallel.tensor");
  note_axis(parallel.pipeline_schedule == PipelineSchedule::interleaved, MeshAxis::pipeline, "pipeline_schedule");
  note(parallel.shard_ranks > 0 && !parallel.shard_parameters, parallel.places, "shard_ranks",
       "parallel.shard_parameters is false");
  note_axis(parallel.zero_bubble, MeshAxis::pipeline, "zero_bubble");
  for (auto const& [set, key] :
       {std::pair(parallel.shard_optimizer, "shard_optimizer"), {parallel.shard_parameters, "shard_parameters"}}) {
    note(set && mesh.shape().size(replica_axes()) == 1, parallel.places, key,
         mesh.shape().has_grids() ? "parallel.data is 1 and no rank divides the sequences of encoder and decoder alike"
                                  : "parallel.data and parallel.context are 1");
  }
  return notes;
}

std::string tied_tables(ModelDescription const& model, VocabularySizes const& vocabulary) {
  bool const all_embed =
      std::ranges::all_of(model.stacks, [](StackDescription const& stack) { return stack.input.traits.embeds_tokens; });
  bool const one_table = vocabulary.joint && !model.keys.separate_embeddings;
  if (!model.keys.tie_embeddings || one_table || !model.keys.is_encoder_decoder() || !all_embed) {
    return "";
  }
  std::string const& first = model.stacks.front().name;
  std::string const& last = model.stacks.back().name;
  return fmt::format(
      "{} = true with separate {}: {}.embedding.weight is the {}'s embedding and the output projection; the "
      "{} has an embedding of its own, {}.embedding.weight",
      model.keys.place("tie_embeddings"), vocabulary.joint ? "embeddings" : "vocabularies", last, last, first, first);
}

}  // namespace heddle
