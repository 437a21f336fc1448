#pragma once

#include <heddle/core/layers/linear.hpp>
#include <heddle/core/layers/norm.hpp>
#include <heddle/core/layers/tensor_region.hpp>
#include <heddle/core/operations/activation.hpp>
#include <heddle/core/operations/divergence.hpp>
#include <heddle/core/operations/gemm.hpp>
#include <heddle/core/operations/softmax_cross_entropy.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <optional>
#include <span>
#include <vector>

namespace heddle {

/// norm(activation(W x + b)) of the stream before the output projection (Devlin et al. 2019): `output.transform.weight`
/// [d_model, d_model] and `.bias`, then `output.norm`. The activation is the function of model.activation without its
/// gate. Every tensor rank has all of it and does its rows of the stream; nothing is collective.
class OutputTransform {
 public:
  explicit OutputTransform(LayerSpec const& spec);

  struct Activations {
    Tensor input;
    Tensor projected;
    Tensor activated;
    Norm::Activations norm;
  };
  /// x [rows, d_model] → the same shape, from the arena.
  Tensor forward(LayerContext& context, Tensor const& x, Activations& activations) const;
  /// Overwrites `grad`, the gradient of forward's result, with its input's gradient; parameter gradients +=. The model
  /// part reports when they are done.
  void backward(LayerContext& context, Tensor const& grad, Activations const& activations) const;

 private:
  std::string function_;
  Linear projection_;
  std::shared_ptr<Activation> activation_;
  Norm norm_;
  std::shared_ptr<TensorOps> tensor_ops_;
};

/// Sums over the rows that are to predict a token, end tokens included.
struct LossSums {
  double smoothed = 0;                 ///< label-smoothed cross-entropy with the z-loss, times the row's weight
  double negative_log_likelihood = 0;  ///< natural log, times the row's weight
  std::int64_t tokens = 0;             ///< the number of these rows
  std::int64_t correct = 0;            ///< rows where no token is likelier than the target; only without gradients

  LossSums& operator+=(LossSums const& more);
};

/// From tensors of sums [n, SoftmaxCrossEntropy::sums_size] that OutputLoss::evaluate has added to. Waits for them.
std::vector<LossSums> fetch_loss_sums(Tensor const& sums);

/// The output projection for some of the vocabulary's tokens: copies of their rows and biases.
struct OutputSelection {
  /// Tokens of one product: a token's logit does not depend on the number of selected tokens.
  static constexpr std::int64_t block = 512;

  Tensor table{};           ///< [at least `tokens`, d_model]
  Tensor bias{};            ///< [at least `tokens`], or empty
  std::int64_t tokens = 0;  ///< a multiple of `block`
  WeightVersion version{};
};

/// Output projection and label-smoothed cross-entropy in one, for one chunk of tokens after the other, so that logits
/// exist only for one chunk. With model.output_transform an OutputTransform comes first, with model.output_bias a
/// parameter output.bias is added to the logits, and model.logit_cap caps them (Gemma Team 2024). The vocabulary is
/// split over the tensor group, over which every call is collective: its ranks exchange four values per token, never
/// logits, and all know the loss.
class OutputLoss {
 public:
  /// `table` [vocabulary, d_model] may be the embedding's table.
  OutputLoss(LayerSpec const& spec, Parameter& table);

  /// A teacher's output projection, and its input: the teacher's stream of the same rows.
  struct Teacher {
    OutputLoss const* projection;
    Tensor hidden;
  };
  struct Training {
    double label_smoothing = 0;
    double scale = 1;  ///< factor of the gradient: 1 / target tokens of the global batch; 0: none is wanted
    /// float64, SoftmaxCrossEntropy::sums_size elements in kernels' memory: the losses are added (+=). Empty: they are
    /// not wanted.
    Tensor sums{};
    double z_loss = 0;  ///< coefficient of log²Z (SoftmaxCrossEntropyCall)
    /// Above 0: the second half of the rows are the first half's in another pass (add_second_pass), and each pair's
    /// smoothed losses have r_drop / 2 times their Divergence more (R-Drop: Wu et al. 2021).
    double r_drop = 0;
    /// = [the stream's rows, 2] in statistics_dtype: each row's smoothed and plain loss. Empty: not wanted.
    Tensor row_losses{};
    /// The smoothed losses are (1 - teacher_weight) times themselves plus teacher_weight times the mean over these
    /// teachers of KL(teacher's distribution || this one's), over the whole vocabulary. Only with a gradient.
    std::span<Teacher const> teachers{};
    double teacher_weight = 0;
  };
  /// The loss of hidden [stream rows, d_model] and, in the same pass, grad_hidden = scale * d(smoothed
  /// loss + z-loss)/d(hidden); the gradients of table and bias are added (+=). With an empty grad_hidden only the loss.
  /// Does not wait for the kernels. Collective over the tensor group.
  void evaluate(LayerContext& context, Tensor const& hidden, RowTargets const& targets, Training const& training,
                Tensor const& grad_hidden) const;
  /// hidden [rows, d_model] → logits [rows, this rank's part of the vocabulary] in statistics_dtype, from the arena:
  /// logits for ranking are not rounded.
  Tensor logits(LayerContext& context, Tensor const& hidden) const;
  /// The same for the tokens of a selection: [rows, selection.tokens].
  Tensor logits(LayerContext& context, Tensor const& hidden, OutputSelection const& selection) const;
  /// Selects the tokens with these ids, int32 [a multiple of OutputSelection::block], of a vocabulary that is not
  /// split.
  void select(LayerContext& context, Tensor const& ids, OutputSelection& selection) const;
  /// The number of tokens whose logits exist at once: 256 on the host, where they stay in the cache, or
  /// device_chunk_tokens.
  static std::int64_t chunk_tokens(std::int64_t vocabulary, int ranks, DType dtype);
  /// The number of tokens whose logits a device has at once, up to 512 MiB of them: it needs many rows to be busy.
  /// Equal on all `ranks` that share a vocabulary, also where their parts are not, because they reduce each chunk
  /// together.
  static std::int64_t device_chunk_tokens(std::int64_t vocabulary, int ranks, DType dtype);
  /// The global id of the logits' first column.
  std::int64_t first_token() const { return table_.global_offset(0); }

