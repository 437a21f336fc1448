#pragma once

#include <functional>
#include <heddle/core/base/dtype.hpp>
#include <heddle/core/config/model_config.hpp>
#include <heddle/core/operations/kernel.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// The ways of computing a model that a layer supports. Each is declared, none is inferred from another.
struct LayerCapabilities {
  bool tensor = true;    ///< parallel.tensor > 1
  bool sequence = true;  ///< parallel.sequence_parallel
  bool context = true;   ///< parallel.context > 1
  bool decode = true;    ///< generation, token by token
  bool devices = true;   ///< an execution space that is not the host's
};

/// The way in which a layer is to compute.
struct LayerUse {
  int tensor = 1;   ///< ranks that share its work
  int context = 1;  ///< ranks that share its sequences' tokens
  int expert = 1;   ///< replicas that divide its experts
  ContextMode context_mode = ContextMode::ring;
  bool sequence_parallel = false;
  bool decode = false;
  bool devices = false;
  bool prefixes = true;        ///< the samples have prefixes
  bool predicts_next = false;  ///< each token's row is to predict the token after it, in training
};

/// The work that a layer's cost is asked for.
struct LayerLoad {
  double tokens = 1;    ///< tokens of the stack, and as many of its encoder output
  double sequence = 0;  ///< tokens of a sentence; 0: they are not known, and attention scores count as nothing
  DType dtype = DType::float32;
  Side side = Side::source;  ///< the stack's side, whatever the caller says; the target's tokens are causal by default
  std::string path = {};     ///< the sublayer's, whatever the caller says: "decoder.layers.0.self_attention"
};

/// A configuration by which a layer is checked (checks/check.hpp).
struct LayerTrial {
  std::string name;                            ///< "windows of 2"
  std::function<void(ModelConfig&)> set = {};  ///< changes keys: d_model is 6, d_ff 8, heads 2; null: none
  std::vector<std::pair<std::string, OptionValue>> options = {};
};

/// All that a layer declares before it is built.
struct LayerTraits {
  std::vector<OptionDescription> options = {};  ///< the options that the configuration may give it
  LayerCapabilities capabilities = {};
  /// The sublayer applies LayerSpec::positions. A stack whose positions act in attention needs such a sublayer.
  bool takes_positions = false;
  /// The sublayer is attention, which recompute = "attention" computes again in the backward pass.
  bool attends = false;
  /// The cost of a forward pass on all ranks together, by the cost functions of the operations that it calls. A
  /// backward pass counts as twice that; where it has less to do, as for frozen weights, the cost is a third of both
  /// passes (projection_cost). Not given: two products with a parameter of [d_model, d_ff].
  std::function<Cost(ModelConfig const& keys, LayerOptions const& options, LayerLoad const& load)> cost = {};
  /// The reason, with the key, why a layer with these keys and options does not support a use that its capabilities
  /// allow; null where it does. Not given: it supports every such use.
  std::function<std::optional<std::string>(ModelConfig const& keys, LayerOptions const& options, LayerUse const& use)>
      unsupported_reason = {};
  /// The fields of samples besides token ids that a layer with these options reads in training. Not given: none.
  std::function<SampleFields(LayerOptions const& options)> fields = {};
  std::vector<LayerTrial> trials = {};  ///< empty: one, without options
};

/// The cost of y = x Wᵀ with W [outputs, inputs].
Cost linear_cost(LayerLoad const& load, std::int64_t inputs, std::int64_t outputs);

/// The cost of a Linear with the parameter NAME.weight [outputs, inputs], "decoder.layers.0.self_attention.q.weight",
/// and of its adapter, where it has one: a third of what training computes, which for a frozen weight lacks the product
/// for its gradient.
Cost projection_cost(ModelConfig const& keys, LayerLoad const& load, std::string const& name, std::int64_t inputs,
                     std::int64_t outputs);

/// The reason why the tensor group's ranks cannot share a key's value evenly, with the sizes of the group that can;
/// null where they share it evenly.
std::optional<std::string> uneven_over_tensor(std::string const& key, std::int64_t count, LayerUse const& use);

/// The numbers that divide `number`: "1, 2, 4 and 8".
std::string list_divisors(std::int64_t number);

}  // namespace heddle
