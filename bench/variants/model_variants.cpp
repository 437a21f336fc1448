#include <algorithm>
#include <array>
#include <heddle/core/model/model.hpp>
#include <heddle/core/tensor/doubles.hpp>

#include "variant_results.hpp"
#include "variants.hpp"

namespace heddle {
namespace {

struct Variant {
  char const* name;
  std::array<char const*, 2> settings{};  ///< by which it differs from the first; null: none
};

/// The first is the paper's model.
constexpr std::array variants{
    Variant{"encoder-decoder: post-LayerNorm, sinusoidal, ReLU, tied"},
    Variant{"decoder-only", {R"(model.stacks=["decoder"])"}},
    Variant{"encoder-only", {R"(model.stacks=["encoder"])"}},
    Variant{"positions: sinusoidal, half and half", {"model.position_layout=\"halves\""}},
    Variant{"positions: learned", {"model.positions=\"learned\""}},
    Variant{"positions: none", {"model.positions=\"none\""}},
    Variant{"norm: before the branch (pre)", {"model.norm=\"pre\""}},
    Variant{"norm: before and after the branch (sandwich)", {"model.norm=\"both\""}},
    Variant{"norm: after the embedding, too", {"model.embedding_norm=true"}},
    Variant{"norm: RMSNorm", {"model.norm_kind=\"rms\""}},
    Variant{"norm: RMSNorm before the branch", {"model.norm_kind=\"rms\"", "model.norm=\"pre\""}},
    Variant{"feed-forward: GELU, exact", {"model.activation=\"gelu\""}},
    Variant{"feed-forward: GELU, tanh", {"model.activation=\"gelu_tanh\""}},
    Variant{"feed-forward: SiLU", {"model.activation=\"silu\""}},
    Variant{"feed-forward: SwiGLU", {"model.activation=\"swiglu\""}},
    Variant{"feed-forward: GEGLU", {"model.activation=\"geglu\""}},
    Variant{"no biases", {"model.biases=false"}},
    Variant{"output: own table", {"model.tie_embeddings=false"}},
    Variant{"output: a bias", {"model.output_bias=true"}},
    Variant{"output: transformed", {"model.output_transform=true"}},
    Variant{"output: z-loss", {"train.z_loss=0.01"}},
    Variant{"memory: attention computed again", {"model.recompute=\"attention\""}},
    Variant{"memory: layers computed again", {"model.recompute=\"layer\""}},
};

constexpr VocabularySizes vocabulary{23, 23, true};

Config config_of(Variant const& variant) {
  std::vector<std::string> overrides;
  for (char const* const setting : variant.settings) {
    if (setting != nullptr) {
      overrides.emplace_back(setting);
    }
  }
  return parse_config(
      "[train]\nbatch_tokens = 256\nmicro_batch_tokens = 256\n"
      "[model]\nencoder_layers = 2\ndecoder_layers = 2\nd_model = 24\nd_ff = 40\nheads = 4\nmax_length = 256\n",
      variant.name, overrides);
}

/// A small pack whose last stack's tokens all have a token to predict.
Pack pack_of(ModelDescription const& model) {
  Pack pack = variant_pack({20, 3, 31}, {17, 1, 40});
  if (model.stacks.back().side == Side::source) {
    pack.source_output = {pack.source.id};
  }
  return pack;
}

/// The loss is the sum over the tokens, so that gradients are not small beside the 1 in the error's divisor.
VariantValues values_of(VariantsRequest const& request, Config const& config, KernelSource const& kernels,
                        DType dtype) {
  ModelDescription const description = describe_model(config.model, request.registries.layers);
  ParallelState const parallel;
  ParameterSet parameters(parallel.mesh);
  Model const model({.name = "",
                     .side = Side::source,
                     .model = config.model,
                     .dtype = dtype,
                     .kernels = kernels,
                     .parallel = parallel,
                     .parameters = parameters},
                    request.registries.layers, vocabulary);
  set_variant_parameters(parameters, dtype);
  copy_from_doubles(parameters.gradients(),
                    std::vector<double>(static_cast<std::size_t>(parameters.gradients().size())));
  Pack const pack = pack_of(description);
  Arena arena;
  ArenaScope const scope(arena);
  LayerContext context{.execution = request.execution, .arena = arena, .pack = pack};
  VariantValues values{to_doubles(model.logits(context)), {}};
  model.forward_backward(
      context,
      {.label_smoothing = config.train.label_smoothing, .scale = 1, .sums = {}, .z_loss = config.train.z_loss});
  for (Parameter const& parameter : parameters.all()) {
    std::ranges::copy(to_doubles(parameter.gradient), std::back_inserter(values.gradients));
  }
  return values;
}

}  // namespace

std::vector<VariantResult> model_variants(VariantsRequest const& request) {
  std::vector<VariantResult> results;
  for (Variant const& variant : variants) {
    Config const config = config_of(variant);
    ModelDescription const model = describe_model(config.model, request.registries.layers);
    results.push_back(variant_result(request, variant.name, model, [&](KernelSource const& kernels, DType dtype) {
      return values_of(request, config, kernels, dtype);
    }));
  }
  return results;
}

}  // namespace heddle
