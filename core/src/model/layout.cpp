#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/model/layout.hpp>
#include <heddle/core/model/pipeline_plan.hpp>
#include <limits>

namespace heddle {

namespace {

using Sizes = std::array<int, mesh_axes>;

int size_of_axis(Sizes const& sizes, MeshAxis axis) {
  return sizes[static_cast<std::size_t>(axis)];
}

constexpr int uncountable = std::numeric_limits<int>::max();

/// The ranks that a layout needs, or `uncountable`.
int product_of(Sizes const& sizes) {
  std::int64_t product = 1;
  for (int const size : sizes) {
    product = std::min<std::int64_t>(product * size, uncountable);
  }
  return static_cast<int>(product);
}

/// Names a layer and the key that it cannot be used with.
std::string layers_problem(Config const& config, ModelDescription const& model, Sizes const& sizes) {
  auto const reason = model.unsupported_reason({.tensor = size_of_axis(sizes, MeshAxis::tensor),
                                                .context = size_of_axis(sizes, MeshAxis::context),
                                                .context_mode = config.parallel.context_mode,
                                                .sequence_parallel = config.parallel.sequence_parallel});
  return reason.value_or("");
}

std::string context_problem(Config const& config, Sizes const& sizes, std::int64_t longest) {
  int const context = size_of_axis(sizes, MeshAxis::context);
  return context <= longest ? ""
                            : fmt::format("{} = {} ranks would share the tokens of sequences that have at most {}",
                                          config.parallel.places.of("context"), context, longest);
}

/// The layout needs another number of ranks than run. Begins with the first size that was given.
std::string ranks_problem(ParallelConfig const& parallel, Sizes const& sizes, int ranks) {
  std::string place;
  for (char const* const key : {"pipeline", "data", "context", "tensor"}) {
    if (place.empty() && parallel.places.given(key)) {
      place = parallel.places.of(key) + ": ";
    }
  }
  int const product = product_of(sizes);
  return fmt::format("{}the layout pipeline {} × data {} × context {} × tensor {} needs {}{} {}, but {} {}", place,
                     sizes[0], sizes[1], sizes[2], sizes[3], product == uncountable ? "at least " : "", product,
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

[[noreturn]] void refuse(Config const& config, ModelDescription const& model, Sizes const& wanted, int ranks,
                         std::string const& reason, std::int64_t longest_sequence) {
  auto const nearest = [&](Config const& tried) {
    return nearest_layouts(wanted, ranks, [&](Sizes const& sizes) {
      return layout_problem(tried, model, sizes, longest_sequence).empty();
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
  std::string const of_ranks = ranks == 1 ? "1 rank" : fmt::format("{} ranks", ranks);
  throw ConfigError(layouts.empty() ? fmt::format("{}; no layout of {} works for this model", reason, of_ranks)
                                    : fmt::format("{}; with {}, these layouts work{}: {}", reason, of_ranks, without,
                                                  list_layouts(layouts)));
}

}  // namespace

std::string layout_problem(Config const& config, ModelDescription const& model, Sizes const& sizes,
                           std::int64_t longest_sequence) {
  std::string problem = layers_problem(config, model, sizes);
  if (problem.empty()) {
    problem = context_problem(config, sizes, longest_sequence);
  }
  return problem.empty() ? pipeline_problem(config, model, size_of_axis(sizes, MeshAxis::pipeline)) : problem;
}

Mesh make_mesh(Config const& config, ModelDescription const& model, int rank, int ranks) {
  ParallelConfig const& parallel = config.parallel;
  Sizes const wanted{parallel.pipeline, parallel.data, parallel.context, parallel.tensor};
  Sizes sizes{parallel.pipeline, 1, parallel.context, parallel.tensor};
  int& data = sizes[static_cast<std::size_t>(MeshAxis::data)];
  data = parallel.data > 0 ? parallel.data : std::max(1, ranks / product_of(sizes));
  std::string problem = layout_problem(config, model, sizes, config.model.max_length);
  if (problem.empty() && product_of(sizes) != ranks) {
    problem = ranks_problem(parallel, sizes, ranks);
  }
  if (!problem.empty()) {
    refuse(config, model, wanted, ranks, problem, config.model.max_length);
  }
  return {sizes, rank, ranks};
}

void require_long_enough(Config const& config, ModelDescription const& model, Mesh const& mesh, int ranks,
                         std::int64_t longest_sequence) {
  Sizes const sizes{mesh.size(MeshAxis::pipeline), mesh.size(MeshAxis::data), mesh.size(MeshAxis::context),
                    mesh.size(MeshAxis::tensor)};
  std::string const problem = context_problem(config, sizes, longest_sequence);
  if (!problem.empty()) {
    refuse(config, model, sizes, ranks, problem, longest_sequence);
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
  auto const note = [&](bool unused, KeyPlaces const& places, std::string const& key, std::string const& where) {
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
    note(set && mesh.size(axis) == 1, parallel.places, key, fmt::format("parallel.{} is 1", name_of(axis)));
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
  note_axis(parallel.sequence_parallel, MeshAxis::tensor, "sequence_parallel");
  note_axis(parallel.context_mode == ContextMode::ulysses, MeshAxis::context, "context_mode");
  note_axis(parallel.pipeline_schedule == PipelineSchedule::interleaved, MeshAxis::pipeline, "pipeline_schedule");
  note(parallel.shard_optimizer && mesh.size(MeshAxis::data) * mesh.size(MeshAxis::context) == 1, parallel.places,
       "shard_optimizer", "parallel.data and parallel.context are 1");
  return notes;
}

std::string tied_tables(ModelConfig const& model, VocabularySizes const& vocabulary) {
  if (!model.tie_embeddings || vocabulary.joint || model.stacks.size() < 2) {
    return "";
  }
  std::string const& last = model.stacks.back();
  if ((model.*stack_kind(model.stacks.front()).config).input != "tokens") {
    return "";
  }
  return fmt::format(
      "{} = true with separate vocabularies: {}.embedding.weight is the {}'s embedding and the output projection; the "
      "{} has an embedding of its own, {}.embedding.weight",
      model.place("tie_embeddings"), last, last, model.stacks.front(), model.stacks.front());
}

}  // namespace heddle
