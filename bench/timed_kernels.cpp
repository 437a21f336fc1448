#include "timed_kernels.hpp"

#include <fmt/format.h>

#include <initializer_list>
#include <type_traits>
#include <utility>

namespace heddle {

namespace {

double bytes_of(std::initializer_list<Tensor> tensors) {
  std::int64_t bytes = 0;
  for (Tensor const& tensor : tensors) {
    bytes += tensor.bytes();
  }
  return static_cast<double>(bytes);
}

/// What every decorator has: whom it stands for and where it reports to. A decorator overrides every method of its
/// interface, those with a default, too: the default would make do with the others where the implementation has better.
template <class Interface>
class Timed : public Interface {
 public:
  Timed(std::shared_ptr<Interface> kernel, Breakdown& breakdown) : kernel_(std::move(kernel)), breakdown_(breakdown) {}

  bool supports(typename Interface::Problem const& problem) const override { return kernel_->supports(problem); }

 protected:
  /// Counts `call` as "operation: direction".
  template <class Call>
  auto run(Execution& execution, char const* direction, double bytes, Call const& call) {
    Part const part{fmt::format("{}: {}", Interface::operation, direction), ""};
    if constexpr (std::is_void_v<decltype(call())>) {
      breakdown_.run(execution, part, {0, bytes}, call);
    } else {
      decltype(call()) result{};
      breakdown_.run(execution, part, {0, bytes}, [&] { result = call(); });
      return result;
    }
  }

  std::shared_ptr<Interface> kernel_;
  Breakdown& breakdown_;
};

class TimedGemm : public Timed<Gemm> {
 public:
  TimedGemm(std::shared_ptr<Gemm> kernel, Breakdown& breakdown, std::int64_t vocabulary, GemmRecording& recording)
      : Timed(std::move(kernel), breakdown), vocabulary_(vocabulary), recording_(recording) {}

  void multiply(Execution& execution, GemmCall const& call) override {
    if (recording_.on) {
      recording_.products.push_back({kernel_, call});
    }
    GemmProblem const problem = call.problem();
    auto const m = static_cast<double>(problem.m);
    auto const n = static_cast<double>(problem.n);
    auto const k = static_cast<double>(problem.k);
    // b is read as a packed copy in a's type.
    double const bytes = static_cast<double>(size_of(problem.dtype)) * (m * k + k * n) +
                         bytes_of({call.c}) * (problem.accumulate ? 2 : 1);
    breakdown_.run(execution, part_of(problem), {2 * m * n * k, bytes, problem.dtype},
                   [&] { kernel_->multiply(execution, call); });
  }

 private:
  /// The details leave tokens out, of which each micro-batch has others.
  Part part_of(GemmProblem const& problem) const {
    bool const logits = problem.m == vocabulary_ || problem.n == vocabulary_ || problem.k == vocabulary_;
    std::string const name = logits ? "gemm, logits: " : "gemm, linear: ";
    if (problem.transpose_a) {
      return {name + "weight gradient", fmt::format("outputs {}, inputs {}", problem.m, problem.n)};
    }
    if (problem.transpose_b) {
      return {name + "forward", fmt::format("outputs {}, inputs {}", problem.n, problem.k)};
    }
    return {name + "input gradient", fmt::format("outputs {}, inputs {}", problem.k, problem.n)};
  }

  std::int64_t vocabulary_;
  GemmRecording& recording_;
};

/// Pairs of a query and a key that see each other.
double pairs_of(AttentionCall const& call) {
  auto const queries = to_host<std::int32_t>(call.queries.length);
  auto const keys = to_host<std::int32_t>(call.keys.length);
  double pairs = 0;
  for (std::size_t index = 0; index < queries.size(); ++index) {
    double const n = queries[index];
    double const m = keys[index];
    double const full = std::max(m - n, 0.0);
    double const triangle = std::min(n, m);
    pairs += call.causal ? n * full + triangle * (triangle + 1) / 2 : n * m;
  }
  return pairs;
}

class TimedAttention : public Timed<Attention> {
 public:
  using Timed::Timed;

