#pragma once

#include <any>
#include <cstdint>
#include <heddle/core/base/random.hpp>
#include <heddle/core/config/model_config.hpp>
#include <heddle/core/operations/dropout.hpp>
#include <heddle/core/operations/registry.hpp>
#include <heddle/core/operations/work_observer.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/parameters/parameter.hpp>
#include <heddle/core/tensor/arena.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace heddle {

class AttentionPositions;
class DeferredGradients;

/// The tensors that travel from layer to layer. `encoder_output` is the output of the stack before this one (in a
/// decoder, the encoder's); if there is none, it is empty.
struct HiddenStates {
  Tensor hidden;          ///< [tokens, d_model]
  Tensor encoder_output;  ///< [tokens of that stack, its d_model] or empty
};

/// This rank's share of the stream's rows in training.
GroupMember row_split_of(ParallelState const& parallel);

/// The surroundings of a layer's computation: one per micro-batch in flight.
struct LayerContext {
  Execution& execution;
  Arena& arena;  ///< outputs and saved activations; released when the micro-batch's backward is done
  Pack const& pack;
  bool training = false;   ///< dropout is applied
  std::uint64_t seed = 0;  ///< of the run's random numbers
  std::uint32_t step = 0;
  /// This rank holds share(rows, rank, ranks) of the residual stream: all rows, unless the ranks of a tensor group
  /// divide them (sequence parallelism). Never set in generation.
  GroupMember row_split{};
  /// Set in the step's last micro-batch if gradients are reduced during the backward pass.
  GradientProgress* gradients = nullptr;
  /// Set in a backward pass whose gradients of weights are computed later.
  DeferredGradients* deferred = nullptr;
  /// Set where replicas divide the values of some units. ModelChunk and ResidualStack gather them for the layers.
  ParameterAccess* access = nullptr;
  /// A layer with an auxiliary loss adds (+=) it to element 0 of `loss_sums` (float64, in kernels' memory), where that
  /// is not empty, and in the backward pass `loss_scale` times its gradient to the gradients that the layer computes.
  /// ModelChunk sets both for its layers, the sums in the first forward pass only: what is recomputed counts once. The
  /// loss is a sum over this rank's tokens, as the cross-entropy is. Stages, data and context ranks are added up,
  /// tensor ranks are not: each adds the whole loss, and where row_split divides the rows, sums its part over the group
  /// first. The training loss contains it; validation measures the negative log-likelihood (element 1), which does not.
  Tensor loss_sums{};
  double loss_scale = 0;

  /// The context of a stack of that grid, with the pack's source and the share of rows there; of a pack that is not
  /// divided for two grids, this one. `parallel` has both grids.
  LayerContext in_grid(ParallelState const& parallel, Grid grid) const;
  /// The layer that owns these parameters has added all its parts of their gradients; its stack or model part reports
  /// this.
  void uses_done(std::span<Parameter const* const> parameters) const;
  /// Must be called between pieces of work of a backward pass.
  void progress() const;
  /// Enclose a use of the unit's parameters; `gradient`: that computes their gradients, too.
  void begin_use(ParameterUnit& unit, bool gradient) const;
  void end_use(ParameterUnit& unit) const;
  /// The parameter's gradient, to be added to. If it is frozen, memory of the arena with any content: for kernels that
  /// compute small gradients together with others. Products are left out instead: Parameter::gradient is empty.
  Tensor gradient_of(Parameter const& parameter) const;
};

/// A value of any type that a layer defines. It is replaced where it stands, so that micro-batch after micro-batch uses
/// the same memory.
class TypedSlot {
 public:
  template <class Value>
  Value const& keep(Value value) {
    if (Value* const last = std::any_cast<Value>(&value_)) {
      return *last = std::move(value);
    }
    return value_.emplace<Value>(std::move(value));
  }
  /// The value that was kept last, to be overwritten, or a new one.
  template <class Value>
  Value& renew() {
    Value* const last = std::any_cast<Value>(&value_);
    return last != nullptr ? *last : value_.emplace<Value>();
  }
  /// Throws std::bad_any_cast if the stored value has another type.
  template <class Value>
  Value const& get() const {
    return std::any_cast<Value const&>(value_);
  }
  template <class Value>
  Value& get() {
    return std::any_cast<Value&>(value_);
  }
  bool empty() const { return !value_.has_value(); }

 private:
  std::any value_;
};

/// The values that a forward call keeps for its backward call, one per micro-batch.
class Saved : public TypedSlot {};

/// Rows of a cache that a step of decoding writes.
struct CacheRows {
  std::int64_t count = 0;  ///< of all rows of the cache; where it grows the other rows keep their content
  Tensor written{};        ///< int32: the row for each new one, in their order
};

