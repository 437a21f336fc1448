#include "variants.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <heddle/core/attention/attention_positions.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/random.hpp>
#include <heddle/core/model/description.hpp>
#include <heddle/core/model/pipeline_plan.hpp>
#include <heddle/core/tensor/doubles.hpp>
#include <heddle/core/tensor/fence.hpp>

namespace heddle {
namespace {

using Values = std::vector<double>;
using Seconds = std::chrono::duration<double>;

struct Variant {
  char const* name;
  char const* options;    ///< of the decoder's self_attention
  char const* keys = "";  ///< of [model]
};

/// The first is what the others are compared with.
constexpr std::array variants{
    Variant{"scaled dot product", ""},
    Variant{"dot product", R"(score = "dot_product")"},
    Variant{"additive", R"(score = "additive")"},
    Variant{"soft cap", "soft_cap = 30.0"},
    Variant{"norms of queries and keys", "query_key_norm = true"},
    Variant{"linear", R"(score = "linear")"},
    Variant{"window of 64", "window = 64"},
    Variant{"window of 64, 4 global tokens", "window = 64, global_tokens = 4"},
    Variant{"blocks of 64, 1 before", "window = 1, block = 64"},
    Variant{"blocks of 64, 1 before, 4 global tokens", "window = 1, block = 64, global_tokens = 4"},
    Variant{"prefix", R"(mask = "prefix")"},
    Variant{"grouped: 2 key heads", "kv_heads = 2"},
    Variant{"multi-query: 1 key head", "kv_heads = 1"},
    Variant{"heads of 32", "head_dim = 32"},
    Variant{"rotary", "", R"(positions = "rotary")"},
    Variant{"rotary, half and half", "", "positions = \"rotary\"\nposition_layout = \"halves\""},
    Variant{"relative by distance", "", R"(positions = "relative")"},
    Variant{"relative in buckets (T5)", "", R"(positions = "relative_buckets")"},
    Variant{"ALiBi", "", R"(positions = "alibi")"},
};

/// A small model for errors, and the base model's sizes for times.
struct Sizes {
  std::int64_t d_model, heads, max_length;
};

ModelConfig model_of(Variant const& variant, Sizes const& sizes) {
  std::string const options =
      *variant.options == '\0' ? "" : fmt::format("self_attention = {{ {} }}\n", variant.options);
  return parse_config(fmt::format("[train]\nbatch_tokens = {0}\nmicro_batch_tokens = {0}\n[model]\nmax_length = {0}\n"
                                  "stacks = [\"decoder\"]\ndecoder_layers = 2\nd_model = {1}\nheads = {2}\n{3}\n"
                                  "[model.decoder]\n{4}",
                                  sizes.max_length, sizes.d_model, sizes.heads, variant.keys, options),
                      variant.name)
      .model;
}

Values random_numbers(std::int64_t count, std::string_view name) {
  std::uint64_t const key = random_key(0, name);
  Values numbers;
  for (std::int64_t i = 0; i < count; ++i) {
    numbers.push_back(Philox::words(key, {static_cast<std::uint32_t>(i), 0, 0, 0})[0] / 4294967296.0 - 0.5);
  }
  return numbers;
}

Pack pack_of(std::vector<std::int32_t> const& lengths) {
  std::vector<SentencePair> pairs;
  for (std::int32_t const length : lengths) {
    std::vector<std::int32_t> const tokens(static_cast<std::size_t>(length) - 1, 3);
    pairs.push_back({static_cast<std::int32_t>(pairs.size()), {}, tokens});
  }
  Pack pack = make_pack(pairs, {.source = {.begin = 1, .end = 2}, .target = {.begin = 1, .end = 2}});
  std::vector<std::int32_t> prefixes;
  std::ranges::transform(lengths, std::back_inserter(prefixes), [](std::int32_t length) { return length / 3; });
  pack.target_rows.prefix_length = from_host<std::int32_t>(prefixes, {pack.target_rows.sequences.count});
  return pack;
}

/// The first self-attention of a model, on one rank.
class Bench {
 public:
  Bench(Registries const& registries, ModelDescription const& model, DType dtype, bool reference)
      : keys_(*model.stacks[0].layers[0].keys),
        kernels_(reference ? registries.kernels.preferring_reference() : registries.kernels) {
    LayerSpec spec{.name = "decoder",
                   .side = Side::target,
                   .model = keys_,
                   .dtype = dtype,
                   .kernels = {kernels_, choices_},
                   .parallel = parallel_,
                   .parameters = parameters_,
                   .memory_side = {}};
    spec.positions = make_attention_positions({.stack = spec, .heads = keys_.heads, .stages = {}});
    SublayerDescription const& sublayer = model.stacks[0].layers[0].sublayers[0];
    spec.name = sublayer.path;
    spec.options = sublayer.options;
    layer_ = registries.layers.build(sublayer.name, spec);
    parameters_.allocate(dtype);
    for (Parameter const& parameter : parameters_.all()) {
      copy_from_doubles(parameter.value, random_numbers(parameter.value.size(), parameter.spec.name));
    }
    parameters_.bump_versions();
  }

  /// One forward and backward pass over `pack`; the arena is released. Returns output, then the gradients.
  struct Results {
    Values output, gradients;
  };
  Results run(Execution& execution, Pack const& pack, DType dtype) {
    ArenaScope const scope(arena_);
    Given const given = given_for(pack, dtype);
    copy_from_doubles(parameters_.gradients(), Values(static_cast<std::size_t>(parameters_.gradients().size())));
    auto const [output, grad_input] = pass(execution, pack, given);
    Results results{to_doubles(output), to_doubles(grad_input)};
    for (Parameter const& parameter : parameters_.all()) {
      std::ranges::copy(to_doubles(parameter.gradient), std::back_inserter(results.gradients));
    }
    return results;
  }

