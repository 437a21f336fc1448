// A plug-in: a bottleneck adapter as a sublayer (Houlsby et al. 2019): up(relu(down(x))), `width` columns inside. Only
// the tokens' own columns are combined, so that decoding needs no code.

#include <heddle/core/layers/linear.hpp>
#include <heddle/core/operations/activation.hpp>
#include <heddle/core/plugins/entry.hpp>

namespace adapter_plugin {

using heddle::HiddenStates;
using heddle::LayerContext;
using heddle::LayerSpec;
using heddle::Linear;
using heddle::Saved;
using heddle::Tensor;

class Adapter final : public heddle::Layer {
 public:
  explicit Adapter(LayerSpec const& spec) : Adapter(spec, spec.options.integer("width", default_width)) {}

  HiddenStates forward(LayerContext& context, HiddenStates const& input, Saved& saved) const override {
    Tensor const narrow = down_.forward(context, input.hidden);
    Tensor const activated = context.arena.allocate(narrow.dtype(), narrow.shape());
    relu_->forward(context.execution, {.function = "relu", .input = narrow}, activated);
    saved.keep(Activations{input.hidden, narrow, activated});
    return {up_.forward(context, activated), input.encoder_output};
  }

  HiddenStates backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const override {
    auto const& [input, narrow, activated] = saved.get<Activations>();
    Tensor const grad = up_.backward(context, grad_output.hidden, activated);
    relu_->backward(context.execution, {.function = "relu", .input = narrow}, grad, {.input = grad});  // in place
    return {down_.backward(context, grad, input), grad_output.encoder_output};
  }

  static heddle::LayerTraits traits() {
    heddle::OptionDescription const width{
        .name = "width", .type = heddle::OptionDescription::Type::integer, .meaning = "columns inside", .min = 1};
    auto const unsupported_reason = [](heddle::ModelConfig const&, heddle::LayerOptions const& options,
                                       heddle::LayerUse const& use) {
      return heddle::uneven_over_tensor("adapter.width", options.integer("width", default_width), use);
    };
    return {.options = {width},
            .unsupported_reason = unsupported_reason,
            .trials = {{.name = "no options"}, {.name = "width 3", .options = {{"width", std::int64_t{3}}}}}};
  }

 private:
  static constexpr std::int64_t default_width = 16;
  struct Activations {
    Tensor input, narrow, activated;
  };

  Adapter(LayerSpec const& spec, std::int64_t width)
      : down_(spec.named(spec.name + ".down"), {spec.model.d_model, width}, Linear::Split::outputs),
        up_(spec.named(spec.name + ".up"), {width, spec.model.d_model}, Linear::Split::inputs),
        relu_(spec.kernels.select<heddle::Activation>({spec.dtype, "relu"})) {}

  Linear down_;
  Linear up_;
  std::shared_ptr<heddle::Activation> relu_;
};

void register_all(heddle::Registries& registries) {
  registries.layers.add<Adapter>("adapter", Adapter::traits());
}

}  // namespace adapter_plugin

HEDDLE_PLUGIN(adapter_plugin::register_all)