/// One step of incremental decoding of some of the live hypotheses. Either all of them are new and get the tokens of
/// their prompts, or each gets one new token. The new tokens are the rows of a layer's input, hypothesis after
/// hypothesis. A hypothesis keeps its places in the caches until it leaves, or is copied.
struct DecodeStep {
  bool first = false;        ///< the hypotheses are new
  Sequences queries;         ///< hypothesis i's rows
  Sequences keys;            ///< hypothesis i's tokens in a cache of tokens, with the new ones
  Sequences encoder_output;  ///< hypothesis i's source sentence in a cache of the encoder output
  Tensor position{};         ///< int32 [rows]
  CacheRows tokens{};        ///< for the rows of new tokens
  /// int32, equal lengths; may be empty. Before the step row copies[i] of a cache of tokens becomes a copy of row
  /// copied[i]. No row is in both.
  Tensor copied{}, copies{};
  CacheRows encoder_rows{};  ///< for the rows of the stream's encoder output, which only a first step has
  /// For states, one row a hypothesis: row previous_state[i] (int32; not read in a first step) has the state of its
  /// earlier tokens. Rows are read before others are written.
  CacheRows states{};
  Tensor previous_state{};

  std::int64_t hypotheses() const { return queries.count; }
};

/// The state of a layer between two steps of decoding: keys and values of the tokens so far, for example. It lives as
/// long as the search, so its tensors own their memory and do not come from an arena.
class DecodeCache : public TypedSlot {};

/// A branch of the residual stream: forward and backward side by side. Layers do not change except for their
/// parameters; a call keeps in `saved` what its backward call needs. Over a tensor group `hidden` is the same on every
/// rank, or this rank's rows (context.row_split): a layer that splits its work or combines tokens uses a TensorRegion.
/// `encoder_output` is already inside that region: whole, and its gradient is this rank's part of a sum.
class Layer {
 public:
  virtual ~Layer() = default;

  /// The branch's output in `hidden`; `encoder_output` is passed on. Same shapes as the input.
  virtual HiddenStates forward(LayerContext& context, HiddenStates const& input, Saved& saved) const = 0;

  /// grad_output.hidden is the gradient of forward's `hidden`; returns the input's. A layer that reads the encoder
  /// output adds its gradient into grad_output.encoder_output (+=), which is passed on. Parameter gradients are added
  /// (+=).
  virtual HiddenStates backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const = 0;

  /// Computes forward for the new tokens, [rows, d_model], with what earlier steps left in `cache`, at the places that
  /// `step` gives. Tokens of a prompt are a prefix, which all of them see under a prefix mask. A layer that treats rows
  /// independently needs no code beyond this default.
  virtual HiddenStates decode(LayerContext& context, HiddenStates const& input, DecodeStep const& /*step*/,
                              DecodeCache& /*cache*/) const {
    Saved saved;
    return forward(context, input, saved);
  }

  /// Takes part in the collectives over replicas that others' forward or backward call makes, for a micro-batch that
  /// this replica does not have. `context` has no pack. `saved` is one for both directions.
  virtual void attend(LayerContext& /*context*/, Direction /*direction*/, Saved& /*saved*/) const {}
};

/// The description that a layer is built from. Parameters are declared under `name`, so code, config and checkpoint
/// agree. `model` has the keys resolved for this layer.
struct LayerSpec {
  std::string name;  ///< for example "encoder.layers.0.self_attention"
  Side side = Side::source;
  ModelConfig const& model;
  DType dtype = DType::float32;
  KernelSource kernels;
  ParallelState const& parallel;
  ParameterSet& parameters;
  LayerOptions options = {};  ///< checked against the layer's declaration
  /// The side whose tokens the encoder output has; none if the stack has no encoder output.
  std::optional<Side> encoder_side = Side::source;
  /// Shared by the layers of the stack; null where positions do not act in attention.
  std::shared_ptr<AttentionPositions> positions = nullptr;
  /// For an input that embeds tokens: [vocabulary, d_model], reserved for it and others; it adds its use. Otherwise
  /// null.
  Parameter* table = nullptr;

  bool has_encoder_output() const { return encoder_side.has_value() && *encoder_side != side; }
  /// The gradient_partial_over of a parameter that is applied to the rows of the stream.
  MeshAxes stream_axes() const { return parallel.sequence_parallel ? MeshAxes{MeshAxis::tensor} : MeshAxes(); }
  LayerSpec named(std::string new_name) const { return with_keys(std::move(new_name), model); }
  LayerSpec with_keys(std::string new_name, ModelConfig const& keys) const {
    return of(std::move(new_name), keys, parallel);
  }
  LayerSpec in_grid(Grid grid) const { return of(name, model, parallel.of(grid)); }

 private:
  LayerSpec of(std::string new_name, ModelConfig const& keys, ParallelState const& state) const {
    return {std::move(new_name), side,    keys,         dtype,     kernels, state,
            parameters,          options, encoder_side, positions, table};
  }
};

/// The dropout of one place in the model, for all of a side's rows; inactive outside training.
Dropout make_dropout(LayerContext const& context, double rate, std::string_view name, Side side);
/// The dropout of one place in the model, for the rows of the residual stream that this rank holds.
Dropout make_stream_dropout(LayerContext const& context, double rate, std::string_view name, Side side);

}  // namespace heddle