  void forward(Execution& execution, AttentionCall const& call, Tensor const& output,
               Tensor const& log_sum_exp) override {
    // Two products, q kᵀ and weights v, of two operations each.
    Cost const cost{4 * products(call), bytes_of({call.q, call.k, call.v, output, log_sum_exp}), call.q.dtype()};
    breakdown_.run(execution, part(call, "forward"), cost,
                   [&] { kernel_->forward(execution, call, output, log_sum_exp); });
  }

  void backward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp,
                Tensor const& grad_output, AttentionGradients const& gradients) override {
    // Five products: q kᵀ again, and the gradients of weights, v, q and k.
    Cost const cost{10 * products(call),
                    bytes_of({call.q, call.k, call.v, output, log_sum_exp, grad_output}) +
                        bytes_of({gradients.q, gradients.k, gradients.v}) * (call.accumulate ? 2 : 1),
                    call.q.dtype()};
    breakdown_.run(execution, part(call, "backward"), cost,
                   [&] { kernel_->backward(execution, call, output, log_sum_exp, grad_output, gradients); });
  }

 private:
  static Part part(AttentionCall const& call, char const* direction) {
    return {fmt::format("attention: {}", direction), call.causal ? "causal" : "not causal"};
  }
  static double products(AttentionCall const& call) { return pairs_of(call) * static_cast<double>(call.q.dim(1)); }
};

class TimedResidualNorm : public Timed<ResidualNorm> {
 public:
  using Timed::Timed;

  void forward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output) override {
    double const bytes =
        bytes_of({call.residual, call.branch, output.sum, output.normalized, output.mean, output.reciprocal_deviation});
    run(execution, "forward", bytes, [&] { kernel_->forward(execution, call, output); });
  }

  void backward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output,
                Tensor const& grad_normalized, Tensor const& grad_sum,
                ResidualNormGradients const& gradients) override {
    double const bytes = bytes_of({output.sum, output.mean, output.reciprocal_deviation, grad_normalized, grad_sum,
                                   gradients.residual, gradients.branch});
    run(execution, "backward", bytes,
        [&] { kernel_->backward(execution, call, output, grad_normalized, grad_sum, gradients); });
  }
};

class TimedActivation : public Timed<Activation> {
 public:
  using Timed::Timed;

  void forward(Execution& execution, ActivationCall const& call, Tensor const& output) override {
    run(execution, "forward", bytes_of({call.input, output}), [&] { kernel_->forward(execution, call, output); });
  }

  void backward(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                Tensor const& grad_input) override {
    run(execution, "backward", bytes_of({call.input, grad_output, grad_input}),
        [&] { kernel_->backward(execution, call, grad_output, grad_input); });
  }
};

class TimedSoftmaxCrossEntropy : public Timed<SoftmaxCrossEntropy> {
 public:
  using Timed::Timed;

  void statistics(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics) override {
    run(execution, "statistics", bytes_of({call.logits, statistics}),
        [&] { kernel_->statistics(execution, call, statistics); });
  }

  void combine(Execution& execution, Tensor const& parts, Tensor const& statistics) override {
    run(execution, "combine", bytes_of({parts, statistics}), [&] { kernel_->combine(execution, parts, statistics); });
  }

  void losses(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics,
              Tensor const& losses) override {
    run(execution, "losses", bytes_of({statistics, losses}),
        [&] { kernel_->losses(execution, call, statistics, losses); });
  }

  void gradient(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics,
                double scale) override {
    run(execution, "gradient", bytes_of({call.logits, call.logits, statistics}),
        [&] { kernel_->gradient(execution, call, statistics, scale); });
  }

  void losses_and_gradient(Execution& execution, SoftmaxCrossEntropyCall const& call, double scale,
                           Tensor const& losses) override {
    run(execution, "losses and gradient", bytes_of({call.logits, call.logits, losses}),
        [&] { kernel_->losses_and_gradient(execution, call, scale, losses); });
  }
};

