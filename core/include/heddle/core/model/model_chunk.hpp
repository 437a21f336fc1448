#pragma once

#include <deque>
#include <heddle/core/layers/output_loss.hpp>
#include <heddle/core/layers/stack_input.hpp>
#include <heddle/core/model/description.hpp>
#include <heddle/core/model/pipeline_plan.hpp>
#include <heddle/core/model/residual_stack.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <optional>

namespace heddle {

class GridChange;
class Teacher;

/// Vocabularies, in pieces. `joint`: both sides use one, so tied embeddings are one table.
struct VocabularySizes {
  std::int64_t source = 0;
  std::int64_t target = 0;
  bool joint = false;
};

/// A contiguous range of the one list of layers, with the input of a stack whose entry it has, and output
/// projection and loss where it has the last layer. From part to part travel, inside a stack, `hidden` (its stream)
/// and, where the stack has one, `encoder_output` (the output of the stack before it); between two stacks, only
/// `encoder_output`.
///
/// Every call is collective over the tensor and context groups.
class ModelChunk {
 public:
  /// Declares its parameters in the set of `spec`, of which name, side and encoder_side are not read. `plan` says which
  /// stages share a table.
  ModelChunk(LayerSpec const& spec, LayerRegistry const& registry, ModelDescription const& description,
             VocabularySizes const& vocabulary, PipelinePlan const& plan, IndexRange const& layers);
  ~ModelChunk();

  /// `input` is the previous part's output; empty for the first. Returns what the next part takes; of the last part
  /// `hidden` before the output projection. The last part adds the losses to training.sums and, for training, computes
  /// their gradient at once, so that its backward may follow.
  HiddenStates forward(LayerContext& context, HiddenStates const& input, Saved& saved,
                       OutputLoss::Training const& training) const;
  /// `grad_output`: the gradient of forward's stream, overwritten; empty for the last part. Returns the input's, with
  /// the same fields as the input; parameter gradients +=.
  HiddenStates backward(LayerContext& context, HiddenStates const& grad_output, Saved const& saved) const;

  /// Tensors from the arena for the input that the previous part sends; fields that it does not send are empty.
  HiddenStates allocate_input(LayerContext& context) const { return allocate_boundary(context, layers_.begin); }
  /// Tensors from the arena for the gradient that the next part sends back.
  HiddenStates allocate_grad_output(LayerContext& context) const { return allocate_boundary(context, layers_.end); }

  /// From now on the loss has the teachers' part, with this weight (OutputLoss::Training). They must outlive the part.
  void set_teachers(std::vector<Teacher const*> teachers, double weight);

  /// Gathers what a pass of forward (`training`: with the loss's gradient) or of backward uses, as the pass itself
  /// does, and computes only what layers do for other replicas (Layer::attend): for a replica that has no micro-batch
  /// where others have one. `context` has no pack.
  void attend(LayerContext& context, Direction direction, bool training, Saved& saved) const;

  /// Notifies of each layer, with inputs and output; null: no observer.
  void observe(WorkObserver* observer);

  IndexRange const& layers() const { return layers_; }
  /// True if this part computes the loss and the logits.
  bool ends_model() const { return output_.has_value(); }

  /// The layers that this part has of a stack.
  struct Stack {
    std::size_t index = 0;  ///< in the model
    Side side = Side::source;
    std::optional<Side> encoder_side;
    bool begins = false;  ///< the stack's entry is here: its input
    bool ends = false;
    std::unique_ptr<StackInput> input;
    ResidualStack layers;
    std::string input_name;  ///< for observers
    std::vector<Parameter const*> input_parameters = {};
    ParameterUnit* table = nullptr;  ///< of the input; null: it embeds no tokens
    Grid grid = Grid::decoder;
    Grid input_grid = Grid::decoder;  ///< the decoder's where the input uses a table of the last stack
  };
  /// The stack of that index; null if this part has no layer of it.
  Stack const* stack(std::size_t index) const;

