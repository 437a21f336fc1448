#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/parallel/mesh.hpp>
#include <heddle/dist/planning/layout_choice.hpp>
#include <set>

namespace heddle {

namespace {

/// A pipeline gains little from more micro-batches than this for each stage.
constexpr std::int64_t max_per_stage = 16;
/// The minimum of a context rank's tokens of the longest sequence.
constexpr std::int64_t min_context_tokens = 16;
/// Larger micro-batches than this make no kernel faster; a larger one is tried only if it is configured.
constexpr std::int64_t max_micro_batch_tokens = 16384;

/// Sizes of micro-batches: the configured one, and halves of a data rank's share of a batch. Each has at least
/// model.max_length tokens, so that every sentence fits.
std::vector<std::int64_t> micro_batch_sizes(Config const& config, LayoutChoice const& layout,
                                            std::int64_t batch_tokens) {
  std::int64_t const share = (batch_tokens + layout.size(MeshAxis::data) - 1) / layout.size(MeshAxis::data);
  std::int64_t const stages = layout.size(MeshAxis::pipeline);
  std::int64_t const max_micro_batches = stages == 1 ? 16 : max_per_stage * stages;
  std::vector<std::int64_t> sizes;
  auto const add = [&](std::int64_t tokens) {
    bool const fits = tokens >= config.model.max_length && tokens <= config.train.batch_tokens;
    if (fits && std::ranges::find(sizes, tokens) == sizes.end()) {
      sizes.push_back(tokens);
    }
  };
  add(config.train.micro_batch_tokens);
  std::int64_t const max = std::max(max_micro_batch_tokens, config.train.micro_batch_tokens);
  std::int64_t const min = (share + max - 1) / max;
  for (std::int64_t parts = 1; parts <= std::max(max_micro_batches, 2 * min); parts *= 2) {
    if (parts >= min) {
      add((share + parts - 1) / parts);
    }
  }
  return sizes;
}

/// The larger number of the grids of encoder and decoder.
int largest(LayoutChoice const& layout, int (LayoutChoice::*ranks)(Grid) const) {
  return std::max((layout.*ranks)(Grid::encoder), (layout.*ranks)(Grid::decoder));
}

/// The shape, and that of the configured encoder; beside a decoder split in one way only, also an encoder split in the
/// other way.
std::vector<MeshShape> with_grids(MeshShape const& shape, Config const& config, ModelDescription const& model) {
  std::vector<MeshShape> shapes{shape};
  int const tensor = shape.size(MeshAxis::tensor);
  int const context = shape.size(MeshAxis::context);
  if (!config.model.is_encoder_decoder() || has_experts(model)) {
    return shapes;
  }
  std::set<int> sizes;
  if (config.parallel.encoder_tensor > 0) {
    sizes.insert(config.parallel.encoder_tensor);
  }
  if (tensor == 1 || context == 1) {
    sizes.insert(tensor == 1 ? context : 1);
  }
  for (int const of_encoder : sizes) {
    if (context * tensor % of_encoder == 0 && of_encoder != tensor) {
      shapes.push_back(shape.with_encoder_tensor(of_encoder));
    }
  }
  return shapes;
}

/// The layouts of this shape, with every combination of switches that has an effect.
std::vector<LayoutChoice> variants_of(MeshShape const& shape, ModelDescription const& model,
                                      std::vector<int> const& shard_ranks) {
  std::vector<LayoutChoice> variants{{.shape = shape}};
  auto const also = [&](bool has_effect, auto const& change) {
    for (std::size_t index = 0, before = variants.size(); has_effect && index < before; ++index) {
      LayoutChoice changed = variants[index];
      change(changed);
      variants.push_back(changed);
    }
  };
  LayoutChoice const plain = variants.front();
  also(largest(plain, &LayoutChoice::tensor) > 1, [](LayoutChoice& layout) { layout.sequence_parallel = true; });
  also(largest(plain, &LayoutChoice::context) > 1,
       [](LayoutChoice& layout) { layout.context_mode = ContextMode::ulysses; });
  also(plain.size(MeshAxis::pipeline) > 1 && model.keys.is_encoder_decoder(),
       [](LayoutChoice& layout) { layout.pipeline_schedule = PipelineSchedule::interleaved; });
  also(plain.size(MeshAxis::pipeline) > 1, [](LayoutChoice& layout) { layout.zero_bubble = true; });
  also(plain.replicas() > 1, [](LayoutChoice& layout) { layout.shard_optimizer = true; });
  for (std::size_t index = 0, before = variants.size(); index < before; ++index) {
    if (variants[index].shard_optimizer && !variants[index].zero_bubble) {
      variants.push_back(variants[index]);
      variants.back().shard_parameters = true;
      for (int const ranks : shard_ranks) {
        if (ranks > 1 && ranks < plain.replicas() && plain.replicas() % ranks == 0) {
          variants.push_back(variants.back());
          variants.back().shard_ranks = ranks;
        }
      }
    }
  }
  for (std::size_t index = 0, before = variants.size(); has_experts(model) && index < before; ++index) {
    for (int const ranks : divisors_of(variants[index].shard_optimizer ? plain.replicas() : 1)) {
      if (ranks > 1) {
        variants.push_back(variants[index]);
        variants.back().expert = ranks;
      }
    }
  }
  return variants;
}

/// The message for a batch that has less than one sequence for each data rank and stage.
std::string too_few_tokens(Config const& config, LayoutChoice const& layout, std::int64_t batch_tokens) {
  std::int64_t const parts = std::int64_t{layout.size(MeshAxis::data)} * layout.size(MeshAxis::pipeline);
  std::string const each = parts == layout.ranks()
                               ? fmt::format("a rank ({} ranks)", readable_count(parts))
                               : fmt::format("for each of {} and {}", counted(layout.size(MeshAxis::data), "data rank"),
                                             counted(layout.size(MeshAxis::pipeline), "stage"));
  return fmt::format(
      "the batch of {} tokens has {} tokens {}, fewer than one sequence of model.max_length = {}; with "
      "train.batch_tokens = {} there is one each, and a lower model.max_length helps, too",
      readable_count(batch_tokens), readable_count(batch_tokens / parts), each, readable_count(config.model.max_length),
      readable_count(parts * config.model.max_length));
}

/// The limit of layouts with an axis or a switch that the model does not support.
std::string limit_of(Config const& config, ModelDescription const& model, LayoutChoice const& layout,
                     std::int64_t longest) {
  auto const refused = [&](LayoutChoice const& part) {
    return !layout_problem(with_layout(config, part), model, part.shape, longest).empty();
  };
  auto const alone = [&](MeshAxis axis) {
    LayoutChoice part = layout;
    int const size = axis == MeshAxis::tensor    ? largest(layout, &LayoutChoice::tensor)
                     : axis == MeshAxis::context ? largest(layout, &LayoutChoice::context)
                                                 : layout.size(axis);
    part.shape = MeshShape().with(axis, size);
    return part;
  };
  for (MeshAxis const axis : {MeshAxis::tensor, MeshAxis::context, MeshAxis::pipeline}) {
    if (refused(alone(axis))) {
      return fmt::format("the model does not support this parallel.{}", axis.name());
    }
  }
  return "the model does not support this combination of axes";
}

}  // namespace

Config with_layout(Config config, LayoutChoice const& layout) {
  ParallelConfig& parallel = config.parallel;
  // Their number and their meaning follow from the stages and the schedule.
  if (parallel.pipeline != layout.size(MeshAxis::pipeline) || parallel.pipeline_schedule != layout.pipeline_schedule) {
    parallel.stage_layers.clear();
  }
  set_shape(parallel, layout.shape);
  parallel.sequence_parallel = layout.sequence_parallel;
  parallel.context_mode = layout.context_mode;
  parallel.pipeline_schedule = layout.pipeline_schedule;
  parallel.zero_bubble = layout.zero_bubble;
  parallel.shard_optimizer = layout.shard_optimizer && !layout.shard_parameters;
  parallel.shard_parameters = layout.shard_parameters;
  parallel.shard_ranks = layout.shard_ranks;
  parallel.expert = layout.expert;
  config.train.micro_batch_tokens = layout.micro_batch_tokens;
  return config;
}

LayoutChoice layout_of(Config const& config, ModelDescription const& model, int ranks) {
  return {.shape = make_mesh(config, model, 0, ranks).shape(),
          .sequence_parallel = config.parallel.sequence_parallel,
          .context_mode = config.parallel.context_mode,
          .pipeline_schedule = config.parallel.pipeline_schedule,
          .zero_bubble = splits_backward(config.parallel),
          .shard_optimizer = shards_optimizer(config.parallel),
          .shard_parameters = config.parallel.shard_parameters,
          .shard_ranks = config.parallel.shard_parameters ? config.parallel.shard_ranks : 0,
          .expert = config.parallel.expert,
          .micro_batch_tokens = config.train.micro_batch_tokens};
}

int complexity(LayoutChoice const& layout) {
  int parts = 0;
  for (int const size :
       {layout.tensor(Grid::decoder), layout.context(Grid::decoder), layout.size(MeshAxis::pipeline)}) {
    parts += size > 1 ? 2 : 0;
  }
  bool const sharded = layout.shard_optimizer && layout.replicas() > 1;
  for (bool const switched : {layout.sequence_parallel, layout.context_mode == ContextMode::ulysses,
                              layout.pipeline_schedule == PipelineSchedule::interleaved, layout.zero_bubble, sharded,
                              sharded && layout.shard_parameters, layout.expert > 1, layout.shape.has_grids()}) {
    parts += switched ? 1 : 0;
  }
  return parts;
}

std::string describe(LayoutChoice const& layout) {
  std::vector<std::string> axes;
  auto const axis = [&](std::string_view name, int size, bool noted, std::string_view note) {
    if (size > 1) {
      axes.push_back(fmt::format("{} {}{}", name, size, noted ? note : ""));
    }
  };
  axis("tensor", layout.tensor(Grid::decoder), layout.sequence_parallel, " sequence-parallel");
  axis("context", layout.context(Grid::decoder), layout.context_mode == ContextMode::ulysses, " ulysses");
  axis("encoder tensor", layout.shape.has_grids() ? layout.tensor(Grid::encoder) : 1, layout.sequence_parallel,
       " sequence-parallel");
  axis("encoder context", layout.shape.has_grids() ? layout.context(Grid::encoder) : 1,
       layout.context_mode == ContextMode::ulysses, " ulysses");
  bool const interleaved = layout.pipeline_schedule == PipelineSchedule::interleaved;
  axis("pipeline", layout.size(MeshAxis::pipeline), interleaved || layout.zero_bubble,
       fmt::format("{}{}", interleaved ? " interleaved" : "", layout.zero_bubble ? " zero-bubble" : ""));
  axis("data", layout.size(MeshAxis::data), false, "");
  return fmt::format("{}{}{}, micro-batches of {}",
                     axes.empty() ? "one rank" : fmt::format("{}", fmt::join(axes, " × ")),
                     layout.replicas() == 1    ? ""
                     : layout.shard_ranks > 0  ? fmt::format(", parameters sharded over {}", layout.shard_ranks)
                     : layout.shard_parameters ? ", parameters sharded"
                     : layout.shard_optimizer  ? ", optimizer sharded"
                                               : "",
                     layout.expert > 1 ? fmt::format(", experts over {}", layout.expert) : "",
                     readable_count(layout.micro_batch_tokens));
}

void reject(std::vector<Rejection>& rejections, std::string const& limit, std::string const& example,
            std::int64_t layouts) {
  auto const known = std::ranges::find(rejections, limit, &Rejection::limit);
  if (known == rejections.end()) {
    rejections.push_back({limit, example, layouts});
  } else {
    known->layouts += layouts;
  }
}

LayoutCandidates list_layouts(Config const& config, ModelDescription const& model, Machines const& machines,
                              std::int64_t longest_sequence, std::int64_t batch_tokens, std::string const& undivided) {
  LayoutCandidates found;
  std::vector<MeshShape> shapes;
  for (MeshShape const& shape : shapes_of(machines.ranks())) {
    std::ranges::move(with_grids(shape, config, model), std::back_inserter(shapes));
  }
  for (MeshShape const& shape : shapes) {
    // The configured runs of replicas, and those of a node.
    std::set<int> const runs{config.parallel.shard_ranks, machines.ranks_per_node / shape.size(MeshAxis::tensor)};
    for (LayoutChoice layout : variants_of(shape, model, {runs.begin(), runs.end()})) {
      if ((layout.shard_parameters || layout.expert > 1) && !undivided.empty()) {
        reject(found.rejections, "parallel.shard_parameters and expert cannot be used", undivided);
        continue;
      }
      std::string const problem = layout_problem(with_layout(config, layout), model, layout.shape, longest_sequence);
      if (!problem.empty()) {
        reject(found.rejections, limit_of(config, model, layout, longest_sequence), problem);
        continue;
      }
      int const tensor = shape.size({MeshAxis::encoder_tensor, MeshAxis::decoder_tensor, MeshAxis::tensor});
      if (machines.ranks_per_node % tensor != 0) {
        std::string const what = shape.has_grids() ? fmt::format("two grids of {} neighbours", tensor)
                                                   : fmt::format("parallel.tensor = {}", tensor);
        reject(found.rejections, "parallel.tensor does not divide the ranks of a node",
               fmt::format("{} with {} ranks of a node", what, machines.ranks_per_node));
        continue;
      }
      int const context = largest(layout, &LayoutChoice::context);
      if (context > 1 && longest_sequence < min_context_tokens * context) {
        reject(found.rejections, "sequences are too short for parallel.context",
               fmt::format("{} context ranks would share at most {} tokens, fewer than {} each",
                           readable_count(context), readable_count(longest_sequence), min_context_tokens));
        continue;
      }
      auto const tokens = micro_batch_sizes(config, layout, batch_tokens);
      bool any = false;
      for (std::int64_t const size : tokens) {
        std::int64_t const needed =
            size * layout.size(MeshAxis::data) * layout.size(MeshAxis::pipeline);  // one for each stage
        if (needed < batch_tokens + size) {
          layout.micro_batch_tokens = size;
          found.layouts.push_back(layout);
          any = true;
        }
      }
      if (!any) {
        reject(found.rejections, batch_limit, too_few_tokens(config, layout, batch_tokens));
      }
    }
  }
  return found;
}

}  // namespace heddle