 private:
  /// evaluate without the transform: `hidden` is its output.
  void evaluate_transformed(LayerContext& context, Tensor const& hidden, RowTargets const& targets,
                            Training const& training, Tensor const& grad_hidden) const;
  /// Rows of the whole side, on every tensor rank.
  struct Stream {
    Tensor hidden;       ///< [rows, d_model]
    Tensor grad_hidden;  ///< as hidden; empty: no gradient is wanted
    RowTargets targets;
    std::vector<Teacher> teachers = {};  ///< their outputs, transformed
  };
  static Stream rows_of(Stream const& stream, std::int64_t begin, std::int64_t count);
  /// evaluate_transformed of the gathered rows, where r_drop is 0.
  void evaluate_pass(LayerContext& context, Stream const& stream, Training const& training) const;
  /// The same where r_drop is above 0. Throws Error for an odd number of rows.
  void evaluate_passes(LayerContext& context, Stream const& stream, Training const& training) const;
  void evaluate_pairs(LayerContext& context, std::array<Stream, 2> const& passes, Training const& training,
                      std::array<Tensor, 2> const& row_losses) const;
  /// The gradients of hidden rows, table and bias from that of their logits.
  void add_gradients(LayerContext& context, Tensor const& grad_logits, Tensor const& hidden,
                     Tensor const& grad_hidden) const;
  Tensor transformed(LayerContext& context, Tensor const& hidden) const;
  Tensor logits(LayerContext& context, Tensor const& hidden, DType dtype) const;
  SoftmaxCrossEntropyCall call(Tensor const& logits, RowTargets const& targets, Training const& training) const;
  /// The weights in the dtype of the statistics.
  RowTargets converted(LayerContext& context, RowTargets const& targets, DType dtype) const;
  /// The loss of a chunk and, where it has a grad_hidden, the loss's gradient in place of the logits.
  void evaluate_chunk(LayerContext& context, Stream const& chunk, SoftmaxCrossEntropyCall const& call,
                      Training const& training) const;
  /// Column 0 of the losses becomes what it is with the chunk's teachers. Returns the gradient of their part with
  /// respect to the logits, from the arena; empty without teachers.
  Tensor teach(LayerContext& context, Stream const& chunk, SoftmaxCrossEntropyCall const& call,
               Tensor const& chunk_statistics, Training const& training, Tensor const& losses) const;
  /// The factor of the cross-entropy's gradient.
  static double cross_entropy_scale(Training const& training);
  /// From the arena; empty where the model caps no logits.
  Tensor copy_if_capped(LayerContext& context, Tensor const& logits) const;
  /// The statistics over the whole vocabulary, [tokens, 4].
  Tensor statistics(LayerContext& context, SoftmaxCrossEntropyCall const& call) const;

  Communicator tensor_;
  TensorRegion region_;
  Parameter& table_;
  std::optional<OutputTransform> transform_;
  Parameter* bias_ = nullptr;  ///< [vocabulary], where the model has one
  double cap_;                 ///< 0: none
  std::int64_t chunk_tokens_;
  std::shared_ptr<Gemm> gemm_;
  std::shared_ptr<TensorOps> tensor_ops_;
  std::shared_ptr<SoftmaxCrossEntropy> cross_entropy_;
  std::shared_ptr<Divergence> divergence_;
};

}  // namespace heddle