  /// The new tokens of a step, and the states of the previous part: the encoder output, where the stack has one,
  /// and `hidden`, which is not read where this part begins the stack.
  struct DecodeInput {
    TokenIds const& tokens;
    TokenRows const& rows;
    HiddenStates previous;
  };

  /// forward without a backward pass, of a part that is the whole model: hidden [rows, d_model] before the output
  /// projection, from the arena.
  Tensor infer(LayerContext& context) const;
  OutputLoss const& output() const { return *output_; }

  /// The pieces by themselves, for generation and tests. `encode`: the layers that this part has of a stack without
  /// encoder output, over the pack; `hidden` is not read where this part begins the stack.
  Tensor encode(LayerContext& context, Stack const& stack, Tensor const& hidden) const;
  /// The layers of a stack over a step's new tokens → [rows.tokens, d_model], from the arena.
  Tensor decode(LayerContext& context, Stack const& stack, DecodeInput const& input, DecodeStep const& step,
                std::vector<DecodeCache>& caches) const;
  /// hidden [rows, d_model] after the last layer → logits [rows, this rank's part of the vocabulary], from the arena.
  Tensor logits(LayerContext& context, Tensor const& hidden) const { return output_->logits(context, hidden); }
  /// The same for the tokens of a selection.
  Tensor logits(LayerContext& context, Tensor const& hidden, OutputSelection const& selection) const {
    return output_->logits(context, hidden, selection);
  }
  void select_outputs(LayerContext& context, Tensor const& ids, OutputSelection& selection) const {
    output_->select(context, ids, selection);
  }
  std::int64_t first_logit() const { return output_->first_token(); }
  /// The rows of the last stack. Throws Error if the pack has no tokens for them to predict.
  std::int64_t output_rows(Pack const& pack) const;
  /// int32 [those rows]: their samples.
  Tensor const& output_samples(Pack const& pack) const { return pack.rows(extents_.back().side).sample; }

 private:
  struct Extent {
    IndexRange layers;
    Side side = Side::source;
    std::int64_t d_model = 0;
    Grid grid = Grid::decoder;
  };
  LayerContext in_grid(LayerContext const& context, Grid grid) const { return context.in_grid(parallel_, grid); }
  /// A stack's input in the stack's grid, and the way back of its gradient.
  Tensor enter(LayerContext& context, Stack const& stack, Saved& saved) const;
  void leave(LayerContext& context, Stack const& stack, Tensor const& grad_hidden, Saved const& saved) const;
  /// The output of a stack, or its gradient, from the grid of one stack to that of the next, or back.
  Tensor passed_on(LayerContext const& context, Stack const& stack, Tensor const& stream, Direction direction) const;
  /// The loss of the last layer's output, with the teachers' part where there is a gradient.
  void evaluate(LayerContext& context, Tensor const& hidden, OutputLoss::Training training,
                Tensor const& grad_hidden) const;
  HiddenStates allocate_boundary(LayerContext& context, std::int64_t layer) const;
  /// The uses of units in a pass, see ParameterAccess::begin.
  std::vector<UnitUse> uses(Direction direction, bool training) const;
  /// A tensor from the arena for a stack's stream, in its grid or another.
  Tensor allocate_stream(LayerContext& context, Extent const& stack, Grid grid) const;

  ParallelState parallel_;  ///< with both grids
  IndexRange layers_;
  std::vector<Extent> extents_;              ///< of all the model's stacks
  std::unique_ptr<GridChange> grid_change_;  ///< of the last stack's encoder output; null in a model of one stack
  DType dtype_;
  std::deque<Stack> stacks_;
  std::optional<OutputLoss> output_;
  ParameterUnit* output_table_ = nullptr;
  std::vector<Parameter const*> output_parameters_;
  std::vector<Teacher const*> teachers_;
  double teacher_weight_ = 0;
  std::shared_ptr<TensorOps> tensor_ops_;
  WorkObserver* observer_ = nullptr;
};

}  // namespace heddle