class TimedEmbedding : public Timed<Embedding> {
 public:
  using Timed::Timed;

  void forward(Execution& execution, EmbeddingCall const& call, Tensor const& output) override {
    // A row of the table for each of the output, or less where tokens repeat.
    run(execution, "forward", bytes_of({output, output}), [&] { kernel_->forward(execution, call, output); });
  }

  void backward(Execution& execution, EmbeddingCall const& call, Tensor const& grad_output, Tensor const& grad_table,
                Tensor const& grad_positions) override {
    run(execution, "backward", bytes_of({grad_output, grad_output, grad_output}),
        [&] { kernel_->backward(execution, call, grad_output, grad_table, grad_positions); });
  }
};

class TimedAdam : public Timed<Adam> {
 public:
  using Timed::Timed;

  void update(Execution& execution, AdamCall const& call) override {
    double const bytes = bytes_of({call.gradient}) + 2 * bytes_of({call.value, call.first_moment, call.second_moment});
    run(execution, "update", bytes, [&] { kernel_->update(execution, call); });
  }
};

class TimedTensorOps : public Timed<TensorOps> {
 public:
  using Timed::Timed;

  void fill(Execution& execution, Tensor const& tensor, double value) override {
    run(execution, "fill", bytes_of({tensor}), [&] { kernel_->fill(execution, tensor, value); });
  }
  void add(Execution& execution, Tensor const& into, Tensor const& from) override {
    run(execution, "add", bytes_of({into, into, from}), [&] { kernel_->add(execution, into, from); });
  }
  void copy(Execution& execution, Tensor const& from, Tensor const& to) override {
    run(execution, "copy", bytes_of({from, to}), [&] { kernel_->copy(execution, from, to); });
  }
  void add_column_sums(Execution& execution, Tensor const& matrix, Tensor const& sums) override {
    run(execution, "column sums", bytes_of({matrix, sums, sums}),
        [&] { kernel_->add_column_sums(execution, matrix, sums); });
  }
  double sum_of_squares(Execution& execution, Tensor const& tensor) override {
    return run(execution, "sum of squares", bytes_of({tensor}),
               [&] { return kernel_->sum_of_squares(execution, tensor); });
  }
  void gather_rows(Execution& execution, Tensor const& from, Tensor const& index, Tensor const& to) override {
    run(execution, "gather rows", bytes_of({to, to, index}), [&] { kernel_->gather_rows(execution, from, index, to); });
  }
};

/// What is selected from now on reports to `breakdown`.
template <class Decorator, class Interface>
void decorate(KernelRegistry<Interface>& registry, Breakdown& breakdown) {
  registry.set_wrapper([&breakdown](typename Interface::Problem const&, std::shared_ptr<Interface> const& selected) {
    return std::make_shared<Decorator>(selected, breakdown);
  });
}

}  // namespace

void time_kernels(KernelRegistries& registries, std::int64_t vocabulary, Breakdown& breakdown,
                  GemmRecording& recording) {
  registries.gemm.set_wrapper(
      [vocabulary, &breakdown, &recording](GemmProblem const&, std::shared_ptr<Gemm> const& selected) {
        return std::make_shared<TimedGemm>(selected, breakdown, vocabulary, recording);
      });
  decorate<TimedAttention>(registries.attention, breakdown);
  decorate<TimedResidualNorm>(registries.residual_norm, breakdown);
  decorate<TimedActivation>(registries.activation, breakdown);
  decorate<TimedSoftmaxCrossEntropy>(registries.softmax_cross_entropy, breakdown);
  decorate<TimedEmbedding>(registries.embedding, breakdown);
  decorate<TimedAdam>(registries.adam, breakdown);
  decorate<TimedTensorOps>(registries.tensor_ops, breakdown);
}

}  // namespace heddle
