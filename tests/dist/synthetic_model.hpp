#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/base/random.hpp>
#include <heddle/core/operations/registry.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/dist/state/model_stream.hpp>
#include <heddle/dist/state/whole_model.hpp>
#include <heddle/kernels/register.hpp>
#include <map>

#include "dist_fixture.hpp"

namespace heddle {

/// A parameter in canonical form.
struct WholeTensor {
  std::string name;
  Shape shape;
  std::map<std::string, std::vector<float>> arrays = {};  ///< by key

  bool operator==(WholeTensor const&) const = default;
};

/// Eight layers of parameters of every kind, and two that several stages hold, on any mesh, also one whose data ranks
/// are divided by an expert axis. Gradients are small integers, so that their sums are exact in any order, and the norm
/// too.
class SyntheticModel {
 public:
  static constexpr int layers = 8;

  struct Options {
    bool shard = false;
    double clip_norm = 0;
    std::int64_t bucket_elements = 64;
    bool exact = true;
    std::vector<ParameterGroup> groups = {};
    std::string rule = "adam";
    Average average = Average::none;
  };

  SyntheticModel(ParallelState const& state, Options const& options)
      : parallel(state),
        registries(built_in()),
        parameters(declared(state.mesh, config_of(options), registries)),
        model(WholeModel::gather(state, parameters)),
        optimizer(config_of(options), {registries, choices}, state, parameters, execution,
                  {.shard = options.shard, .bucket_elements = options.bucket_elements}),
        exact_(options.exact) {}

  /// Pipeline coordinate of a layer.
  static int stage_of(int layer, Mesh const& mesh) { return layer * mesh.size(MeshAxis::pipeline) / layers; }

  /// Adds every rank's part of the gradient of `micro_batch`.
  void run_micro_batch(std::int64_t micro_batch) {
    for (Parameter const& parameter : parameters.all()) {
      if (parameter.gradient.empty()) {
        continue;  // it is frozen
      }
      auto gradient = to_host<float>(parameter.gradient);
      std::uint64_t const key = random_key(17, parameter.spec.name);
      IndexRange const mine = part_of(parameter);
      for_each_element(parameter, [&](std::size_t local, std::int64_t global) {
        gradient[local] += scale(global, micro_batch) * static_cast<float>(number(key, micro_batch, mine, global));
      });
      copy_from_host(parameter.gradient, gradient.data());
    }
    auto losses = to_host<double>(loss_sums);
    bool const has_loss = parallel.mesh.coordinate(MeshAxis::pipeline) + 1 == parallel.mesh.size(MeshAxis::pipeline);
    losses[0] += has_loss && parallel.mesh.coordinate(MeshAxis::context) == 0 ? static_cast<double>(micro_batch) : 0;
    copy_from_host(loss_sums, losses.data());
  }

  /// Runs a step over this many micro-batches, this data rank's share on this rank.
  double step(std::int64_t number_of_step, std::int64_t micro_batches, bool tree = false) {
    auto const run = [&](std::int64_t index) { run_micro_batch(number_of_step * micro_batches + index); };
    if (tree) {
      IndexRange const mine = optimizer.reducer().begin_tree(micro_batches, loss_sums);
      for (std::int64_t index = mine.begin; index < mine.end; ++index) {
        run(index);
        optimizer.reducer().micro_batch_done();
      }
      optimizer.reducer().finish_tree();
    } else {
      optimizer.zero_gradients();
      copy_from_host(loss_sums, std::vector<double>(1).data());
      IndexRange const mine = share(micro_batches, parallel.data.rank(), parallel.data.size());
      for (std::int64_t index = mine.begin; index < mine.end; ++index) {
        run(index);
      }
      optimizer.reducer().reduce(loss_sums);
    }
    return optimizer.update(0.01, number_of_step + 1 - first_step);
  }

  /// Trains what the groups unfreeze after `updates` updates; collective over the pipeline group.
  void unfreeze(std::int64_t updates) {
    optimizer.unfreeze(updates);
    model = WholeModel::gather(parallel, parameters);
  }

  double loss() const { return to_host<double>(loss_sums).front(); }

