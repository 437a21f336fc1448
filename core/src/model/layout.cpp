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

/// "1, 2, 4 and 8": the numbers up to `most` that divide `whole`.
std::string divisors(std::int64_t whole, std::int64_t most) {
  std::vector<std::int64_t> found;
  for (std::int64_t number = 1; number <= std::min(whole, most); ++number) {
    if (whole % number == 0) {
      found.push_back(number);
    }
  }
  std::string const last = std::to_string(found.back());
  found.pop_back();
  return found.empty() ? last : fmt::format("{} and {}", fmt::join(found, ", "), last);
}

/// The most divisors that are listed.
constexpr std::int64_t most_divisors = 128;

/// `keys` are a layer's.
std::string tensor_problem(ModelConfig const& keys, int tensor) {
  auto const problem = [&](char const* key, std::int64_t count) {
    return count % tensor == 0 ? ""
                               : fmt::format("{} = {} cannot be divided among parallel.tensor = {}; {} would do",
                                             keys.place(key), count, tensor, divisors(count, most_divisors));
  };
  std::string const heads = problem("heads", keys.heads);
  return heads.empty() ? problem("d_ff", keys.d_ff) : heads;
}

/// Names the layer and the axis if a layer does not declare an axis that is split.
std::string capability_problem(SublayerDescription const& sublayer, std::string const& stack, bool sequence_parallel,
                               Sizes const& sizes) {
  int const tensor = size_of_axis(sizes, MeshAxis::tensor);
  int const context = size_of_axis(sizes, MeshAxis::context);
  auto const refused = [&](std::string const& key) {
    return fmt::format("the layer {} of the {} does not declare that it computes rightly with {}", sublayer.name, stack,
                       key);
  };
  if (tensor > 1 && !sublayer.capabilities.tensor) {
    return refused(fmt::format("parallel.tensor = {}", tensor));
  }
  if (tensor > 1 && sequence_parallel && !sublayer.capabilities.sequence) {
    return refused("parallel.sequence_parallel");
  }
  if (context > 1 && !sublayer.capabilities.context) {
    return refused(fmt::format("parallel.context = {}", context));
  }
  return "";
}

/// Problems of single layers.
std::string layers_problem(Config const& config, ModelDescription const& model, Sizes const& sizes) {
  for (StackDescription const& stack : model.stacks) {
    for (LayerDescription const& layer : stack.layers) {
      std::string problem = tensor_problem(*layer.keys, size_of_axis(sizes, MeshAxis::tensor));
      for (SublayerDescription const& sublayer : layer.sublayers) {
        if (problem.empty()) {
          problem = capability_problem(sublayer, stack.name, config.parallel.sequence_parallel, sizes);
          problem = problem.empty() ? "" : fmt::format("{}: {}", layer.keys->place("sublayers"), problem);
        }
      }
      if (!problem.empty()) {
        return problem;
      }
    }
  }
  return "";
}

std::string context_problem(Config const& config, ModelDescription const& model, Sizes const& sizes,
                            std::int64_t longest) {
  int const context = size_of_axis(sizes, MeshAxis::context);
  int const tensor = size_of_axis(sizes, MeshAxis::tensor);
  if (context > longest) {
    return fmt::format("parallel.context = {} ranks would share the tokens of sequences that have at most {}", context,
                       longest);
  }
  for (std::int64_t index = 0; index < model.layers(); ++index) {
    ModelConfig const& keys = *model.layer(index).keys;
    std::int64_t const heads = keys.heads / tensor;
    if (config.parallel.context_mode == ContextMode::ulysses && heads % context != 0) {
      return fmt::format(
          "{} = {}: in ulysses each context rank computes some of the heads, and the {} of a rank (heads / "
          "parallel.tensor) cannot be divided among parallel.context = {}; {} would do, or parallel.context_mode = "
          "\"ring\"",
          keys.place("heads"), keys.heads, heads, context, divisors(heads, most_divisors));
    }
  }
  return "";
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
  throw ConfigError(layouts.empty() ? fmt::format("{}; no layout of {} ranks works for this model", reason, ranks)
                                    : fmt::format("{}; layouts of {} ranks that work{}: {}", reason, ranks, without,
                                                  list_layouts(layouts)));
}

}  // namespace

std::string layout_problem(Config const& config, ModelDescription const& model, Sizes const& sizes,
                           std::int64_t longest_sequence) {
  std::string problem = layers_problem(config, model, sizes);
  if (problem.empty()) {
    problem = context_problem(config, model, sizes, longest_sequence);
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
  int const product = product_of(sizes);
  if (problem.empty() && product != ranks) {
    problem =
        fmt::format("the layout pipeline {} × data {} × context {} × tensor {} needs {}{} ranks, but {} run", sizes[0],
                    sizes[1], sizes[2], sizes[3], product == uncountable ? "at least " : "", product, ranks);
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
  std::string const problem = context_problem(config, model, sizes, longest_sequence);
  if (!problem.empty()) {
    refuse(config, model, sizes, ranks, problem, longest_sequence);
  }
}

std::vector<std::string> keys_without_effect(Config const& config, Mesh const& mesh) {
  std::vector<std::string> notes = places_of_absent_stacks(config.model);
  for (std::string& note : notes) {
    note += " has no effect: model.stacks does not name its stack";
  }
  ParallelConfig const& parallel = config.parallel;
  auto const note = [&](bool set, MeshAxis axis, std::string_view key) {
    if (set && mesh.size(axis) == 1) {
      notes.push_back(fmt::format("parallel.{} has no effect where parallel.{} is 1", key, name_of(axis)));
    }
  };
  note(parallel.sequence_parallel, MeshAxis::tensor, "sequence_parallel");
  note(parallel.context_mode == ContextMode::ulysses, MeshAxis::context, "context_mode");
  note(parallel.pipeline_schedule == PipelineSchedule::interleaved, MeshAxis::pipeline, "pipeline_schedule");
  if (parallel.shard_optimizer && mesh.size(MeshAxis::data) * mesh.size(MeshAxis::context) == 1) {
    notes.push_back("parallel.shard_optimizer has no effect where parallel.data and parallel.context are 1");
  }
  return notes;
}

}  // namespace heddle
