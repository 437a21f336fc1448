#include "variants.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <heddle/core/attention/attention_positions.hpp>
#include <heddle/core/checks/compare.hpp>
#include <heddle/core/model/description.hpp>
#include <heddle/core/tensor/device_work.hpp>
#include <heddle/core/tensor/doubles.hpp>

#include "variant_results.hpp"

namespace heddle {
namespace {

using Seconds = std::chrono::duration<double>;

/// A layer of a model of two layers in each stack.
struct Place {
  char const* stacks;  ///< the layer is in the last
  char const* sublayer;
  char const* title;  ///< before the name of a variant
};
constexpr Place in_decoder{R"("decoder")", "self_attention", ""};
constexpr Place in_encoder{R"("encoder")", "self_attention", "encoder: "};
constexpr Place across{R"("encoder", "decoder")", "cross_attention", "cross-attention: "};

struct Variant {
  char const* name;
  std::vector<Place const*> places;
  char const* options;    ///< of the attention layer
  char const* keys = "";  ///< of [model]
};

/// The first is what the others are compared with.
std::vector<Variant> const all_variants{
    {"scaled dot product", {&in_decoder, &in_encoder, &across}, ""},
    {"dot product", {&in_decoder, &in_encoder, &across}, R"(score = "dot_product")"},
    {"additive", {&in_decoder, &in_encoder, &across}, R"(score = "additive")"},
    {"soft cap", {&in_decoder, &in_encoder, &across}, "soft_cap = 0.5"},
    {"norms of queries and keys", {&in_decoder, &in_encoder, &across}, "query_key_norm = true"},
    {"linear", {&in_decoder, &in_encoder, &across}, R"(score = "linear")"},
    {"window of 64", {&in_decoder}, "window = 64"},
    {"window of 64, 4 global tokens", {&in_decoder}, "window = 64, global_tokens = 4"},
    {"window of 32 on both sides", {&in_encoder}, "window = 32"},
    {"blocks of 64, 1 before", {&in_decoder}, "window = 1, block = 64"},
    {"blocks of 64, 1 before, 4 global tokens", {&in_decoder}, "window = 1, block = 64, global_tokens = 4"},
    {"blocks of 64, 1 on both sides, 4 global tokens", {&in_encoder}, "window = 1, block = 64, global_tokens = 4"},
    {"prefix", {&in_decoder}, R"(mask = "prefix")"},
    {"grouped: 2 key heads", {&in_decoder, &in_encoder, &across}, "kv_heads = 2"},
    {"multi-query: 1 key head", {&in_decoder, &across}, "kv_heads = 1"},
    {"heads of 32", {&in_decoder, &across}, "head_dim = 32"},
    {"rotary", {&in_decoder, &in_encoder}, "", R"(positions = "rotary")"},
    {"rotary, half and half", {&in_decoder}, "", "positions = \"rotary\"\nposition_layout = \"halves\""},
    {"relative by distance", {&in_decoder, &in_encoder}, "", R"(positions = "relative")"},
    {"relative in buckets (T5)", {&in_decoder, &in_encoder}, "", R"(positions = "relative_buckets")"},
    {"ALiBi", {&in_decoder, &in_encoder}, "", R"(positions = "alibi")"},
};

std::vector<Variant> variants_in(Place const& place) {
  std::vector<Variant> variants;
  std::ranges::copy_if(all_variants, std::back_inserter(variants),
                       [&](Variant const& variant) { return std::ranges::count(variant.places, &place) > 0; });
  return variants;
}

/// A small model for errors, and the base model's sizes for times.
struct Sizes {
  std::int64_t d_model, heads, max_length;
};
constexpr Sizes small_sizes{24, 4, 256};
constexpr Sizes timed_sizes{512, 8, 8192};

ModelConfig model_of(Place const& place, Variant const& variant, Sizes const& sizes) {
  std::string const options =
      *variant.options == '\0' ? "" : fmt::format("{} = {{ {} }}\n", place.sublayer, variant.options);
  return parse_config(
             fmt::format("[train]\nbatch_tokens = {0}\nmicro_batch_tokens = {0}\n[model]\nmax_length = {0}\n"
                         "stacks = [{5}]\nencoder_layers = 2\ndecoder_layers = 2\nd_model = {1}\nheads = {2}\n{3}\n"
                         "[model.{6}]\n{4}",
                         sizes.max_length, sizes.d_model, sizes.heads, variant.keys, options, place.stacks,
                         &place == &in_encoder ? "encoder" : "decoder"),
             variant.name)
      .model;
}

/// The attention layer of a place, on one rank.
class Bench {
 public:
  Bench(Registries const& registries, Place const& place, ModelDescription const& model, KernelSource const& kernels,
        DType dtype)
      : keys_(*model.stacks.back().layers[0].keys), dtype_(dtype), side_(model.stacks.back().side) {
    StackDescription const& stack = model.stacks.back();
    LayerSpec spec{.name = stack.name,
                   .side = side_,
                   .model = keys_,
                   .dtype = dtype,
                   .kernels = kernels,
                   .parallel = parallel_,
                   .parameters = parameters_,
                   .encoder_side = stack.encoder_side};
    spec.positions = make_attention_positions({.stack = spec, .heads = keys_.heads, .stages = {}});
    SublayerDescription const& sublayer =
        *std::ranges::find(stack.layers[0].sublayers, place.sublayer, &SublayerDescription::name);
    spec.name = sublayer.path;
    spec.options = sublayer.options;
    reads_encoder_ = sublayer.name == across.sublayer;
    layer_ = registries.layers.build(sublayer.name, spec);
    set_variant_parameters(parameters_, dtype);
  }