  /// Seconds of such a pass.
  double time(Execution& execution, Pack const& pack, DType dtype) {
    ArenaScope const scope(arena_);
    Given const given = given_for(pack, dtype);
    auto const begin = std::chrono::steady_clock::now();
    pass(execution, pack, given);
    fence(&execution);
    return Seconds(std::chrono::steady_clock::now() - begin).count();
  }

 private:
  /// A pass's input, and the gradient of its output.
  struct Given {
    Tensor input, upstream;
  };
  Given given_for(Pack const& pack, DType dtype) const {
    Shape const shape{pack.target_rows.tokens, keys_.d_model};
    return {from_doubles(random_numbers(shape.size(), "input"), dtype, shape),
            from_doubles(random_numbers(shape.size(), "upstream"), dtype, shape)};
  }
  struct Passed {
    Tensor output, grad_input;
  };
  Passed pass(Execution& execution, Pack const& pack, Given const& given) {
    LayerContext context{.execution = execution, .arena = arena_, .pack = pack, .training = true};
    Saved saved;
    Tensor const output = layer_->forward(context, {given.input, {}}, saved).hidden;
    return {output, layer_->backward(context, {given.upstream, {}}, saved).hidden};
  }

  ModelConfig keys_;
  KernelRegistries kernels_;
  KernelChoices choices_;
  ParallelState parallel_;
  ParameterSet parameters_{parallel_.mesh};
  std::unique_ptr<Layer> layer_;
  Arena arena_;
};

double error_of(Values const& actual, Values const& expected) {
  double worst = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    double const error = std::abs(actual[i] - expected[i]) / (1 + std::abs(expected[i]));
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  return worst;
}

std::vector<std::string> layouts_of(ModelDescription const& model) {
  auto const allowed = [&](LayerUse const& use) { return model.refusal(use).empty() ? "yes" : "no"; };
  auto const cut = [&] {
    ParallelConfig parallel;
    parallel.pipeline = 2;
    return plan_pipeline(model, parallel, 1000).stages() == 2 ? "yes" : "no";
  };
  return {allowed({.tensor = 2}),
          allowed({.tensor = 2, .sequence_parallel = true}),
          allowed({.context = 2}),
          allowed({.context = 2, .context_mode = ContextMode::ulysses}),
          cut(),
          allowed({.decode = true})};
}

/// The medians of three rounds in which every variant has its turn, divided by the first variant's.
void add_times(std::vector<VariantResult>& results, Registries const& registries, Execution& execution) {
  constexpr Sizes sizes{512, 8, 8192};
  constexpr std::size_t rounds = 3;
  for (std::int64_t const length : timed_lengths) {
    // As many tokens of short sentences as take a measurable time.
    auto const sequences = static_cast<std::size_t>(std::max<std::int64_t>(1, 2048 / length));
    Pack const pack = pack_of(std::vector<std::int32_t>(sequences, static_cast<std::int32_t>(length)));
    std::vector<std::array<double, rounds>> seconds(variants.size());
    for (std::size_t round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < variants.size(); ++i) {
        ModelDescription const model = describe_model(model_of(variants[i], sizes), registries.layers);
        Bench bench(registries, model, DType::float32, false);
        if (length < timed_lengths.back()) {
          bench.time(execution, pack, DType::float32);  // the first pass takes memory from the system
        }
        seconds[i][round] = bench.time(execution, pack, DType::float32);
      }
    }
    for (std::size_t i = 0; i < variants.size(); ++i) {
      std::ranges::sort(seconds[i]);
      results[i].times.push_back(seconds[i][rounds / 2] / seconds[0][rounds / 2]);
    }
  }
}

}  // namespace

std::vector<VariantResult> attention_variants(Registries const& registries, Execution& execution, bool timed) {
  constexpr Sizes sizes{24, 4, 256};
  Pack const pack = pack_of({150, 1, 67, 9});
  std::vector<VariantResult> results;
  for (Variant const& variant : variants) {
    ModelDescription const model = describe_model(model_of(variant, sizes), registries.layers);
    auto const actual = Bench(registries, model, DType::float32, false).run(execution, pack, DType::float32);
    auto const expected = Bench(registries, model, DType::float64, true).run(execution, pack, DType::float64);
    results.push_back({.name = variant.name,
                       .output_error = error_of(actual.output, expected.output),
                       .gradient_error = error_of(actual.gradients, expected.gradients),
                       .layouts = layouts_of(model)});
  }
  if (timed) {
    add_times(results, registries, execution);
  }
  return results;
}

std::string to_markdown(std::vector<VariantResult> const& results) {
  bool const timed = !results.empty() && !results.front().times.empty();
  std::string text = "| variant | output | gradient |";
  std::string rule = "| --- | --- | --- |";
  for (std::string_view const name : layout_names) {
    text += fmt::format(" {} |", name);
    rule += " --- |";
  }
  for (std::int64_t const length : timed_lengths) {
    text += timed ? fmt::format(" {} |", length) : "";
    rule += timed ? " --- |" : "";
  }
  text += "\n" + rule + "\n";
  for (VariantResult const& result : results) {
    text += fmt::format("| {} | {:.0e} | {:.0e} |", result.name, result.output_error, result.gradient_error);
    for (std::string const& layout : result.layouts) {
      text += fmt::format(" {} |", layout);
    }
    for (double const time : result.times) {
      text += fmt::format(" {:.2f} |", time);
    }
    text += "\n";
  }
  return text;
}

}  // namespace heddle
