#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <compare>
#include <cstdlib>
#include <heddle/core/config/config.hpp>
#include <heddle/core/model/layout.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/parameters/parameter.hpp>
#include <heddle/dist/planning/layout_choice.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "golden_model.hpp"
#include "kernel_test_support.hpp"
#include "test_scores.hpp"

namespace heddle {

/// A way to spread a model over ranks.
using Layout = LayoutChoice;

/// A kind of model.
struct Variant {
  NormPlacement norm = NormPlacement::post;
  bool tied = true;
  std::string keys = {};  ///< TOML of other keys of [model]
  bool weighted = false;  ///< the rows of the targets have weights, and some predict nothing

  auto operator<=>(Variant const&) const = default;
};

inline std::vector<Variant> all_variants() {
  return {{NormPlacement::post, true},
          {NormPlacement::pre, true},
          {NormPlacement::post, false},
          {NormPlacement::pre, false}};
}

/// Models of other parts than the paper's, among them the scores of test_scores.hpp. layout_variants_test.cpp finds
/// options and kinds that none of them has.
inline std::vector<Variant> other_variants() {
  return {
      {NormPlacement::post, false,
       "positions = \"relative\"\nmax_distance = 3\nactivation = \"gelu\"\nbiases = false\nscale_embedding = false\n"
       "output_bias = true",
       true},
      {NormPlacement::pre, true,
       "positions = \"rotary\"\nactivation = \"swiglu\"\n[model.decoder]\ncross_attention = { soft_cap = 2.0 }"},
      // A layer norm of few numbers is steep, and rounding errors would grow from step to step: heads have six.
      {NormPlacement::both, true,
       "norm_kind = \"rms\"\nembedding_norm = true\nposition_layout = \"halves\"\n"
       "[model.encoder]\nnorm_kind = \"layer\"\nself_attention = { query_key_norm = true, head_dim = 6 }\n"
       "[model.decoder]\nself_attention = { query_key_norm = true, head_dim = 6 }\n"
       "cross_attention = { query_key_norm = true, head_dim = 6, guided_alignment_weight = 0.3 }"},
      {NormPlacement::post, true,
       "positions = \"learned\"\noutput_transform = true\ntoken_types = 2\n"
       "[model.decoder]\nself_attention = { mask = \"prefix\" }\n"
       "cross_attention = { score = \"dot_product\", guided_alignment_weight = 0.5 }"},
      {NormPlacement::post, true,
       "positions = \"alibi\"\nactivation = \"silu\"\nrecompute = \"layer\"\n"
       "[model.decoder]\ncross_attention = { kv_heads = 4, guided_alignment_weight = 0.2 }\n[train]\nz_loss = "
       "0.01\nr_drop = 2.0\nteacher = [\"one\"]\nteacher_weight = 0.3",
       true},
      {NormPlacement::pre, false,
       "positions = \"relative_buckets\"\nposition_buckets = 8\nmax_distance = 6\nactivation = \"gelu_tanh\"\n"
       "recompute = \"attention\"\n[model.encoder]\nself_attention = { own_positions = true }"},
      {NormPlacement::pre, true,
       "positions = \"rotary\"\nposition_layout = \"halves\"\nrotary_base = 500.0\nactivation = \"geglu\"\n"
       "recompute = \"layer\"\n[model.decoder]\nself_attention = { rotary_base = 100.0 }"},
      {NormPlacement::pre, true,
       "[model.encoder]\nself_attention = { window = 2, soft_cap = 3.0, score = \"dot_product\" }\n"
       "[model.decoder]\nself_attention = { window = 1, block = 2, global_tokens = 1, score = \"additive\" }\n"
       "cross_attention = { score = \"additive\", biases = \"none\" }"},
      {NormPlacement::output, true,
       "norm_kind = \"rms\"\nlogit_cap = 3.0\nseparate_embeddings = true\npositions = \"rotary\"\n"
       "rotary_scaling = \"yarn\"\nrotary_factor = 2.0\nrotary_original_length = 16\n"
       "[model.encoder]\nd_model = 32\nself_attention = { biases = \"qkv\" }\n"
       "[model.decoder]\nself_attention = { joint_query_key_norm = true, kv_heads = 4, biases = \"none\" }\n"
       "cross_attention = { joint_query_key_norm = true, biases = \"qkv\" }\n[train]\nteacher = [\"one\", \"two\"]"},
      {NormPlacement::both, true,
       "biases = false\nlogit_cap = 5.0\nrecompute = \"layer\"\n"
       "[model.encoder]\nself_attention = { biases = \"all\" }\n"
       "[model.decoder]\ncross_attention = { biases = \"all\" }\n[train]\nr_drop = 0.5"},
      {NormPlacement::post, true,
       "positions = \"none\"\n[model.encoder]\nattention_dropout = 0.0\n"
       "self_attention = { score = \"linear\", kv_heads = 4 }\n"
       "[model.decoder]\nattention_dropout = 0.0\nself_attention = { score = \"linear\" }\n"
       "cross_attention = { score = \"linear\", kv_heads = 4 }"},
      {NormPlacement::pre, true,
       "activation = \"swiglu\"\n[model.decoder]\nrecompute = \"layer\"\nself_attention = { kv_heads = 4" +
           std::string(scores_run ? ", score = \"logistic\" }\ncross_attention = { score = \"cubic\" }\n" : " }\n") +
           "[adapter]\nrank = 3\ndropout = 0.2\ntargets = [\"*\"]\n"
           "[optimizer.group.norms]\nparameters = [\"*.norm.*\"]"},
      {NormPlacement::pre, true,
       "activation = \"swiglu\"\nactivation_dropout = 0.1\n"
       "[model.encoder.layer.2]\nsublayers = [\"self_attention\", \"mixture_of_experts\"]\n"
       "mixture_of_experts = { experts = 4, experts_per_token = 2, scoring = \"softmax\", normalize_weights = false, "
       "load_balance_loss = 0.2, router_z_loss = 0.1, shared_d_ff = 8 }\n"
       "[model.decoder.layer.\"3-4\"]\nsublayers = [\"self_attention\", \"cross_attention\", \"mixture_of_experts\"]\n"
       "mixture_of_experts = { experts = 8, experts_per_token = 1, load_balance_loss = 0.3 }"},
      {NormPlacement::post, true,
       "recompute = \"layer\"\n[model.encoder.layer.4]\nsublayers = [\"self_attention\", \"mixture_of_experts\"]\n"
       "mixture_of_experts = { experts = 4, scoring = \"sigmoid\", capacity_factor = 0.6, load_balance_loss = 0.2, "
       "balance_bias_rate = 0.01 }"},
      // The students of Kim et al. 2019.
      {NormPlacement::post, true,
       "decoder_sublayers = [\"ssru\", \"cross_attention\", \"feed_forward\"]\n"
       "[model.decoder]\ntied_layers = [1, 1, 2, 2]\n"
       "[model.decoder.layer.\"3-4\"]\nssru = { projection = true }"},
      {NormPlacement::pre, false,
       "decoder_sublayers = [\"average_attention\", \"cross_attention\", \"feed_forward\"]\nrecompute = \"layer\"\n"
       "[model.decoder]\ntied_layers = [1, 2, 3, 3]\naverage_attention = { d_ff = 16, activation = \"silu\" }\n"
       "[model.decoder.layer.1]\naverage_attention = { gate = false }"}};
}

inline std::string describe(Variant const& variant) {
  return fmt::format("{}-norm, {}{}", name_of(variant.norm), variant.tied ? "tied" : "untied",
                     variant.keys.empty() ? "" : ", " + variant.keys);
}

/// The layouts of `ranks` ranks that need all of them, with no axis above 4, each with all its possible switches. More
/// than 4 ranks have the products of three axes only: a product of two has all its kinds of communication on 4. With
/// HEDDLE_TORTURE=big all products.
inline std::vector<Layout> layouts_on(int ranks) {
  char const* const torture = std::getenv("HEDDLE_TORTURE");
  int const max_size = ranks <= 4 || (torture != nullptr && std::string_view(torture) == "big") ? 4 : 2;
  std::vector<Layout> layouts;
  auto const add_switches = [&](Layout const& plain) {
    for (unsigned bits = 0; bits < 16; ++bits) {
      Layout layout = plain;
      layout.sequence_parallel = (bits & 1) != 0;
      layout.context_mode = (bits & 2) != 0 ? ContextMode::ulysses : ContextMode::ring;
      layout.pipeline_schedule =
          (bits & 4) != 0 ? PipelineSchedule::interleaved : PipelineSchedule::one_forward_one_backward;
      layout.shard_optimizer = (bits & 8) != 0;
      bool const idle = (layout.sequence_parallel && plain.size(MeshAxis::tensor) == 1) ||
                        ((bits & 2) != 0 && plain.size(MeshAxis::context) == 1) ||
                        ((bits & 4) != 0 && plain.size(MeshAxis::pipeline) == 1) ||
                        (layout.shard_optimizer && plain.replicas() == 1);
      // Half of a pipeline's layouts, each other switch on and off among them: all would take twice the time.
      layout.zero_bubble = plain.size(MeshAxis::pipeline) > 1 && std::popcount(bits) % 2 == 1;
      if (!idle) {
        layouts.push_back(layout);
      }
      // With several axes, half of the layouts with a sharded optimizer shard parameters, too.
      bool const only_data = plain.size(MeshAxis::data) == plain.shape.ranks();
      if (!idle && layout.shard_optimizer && !layout.zero_bubble && (only_data || std::popcount(bits & 7U) % 2 == 0)) {
        layout.shard_parameters = true;
        layout.shard_ranks = plain.replicas() == 4 && !layout.sequence_parallel ? 2 : 0;
        only_data ? layouts.push_back(layout) : static_cast<void>(layouts.back() = layout);
      }
    }
  };
  for (MeshShape const& shape : shapes_of(ranks)) {
    if (std::ranges::all_of(shape.axes(), [&](MeshShape::Axis const& axis) { return axis.size <= max_size; })) {
      add_switches({.shape = shape});
    }
  }
  return layouts;
}

/// The layouts of `ranks` ranks whose encoder has a grid of its own, of each size that it can have; the switches in
/// turn.
inline std::vector<Layout> grid_layouts_on(int ranks) {
  std::vector<Layout> layouts;
  for (MeshShape const& shape : shapes_of(ranks)) {
    for (int const tensor : divisors_of(shape.size({MeshAxis::context, MeshAxis::tensor}))) {
      Layout layout{.shape = shape.with_encoder_tensor(tensor)};
      if (!layout.shape.has_grids()) {
        continue;
      }
      std::size_t const bits = layouts.size();
      bool const stages = shape.size(MeshAxis::pipeline) > 1;
      layout.sequence_parallel = (bits & 1U) != 0;
      layout.context_mode = (bits & 2U) != 0 ? ContextMode::ulysses : ContextMode::ring;
      layout.pipeline_schedule =
          stages && (bits & 4U) == 0 ? PipelineSchedule::interleaved : PipelineSchedule::one_forward_one_backward;
      layout.zero_bubble = stages && (bits & 1U) == 0;
      layout.shard_optimizer = layout.replicas() > 1 && (bits & 2U) == 0;
      layout.shard_parameters = layout.shard_optimizer && !layout.zero_bubble && (bits & 4U) == 0;
      layouts.push_back(layout);
    }
  }
  return layouts;
}

/// The groups and switches of a layout; collective over `world`, all of whose ranks it uses.
inline ParallelState parallel_of(Layout const& layout, Communicator const& world) {
  ParallelState parallel = make_parallel_state(world, Mesh(layout.shape, world.rank(), world.size()));
  parallel.set_modes(layout.sequence_parallel, layout.context_mode);
  parallel.divide_experts(layout.expert);
  parallel.divide_parameters(layout.shard_parameters ? std::max(1, layout.shard_ranks) : 1);
  return parallel;
}

/// The configuration for a layout, with a tiny model that any axis can divide: 4 + 4 layers and 8 heads.
inline Config tiny_config(Layout const& layout, Config config = {}) {
  config = with_layout(std::move(config), layout);
  config.model.encoder.layers = 4;
  config.model.decoder.layers = 4;
  config.model.d_model = 16;
  config.model.d_ff = 24;
  config.model.heads = 8;
  config.model.max_length = 32;
  // In some layouts tables stay whole.
  config.parallel.shard_min_parameters = layout.sequence_parallel ? 300 : 1;
  return config;
}

/// Whether a model's layers support a layout, and are enough for its stages.
inline bool supports(Config const& config, Layout const& layout) {
  return layout_problem(config, description_of(config.model), layout.shape, config.model.max_length).empty();
}

/// The elements of a parameter's value that this rank holds.
inline std::vector<double> held_values(ParameterSet const& parameters, Parameter const& parameter) {
  IndexRange const held = parameters.held_places(parameter);
  return held.count() > 0 ? values(parameters.values_in(held)) : std::vector<double>();
}

/// The part of a whole tensor's elements whose values this rank holds.
inline std::vector<double> held_part(std::vector<double> const& whole, ParameterSet const& parameters,
                                     Parameter const& parameter) {
  IndexRange const held = parameters.held_places(parameter);
  std::vector<double> part;
  parameter.slice.for_each_run({held.begin - parameter.place.begin, held.end - parameter.place.begin},
                               [&](std::int64_t /*first*/, std::int64_t index, std::int64_t count) {
                                 part.insert(part.end(), whole.begin() + index, whole.begin() + index + count);
                               });
  return part;
}

/// This rank's part of a whole tensor's elements; none of the gradient of a frozen one.
inline std::vector<double> local_part(std::vector<double> const& whole, Parameter const& parameter) {
  std::vector<double> part;
  IndexRange const all{0, whole.empty() ? 0 : parameter.local_shape.size()};
  parameter.slice.for_each_run(all, [&](std::int64_t /*first*/, std::int64_t index, std::int64_t count) {
    part.insert(part.end(), whole.begin() + index, whole.begin() + index + count);
  });
  return part;
}

}  // namespace heddle