  /// One forward and backward pass over `pack`; the arena is released. The gradients are those of the inputs, then of
  /// the parameters.
  VariantValues run(Execution& execution, Pack const& pack) {
    ArenaScope const scope(arena_);
    Given const given = given_for(pack);
    copy_from_doubles(parameters_.gradients(),
                      std::vector<double>(static_cast<std::size_t>(parameters_.gradients().size())));
    auto const [output, grad_input] = pass(execution, pack, given);
    VariantValues values{to_doubles(output), to_doubles(grad_input.hidden)};
    auto const add = [&](Tensor const& gradient) {
      std::ranges::copy(to_doubles(gradient), std::back_inserter(values.gradients));
    };
    if (reads_encoder_) {
      add(grad_input.encoder_output);
    }
    for (Parameter const& parameter : parameters_.all()) {
      add(parameter.gradient);
    }
    return values;
  }

  /// Seconds of such a pass.
  double time(Execution& execution, Pack const& pack) {
    ArenaScope const scope(arena_);
    Given const given = given_for(pack);
    auto const begin = std::chrono::steady_clock::now();
    pass(execution, pack, given);
    fence(&execution);
    return Seconds(std::chrono::steady_clock::now() - begin).count();
  }

 private:
  /// A pass's input, and the gradient of its output.
  struct Given {
    HiddenStates input, upstream;
  };
  Given given_for(Pack const& pack) const {
    auto const numbers = [&](Side side, char const* name) {
      Shape const shape{pack.rows(side).tokens, keys_.d_model};
      return from_doubles(random_numbers(shape.size(), name, 0.5), dtype_, shape);
    };
    Given given{{numbers(side_, "input"), {}}, {numbers(side_, "upstream"), {}}};
    if (reads_encoder_) {
      given.input.encoder_output = numbers(Side::source, "memory");
      given.upstream.encoder_output = numbers(Side::source, "gradient of the memory");
    }
    return given;
  }
  struct Passed {
    Tensor output;
    HiddenStates grad_input;
  };
  Passed pass(Execution& execution, Pack const& pack, Given const& given) {
    LayerContext context{.execution = execution, .arena = arena_, .pack = pack, .training = true};
    Saved saved;
    Tensor const output = layer_->forward(context, given.input, saved).hidden;
    return {output, layer_->backward(context, given.upstream, saved)};
  }

  ModelConfig keys_;
  DType dtype_;
  Side side_;
  bool reads_encoder_ = false;
  ParallelState parallel_;
  ParameterSet parameters_{parallel_.mesh};
  std::unique_ptr<Layer> layer_;
  Arena arena_;
};

std::vector<VariantResult> results_of(VariantsRequest const& request, Place const& place) {
  Pack const pack = variant_pack({80, 2, 131, 1}, {150, 1, 67, 9});
  std::vector<VariantResult> results;
  for (Variant const& variant : variants_in(place)) {
    ModelDescription const model = describe_model(model_of(place, variant, small_sizes), request.registries.layers);
    std::string const name = std::string(place.title) + variant.name;
    results.push_back(variant_result(request, name, model, [&](KernelSource const& kernels, DType dtype) {
      return Bench(request.registries, place, model, kernels, dtype).run(request.execution, pack);
    }));
  }
  return results;
}

/// Seconds of one pass of each variant over sequences of this length; 0 where the kernels refuse it.
std::vector<double> seconds_of_round(VariantsRequest const& request, std::vector<VariantResult> const& results,
                                     std::int64_t length) {
  // As many tokens of short sentences as take a measurable time.
  auto const sequences = static_cast<std::size_t>(std::max<std::int64_t>(1, 2048 / length));
  std::vector<std::int32_t> const lengths(sequences, static_cast<std::int32_t>(length));
  Pack const pack = variant_pack(lengths, lengths);
  std::vector<Variant> const variants = variants_in(in_decoder);
  std::vector<double> seconds(variants.size());
  for (std::size_t i = 0; i < variants.size(); ++i) {
    if (!results[i].refusal.empty()) {
      continue;
    }
    ModelDescription const model =
        describe_model(model_of(in_decoder, variants[i], timed_sizes), request.registries.layers);
    Bench bench(request.registries, in_decoder, model, {request.registries.kernels, request.choices}, DType::float32);
    if (length < timed_lengths.back()) {
      bench.time(request.execution, pack);  // the first pass takes memory from the system
    }
    seconds[i] = bench.time(request.execution, pack);
  }
  return seconds;
}

/// The medians of three rounds in which every variant has its turn, divided by the first variant's.
void add_times(VariantsRequest const& request, std::vector<VariantResult>& results) {
  for (std::int64_t const length : timed_lengths) {
    std::array<std::vector<double>, 3> rounds;
    for (std::vector<double>& round : rounds) {
      round = seconds_of_round(request, results, length);
    }
    auto const median = [&](std::size_t variant) {
      std::array<double, 3> seconds{rounds[0][variant], rounds[1][variant], rounds[2][variant]};
      std::ranges::sort(seconds);
      return seconds[1];
    };
    for (std::size_t i = 0; i < results.size(); ++i) {
      results[i].times.push_back(median(0) > 0 ? median(i) / median(0) : 0);
    }
  }
}

}  // namespace

std::vector<VariantResult> decoder_attention_variants(VariantsRequest const& request, bool timed) {
  std::vector<VariantResult> results = results_of(request, in_decoder);
  if (timed) {
    add_times(request, results);
  }
  return results;
}

std::vector<VariantResult> other_attention_variants(VariantsRequest const& request) {
  std::vector<VariantResult> results = results_of(request, in_encoder);
  std::ranges::move(results_of(request, across), std::back_inserter(results));
  return results;
}

}  // namespace heddle
