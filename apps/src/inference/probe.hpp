#pragma once

#include <cstdint>
#include <heddle/core/model/description.hpp>
#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/embedding.hpp>
#include <heddle/core/operations/registry.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// The attention weights of one sequence, before dropout.
struct SequenceAttention {
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  std::vector<double> weights;  ///< [heads, queries, keys]
};

/// The weights of every sequence of a call. `attention` computes them in `dtype`, which is float32 or float64, from the
/// call's queries and keys, with values whose column j of each head is 1 only for the j-th key, so that the output
/// consists of weights. They include the call's masks, biases and kind of scores. The call must not accumulate, and has
/// no state. A pass yields as many keys as a head has columns: the time grows with the cube of the length.
std::vector<SequenceAttention> attention_weights(Execution& execution, Attention& attention, AttentionCall const& call,
                                                 DType dtype = DType::float64);
/// The same in float32 by the fastest of `kernels`, which takes a fraction of the reference's time.
std::vector<SequenceAttention> attention_weights(Execution& execution, KernelRegistry<Attention> const& kernels,
                                                 AttentionCall const& call);

/// A call of an attention sublayer.
struct ObservedAttention {
  std::int64_t heads = 0;
  AttentionMask mask;
  std::vector<double> bias = {};  ///< AttentionCall::bias; empty: none
  std::vector<SequenceAttention> sequences = {};
};

/// An implementation of attention that records the weights of its calls between start() and stop(): the reference,
/// which computes them in float64, or the fastest of several, which computes them in float32.
class AttentionProbe final : public Attention {
 public:
  static constexpr char const* name = "probe";

  explicit AttentionProbe(std::shared_ptr<Attention> reference) : reference_(std::move(reference)) {}
  /// The fastest of `kernels`, which include the reference.
  explicit AttentionProbe(KernelRegistry<Attention> const& kernels)
      : reference_(std::static_pointer_cast<Attention>(kernels.find("reference"))), kernels_(kernels) {}

  void start() { calls_.emplace(); }
  /// The calls since start().
  std::vector<ObservedAttention> stop();

  bool supports(AttentionProblem const& problem) const override { return reference_->supports(problem); }
  void forward(Execution& execution, AttentionCall const& call, Tensor const& output,
               Tensor const& log_sum_exp) override;
  void backward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp,
                Tensor const& grad_output, AttentionGradients const& gradients) override;

 private:
  std::shared_ptr<Attention> reference_;
  std::optional<KernelRegistry<Attention>> kernels_;
  std::optional<std::vector<ObservedAttention>> calls_;
};

/// The reference implementation of the embedding, which also keeps the positions that it adds.
class EmbeddingProbe final : public Embedding {
 public:
  static constexpr char const* name = "probe";

  explicit EmbeddingProbe(std::shared_ptr<Embedding> reference) : reference_(std::move(reference)) {}

  /// EmbeddingCall::positions of each call since the previous take().
  std::vector<Tensor> take() { return std::exchange(positions_, {}); }

  bool supports(EmbeddingProblem const& problem) const override { return reference_->supports(problem); }
  void forward(Execution& execution, EmbeddingCall const& call, Tensor const& output) override;
  void backward(Execution& execution, EmbeddingCall const& call, Tensor const& grad_output, Tensor const& grad_table,
                Tensor const& grad_positions) override;

 private:
  std::shared_ptr<Embedding> reference_;
  std::vector<Tensor> positions_;
};

/// Adds a probe to the registry of its operation and makes it the choice there.
template <class Interface, class Probe>
void install_probe(KernelRegistries& kernels, KernelChoices& choices, std::shared_ptr<Probe> const& probe) {
  kernels.of<Interface>().add(Probe::name, 0, probe);
  choices.choose(Interface::operation, Probe::name);
}
/// The same with a new probe of the reference.
template <class Probe, class Interface>
std::shared_ptr<Probe> install_probe(KernelRegistries& kernels, KernelChoices& choices) {
  auto const reference = std::static_pointer_cast<Interface>(kernels.of<Interface>().find("reference"));
  auto probe = std::make_shared<Probe>(reference);
  install_probe<Interface>(kernels, choices, probe);
  return probe;
}

/// An attention sublayer of a model.
struct AttentionSublayer {
  std::string path;  ///< "decoder.layers.0.cross_attention"
  Side queries = Side::source;
  Side keys = Side::source;
  bool guided = false;  ///< trained with guided alignment
};
/// The model's attention sublayers in the order in which a forward pass calls the kernel.
std::vector<AttentionSublayer> attention_sublayers(ModelDescription const& model);

}  // namespace heddle