  /// Every tensor on world rank 0, in chunks of `chunk` elements; none elsewhere.
  std::vector<WholeTensor> gathered(std::int64_t chunk = 1000) {
    ModelStream stream(parallel, model, parameters, optimizer);
    std::vector<WholeTensor> whole;
    for (std::size_t index = 0; index < stream.tensors().size(); ++index) {
      StreamedTensor const& tensor = stream.tensors()[index];
      WholeTensor& filled = whole.emplace_back(WholeTensor{tensor.name, Shape(tensor.shape)});
      for (std::size_t key = 0; key < tensor.keys.size(); ++key) {
        std::vector<float>& elements = filled.arrays[tensor.keys[key]];
        std::int64_t const size = Shape(tensor.shape_of(tensor.keys[key])).size();
        elements.resize(static_cast<std::size_t>(size));
        for (std::int64_t begin = 0; begin < size; begin += chunk) {
          IndexRange const range{begin, std::min(begin + chunk, size)};
          if (parallel.world.rank() == 0) {
            stream.receive({index, key, range}, std::span(elements).subspan(static_cast<std::size_t>(begin),
                                                                            static_cast<std::size_t>(range.count())));
          } else {
            stream.send({index, key, range}, 0);
          }
          stream.wait();
        }
      }
    }
    return parallel.world.rank() == 0 ? whole : std::vector<WholeTensor>{};
  }

  /// Loads a whole model's state, as from a checkpoint.
  void load(std::vector<WholeTensor> const& tensors) {
    std::map<std::string, WholeTensor const*> by_name;
    for (WholeTensor const& tensor : tensors) {
      by_name[tensor.name] = &tensor;
    }
    for (Parameter const& parameter : parameters.all()) {
      WholeTensor const& whole = *by_name.at(parameter.spec.name);
      auto const mine = [&](std::vector<float> const& elements) {
        std::vector<float> local(static_cast<std::size_t>(parameter.local_shape.size()));
        for_each_element(parameter, [&](std::size_t to, std::int64_t from) {
          local[to] = elements[static_cast<std::size_t>(from)];
        });
        return local;
      };
      copy_from_host(parameter.value, mine(whole.arrays.at(value_key)).data());
      for (std::string const& key : parameter.state) {
        bool const of_matrix = parameter.whole_state.contains(key);
        std::vector<float> const local = of_matrix ? whole.arrays.at(key) : mine(whole.arrays.at(key));
        for (IndexRange const& kept : optimizer.kept_state(parameter, key)) {
          optimizer.set_state(
              parameter, key, kept,
              std::span(local).subspan(static_cast<std::size_t>(kept.begin), static_cast<std::size_t>(kept.count())));
        }
      }
    }
  }

  /// Passes the local and the global index of each element to `visit`.
  template <class Visitor>
  static void for_each_element(Parameter const& parameter, Visitor const& visit) {
    Shape const& global = parameter.global_shape();
    std::size_t local = 0;
    for (std::int64_t index = 0; index < global.size(); ++index) {
      bool held = true;
      std::int64_t rest = index;
      for (int axis = global.rank() - 1; axis >= 0; --axis) {
        IndexRange const& range = parameter.slice.ranges()[static_cast<std::size_t>(axis)];
        held = held && rest % global[axis] >= range.begin && rest % global[axis] < range.end;
        rest /= global[axis];
      }
      if (held) {
        visit(local++, index);
      }
    }
  }

  Arena scratch{1 << 20};
  Execution execution{Kokkos::DefaultExecutionSpace(), scratch};
  ParallelState parallel;
  KernelRegistries registries;
  KernelChoices choices;
  ParameterSet parameters;
  WholeModel model;
  DistributedOptimizer optimizer;
  Tensor loss_sums = Tensor::allocate(DType::float64, {1});
  std::int64_t first_step = 0;  ///< of the run: its update is number 1

 private:
  static KernelRegistries built_in() {
    KernelRegistries registries;
    register_built_in_kernels(registries);
    return registries;
  }

  static ParameterSet declared(Mesh const& mesh, OptimizerConfig const& config, KernelRegistries const& rules) {
    ParameterSet set(mesh);
    int const here = mesh.coordinate(MeshAxis::pipeline);
    int const last = mesh.size(MeshAxis::pipeline) - 1;
    auto const normal = Initializer::normal(1);
    // Stages declare what they share in different orders and places.
    std::vector<int> const tied_stages = distinct({0, stage_of(5, mesh), last});
    bool const holds_tied = std::find(tied_stages.begin(), tied_stages.end(), here) != tied_stages.end();
    auto const declare_tied = [&] {
      if (holds_tied) {
        set.declare({.name = "tied",
                     .placement = {{11, 13}, {{MeshAxis::tensor}}, {expert_axis}, tied_stages},
                     .initializer = normal,
                     .matrix = true});
      }
    };
    if (here == 0) {
      declare_tied();
    }
    for (int layer = 0; layer < layers; ++layer) {
      if (stage_of(layer, mesh) == here) {
        std::string const name = fmt::format("layer{}", layer);
        set.declare({name + ".norm", {{37}, {}, {MeshAxis::tensor, expert_axis}}, normal});
        set.declare({.name = name + ".rows",
                     .placement = {{9, 33}, {{MeshAxis::tensor}}, {expert_axis}},
                     .initializer = normal,
                     .matrix = true});
        set.declare({.name = name + ".across",
                     .placement = {{14, 10}, {{}, {MeshAxis::tensor}}, {expert_axis}},
                     .initializer = normal,
                     .matrix = true});
        set.declare({name + ".bias", {{21}, {}, {expert_axis}}, normal});
        set.declare({name + ".columns", {{3, 10, 5}, {{}, {MeshAxis::tensor}}, {expert_axis}}, normal});
        set.declare({name + ".experts", {{8, 3, 9}, {{expert_axis}, {}, {MeshAxis::tensor}}}, normal});
      }
    }
    if (here == 0 || here == last) {
      set.declare({"every_end", {{19}, {}, {MeshAxis::tensor, expert_axis}, distinct({0, last})}, normal});
    }
    if (here != 0) {
      declare_tied();
    }
    assign_rules(config, rules, set);
    set.allocate(DType::float32);
    set.initialize(3);
    return set;
  }

  static std::vector<int> distinct(std::vector<int> stages) {
    stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
    return stages;
  }

  static OptimizerConfig config_of(Options const& options) {
    OptimizerConfig config;
    config.name = options.rule;
    config.clip_norm = options.clip_norm;
    config.groups = options.groups;
    config.average = options.average;
    config.average_every = 1;
    config.average_count = 2;
    return config;
  }

  /// Returns which part of a micro-batch's gradient this rank has, and one beyond the last: parts count over context,
  /// the axes that the gradient is partial over, and stages.
  IndexRange part_of(Parameter const& parameter) const {
    Mesh const& mesh = parallel.mesh;
    std::int64_t part = mesh.coordinate(MeshAxis::context);
    std::int64_t parts = mesh.size(MeshAxis::context);
    for (MeshAxis const axis : parameter.placement().gradient_partial_over) {
      part = part * mesh.size(axis) + mesh.coordinate(axis);
      parts *= mesh.size(axis);
    }
    auto const& stages = parameter.placement().stages;
    if (auto const count = static_cast<std::int64_t>(stages.size()); count > 1) {
      auto const here = std::find(stages.begin(), stages.end(), mesh.coordinate(MeshAxis::pipeline));
      part = part * count + (here - stages.begin());
      parts *= count;
    }
    return {part, parts};
  }

  /// A part's integer. Part 0 is the whole minus the others, so that the parts of any layout have the same sum.
  static int number(std::uint64_t key, std::int64_t micro_batch, IndexRange const& mine, std::int64_t global) {
    auto const drawn = [&](std::int64_t part) {
      return static_cast<int>(
                 Philox::words(key, {static_cast<std::uint32_t>(global), static_cast<std::uint32_t>(micro_batch),
                                     static_cast<std::uint32_t>(part), 0})[0] %
                 41) -
             20;
    };
    int result = drawn(mine.begin);
    if (mine.begin == 0) {
      for (std::int64_t other = 1; other < mine.end; ++other) {
        result -= drawn(other);
      }
    }
    return result;
  }

  /// A factor from 1e-3 to 1e3.
  float scale(std::int64_t global, std::int64_t micro_batch) const {
    return exact_ ? 1 : std::pow(10.0F, static_cast<float>((global + 7 * micro_batch) % 61) / 10 - 3);
  }

  bool exact_;
};

}  // namespace heddle
