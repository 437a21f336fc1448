#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/measure/observer.hpp>
#include <initializer_list>
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

/// What a layer selected, in place of it. A derived class overrides every method of its interface, those with a
/// default, too: the default would make do with the others where the implementation has better.
template <class Interface>
class Observed : public Interface {
 public:
  using Problem = typename Interface::Problem;
  using Entries = std::vector<typename KernelRegistry<Interface>::Entry>;

  /// `supporting`: for `problem`, the fastest by speed first.
  Observed(Problem problem, Entries supporting, std::shared_ptr<Interface> selected, KernelObserver& observer)
      : key_(timing_key(problem)),
        problem_(std::move(problem)),
        supporting_(std::move(supporting)),
        selected_(std::move(selected)),
        observer_(observer) {}

  bool supports(Problem const& problem) const override { return selected_->supports(problem); }

 protected:
  /// `call` makes it by the kernel it is given, and owns its arguments.
  template <class Call>
  void tell(Execution& execution, KernelCall seen, Call const& call) {
    tell(execution, problem_, std::move(seen), call);
  }

  template <class Call>
  void tell(Execution& execution, Problem const& problem, KernelCall seen, Call const& call) {
    seen.operation = Interface::operation;
    seen.key = key_;
    seen.by_speed = supporting_.empty() ? std::string_view() : supporting_.front().name;
    seen.make = [call, kernel = selected_] { call(*kernel); };
    seen.implementations = [&] {
      std::vector<KernelCall::Implementation> all;
      for (auto const& entry : supporting_) {
        if (entry.kernel->supports(problem)) {
          all.push_back({entry.name, entry.speed, [call, kernel = entry.kernel] { call(*kernel); }});
        }
      }
      return all;
    };
    observer_.observe(execution, seen);
  }

 private:
  std::string key_;
  Problem problem_;
  Entries supporting_;
  std::shared_ptr<Interface> selected_;
  KernelObserver& observer_;
};

/// What moves memory only.
KernelCall moving(std::string_view direction, std::string extents, DType dtype, double bytes) {
  KernelCall call;
  call.direction = direction;
  call.extents = std::move(extents);
  call.dtype = dtype;
  call.bytes = bytes;
  return call;
}

class ObservedGemm final : public Observed<Gemm> {
 public:
  using Observed::Observed;

  void multiply(Execution& execution, GemmCall const& call) override {
    GemmProblem const problem = call.problem();
    auto const m = static_cast<double>(problem.m);
    auto const n = static_cast<double>(problem.n);
    auto const k = static_cast<double>(problem.k);
    // b is read as a packed copy in a's type.
    double const bytes = static_cast<double>(size_of(problem.dtype)) * (m * k + k * n) +
                         bytes_of({call.c}) * (problem.accumulate ? 2 : 1);
    std::string_view const product = problem.transpose_a   ? "weight gradient"
                                     : problem.transpose_b ? "forward"
                                                           : "input gradient";
    KernelCall seen =
        moving(product, fmt::format("{} x {} x {}", problem.m, problem.n, problem.k), problem.dtype, bytes);
    seen.variant = problem.accumulate && !problem.transpose_a ? "added" : "";
    seen.flops = 2 * m * n * k;
    seen.gemm = &call;
    tell(execution, problem, std::move(seen), [&execution, call](Gemm& kernel) { kernel.multiply(execution, call); });
  }
};

/// Pairs of a query and a key that see each other where both are parts of longer sequences.
double visible_pairs_by_position(AttentionCall const& call) {
  auto const query_begins = to_host<std::int32_t>(call.queries.begin);
  auto const query_lengths = to_host<std::int32_t>(call.queries.length);
  auto const key_begins = to_host<std::int32_t>(call.keys.begin);
  auto const key_lengths = to_host<std::int32_t>(call.keys.length);
  auto const query_positions = to_host<std::int32_t>(call.query_position);
  auto const key_positions = to_host<std::int32_t>(call.key_position);
  double pairs = 0;
  for (std::size_t index = 0; index < query_lengths.size(); ++index) {
    auto const first = key_positions.begin() + key_begins[index];
    for (std::int32_t row = 0; row < query_lengths[index]; ++row) {
      std::int32_t const position = query_positions[static_cast<std::size_t>(query_begins[index] + row)];
      pairs += static_cast<double>(std::upper_bound(first, first + key_lengths[index], position) - first);
    }
  }
  return pairs;
}

double visible_pairs(AttentionCall const& call) {
  if (call.causal && !call.query_position.empty()) {
    return visible_pairs_by_position(call);
  }
  auto const queries = to_host<std::int32_t>(call.queries.length);
  auto const keys = to_host<std::int32_t>(call.keys.length);
  double pairs = 0;
  for (std::size_t index = 0; index < queries.size(); ++index) {
    double const n = queries[index];
    double const m = keys[index];
    // The last query sees every key, each one before it a key less, and none where there are fewer keys than that.
    double const triangle = std::min(n, m);
    pairs += call.causal ? n * std::max(m - n, 0.0) + triangle * (triangle + 1) / 2 : n * m;
  }
  return pairs;
}

class ObservedAttention final : public Observed<Attention> {
 public:
  using Observed::Observed;

  void forward(Execution& execution, AttentionCall const& call, Tensor const& output,
               Tensor const& log_sum_exp) override {
    double const results = bytes_of({output, log_sum_exp}) * (call.accumulate ? 2 : 1);
    // Two products, q kᵀ and weights v, of two operations each.
    KernelCall seen = seen_of("forward", call, 4, bytes_of({call.q, call.k, call.v}) + results);
    tell(execution, call.problem(), std::move(seen),
         [=, &execution](Attention& kernel) { kernel.forward(execution, call, output, log_sum_exp); });
  }

  void backward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp,
                Tensor const& grad_output, AttentionGradients const& gradients) override {
    double const results = bytes_of({gradients.q, gradients.k, gradients.v}) * (call.accumulate ? 2 : 1);
    // Five products: q kᵀ again, and the gradients of weights, v, q and k.
    KernelCall seen =
        seen_of("backward", call, 10, bytes_of({call.q, call.k, call.v, output, log_sum_exp, grad_output}) + results);
    tell(execution, call.problem(), std::move(seen), [=, &execution](Attention& kernel) {
      kernel.backward(execution, call, output, log_sum_exp, grad_output, gradients);
    });
  }

 private:
  /// `flops`: for each visible pair and column.
  static KernelCall seen_of(std::string_view direction, AttentionCall const& call, double flops, double bytes) {
    KernelCall seen =
        moving(direction, fmt::format("{} on {} tokens", call.q.dim(0), call.k.dim(0)), call.q.dtype(), bytes);
    seen.variant = call.causal ? "causal" : "not causal";
    seen.flops = flops * visible_pairs(call) * static_cast<double>(call.q.dim(1));
    return seen;
  }
};

class ObservedResidualNorm final : public Observed<ResidualNorm> {
 public:
  using Observed::Observed;

  void forward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output) override {
    KernelCall seen = seen_of("forward", call, !output.normalized.empty());
    seen.bytes =
        bytes_of({call.residual, call.branch, output.sum, output.normalized, output.mean, output.reciprocal_deviation});
    tell(execution, call.problem(), std::move(seen),
         [=, &execution](ResidualNorm& kernel) { kernel.forward(execution, call, output); });
  }

  void backward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output,
                Tensor const& grad_normalized, Tensor const& grad_sum,
                ResidualNormGradients const& gradients) override {
    KernelCall seen = seen_of("backward", call, !grad_normalized.empty());
    seen.bytes = bytes_of({output.sum, output.mean, output.reciprocal_deviation, grad_normalized, grad_sum,
                           gradients.residual, gradients.branch});
    tell(execution, call.problem(), std::move(seen), [=, &execution](ResidualNorm& kernel) {
      kernel.backward(execution, call, output, grad_normalized, grad_sum, gradients);
    });
  }

 private:
  static KernelCall seen_of(std::string_view direction, ResidualNormCall const& call, bool norm) {
    KernelCall seen = moving(direction, fmt::format("{} rows", call.residual.dim(0)), call.residual.dtype(), 0);
    seen.variant = call.branch.empty() ? (norm ? "of a norm" : "") : (norm ? "of sum and norm" : "of a sum");
    return seen;
  }
};

class ObservedActivation final : public Observed<Activation> {
 public:
  using Observed::Observed;

  void forward(Execution& execution, ActivationCall const& call, Tensor const& output) override {
    tell(execution, call.problem(), seen_of("forward", call, bytes_of({call.input, output})),
         [=, &execution](Activation& kernel) { kernel.forward(execution, call, output); });
  }

  void backward(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                Tensor const& grad_input) override {
    tell(execution, call.problem(), seen_of("backward", call, bytes_of({call.input, grad_output, grad_input})),
         [=, &execution](Activation& kernel) { kernel.backward(execution, call, grad_output, grad_input); });
  }

 private:
  static KernelCall seen_of(std::string_view direction, ActivationCall const& call, double bytes) {
    return moving(direction, call.input.shape().to_string(), call.input.dtype(), bytes);
  }
};

class ObservedSoftmaxCrossEntropy final : public Observed<SoftmaxCrossEntropy> {
 public:
  using Observed::Observed;

  void statistics(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics) override {
    tell(execution, seen_of("statistics", call.logits, bytes_of({call.logits, statistics})),
         [=, &execution](SoftmaxCrossEntropy& kernel) { kernel.statistics(execution, call, statistics); });
  }

  void combine(Execution& execution, Tensor const& parts, Tensor const& statistics) override {
    tell(execution, seen_of("combine", parts, bytes_of({parts, statistics})),
         [=, &execution](SoftmaxCrossEntropy& kernel) { kernel.combine(execution, parts, statistics); });
  }

  void losses(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics,
              Tensor const& losses) override {
    tell(execution, seen_of("losses", losses, bytes_of({call.targets, statistics, losses})),
         [=, &execution](SoftmaxCrossEntropy& kernel) { kernel.losses(execution, call, statistics, losses); });
  }

  void gradient(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics,
                double scale) override {
    tell(execution, seen_of("gradient", call.logits, bytes_of({call.logits, call.logits, statistics})),
         [=, &execution](SoftmaxCrossEntropy& kernel) { kernel.gradient(execution, call, statistics, scale); });
  }

  void losses_and_gradient(Execution& execution, SoftmaxCrossEntropyCall const& call, double scale,
                           Tensor const& losses) override {
    tell(execution, seen_of("losses and gradient", call.logits, bytes_of({call.logits, call.logits, losses})),
         [=, &execution](SoftmaxCrossEntropy& kernel) { kernel.losses_and_gradient(execution, call, scale, losses); });
  }

 private:
  static KernelCall seen_of(std::string_view direction, Tensor const& tensor, double bytes) {
    return moving(direction, tensor.shape().to_string(), tensor.dtype(), bytes);
  }
};

class ObservedEmbedding final : public Observed<Embedding> {
 public:
  using Observed::Observed;

  void forward(Execution& execution, EmbeddingCall const& call, Tensor const& output) override {
    tell(execution, seen_of("forward", output, bytes_of({output}) + bytes_of_rows(call, output)),
         [=, &execution](Embedding& kernel) { kernel.forward(execution, call, output); });
  }

  void backward(Execution& execution, EmbeddingCall const& call, Tensor const& grad_output, Tensor const& grad_table,
                Tensor const& grad_positions) override {
    tell(execution, seen_of("backward", grad_output, bytes_of({grad_output}) + 2 * bytes_of_rows(call, grad_output)),
         [=, &execution](Embedding& kernel) {
           kernel.backward(execution, call, grad_output, grad_table, grad_positions);
         });
  }

 private:
  static KernelCall seen_of(std::string_view direction, Tensor const& output, double bytes) {
    return moving(direction, output.shape().to_string(), output.dtype(), bytes);
  }
  /// The table's row of each token; less where tokens repeat.
  static double bytes_of_rows(EmbeddingCall const& call, Tensor const& output) {
    return static_cast<double>(output.size()) * static_cast<double>(size_of(call.table.dtype()));
  }
};

class ObservedAdam final : public Observed<Adam> {
 public:
  using Observed::Observed;

  void update(Execution& execution, AdamCall const& call) override {
    double const bytes = bytes_of({call.gradient}) + 2 * bytes_of({call.value, call.first_moment, call.second_moment});
    tell(execution, moving("update", fmt::format("{} elements", call.value.size()), call.value.dtype(), bytes),
         [=, &execution](Adam& kernel) { kernel.update(execution, call); });
  }
};

class ObservedTensorOps final : public Observed<TensorOps> {
 public:
  using Observed::Observed;

  void fill(Execution& execution, Tensor const& tensor, double value) override {
    tell(execution, seen_of("fill", {tensor}),
         [=, &execution](TensorOps& kernel) { kernel.fill(execution, tensor, value); });
  }
  void add(Execution& execution, Tensor const& into, Tensor const& from) override {
    tell(execution, seen_of("add", {into, into, from}),
         [=, &execution](TensorOps& kernel) { kernel.add(execution, into, from); });
  }
  void copy(Execution& execution, Tensor const& from, Tensor const& to) override {
    tell(execution, seen_of("copy", {from, to}),
         [=, &execution](TensorOps& kernel) { kernel.copy(execution, from, to); });
  }
  void add_column_sums(Execution& execution, Tensor const& matrix, Tensor const& sums) override {
    tell(execution, seen_of("column sums", {matrix, sums, sums}),
         [=, &execution](TensorOps& kernel) { kernel.add_column_sums(execution, matrix, sums); });
  }
  double sum_of_squares(Execution& execution, Tensor const& tensor) override {
    auto const sum = std::make_shared<double>();
    tell(execution, seen_of("sum of squares", {tensor}),
         [=, &execution](TensorOps& kernel) { *sum = kernel.sum_of_squares(execution, tensor); });
    return *sum;
  }
  void gather_rows(Execution& execution, Tensor const& from, Tensor const& index, Tensor const& to) override {
    tell(execution, seen_of("gather rows", {to, to, index}),
         [=, &execution](TensorOps& kernel) { kernel.gather_rows(execution, from, index, to); });
  }

 private:
  static KernelCall seen_of(std::string_view direction, std::initializer_list<Tensor> tensors) {
    Tensor const& first = *tensors.begin();
    return moving(direction, first.shape().to_string(), first.dtype(), bytes_of(tensors));
  }
};

template <class Decorator, class Interface>
void decorate(KernelRegistry<Interface>& registry, KernelObserver& observer) {
  registry.set_wrapper([entries = registry.by_speed(), &observer](auto const& problem, auto const& selected) {
    auto supporting = entries;
    std::erase_if(supporting, [&](auto const& entry) { return !entry.kernel->supports(problem); });
    return std::make_shared<Decorator>(problem, std::move(supporting), selected, observer);
  });
}

}  // namespace

void observe_kernels(KernelRegistries& registries, KernelObserver& observer) {
  decorate<ObservedGemm>(registries.gemm, observer);
  decorate<ObservedAttention>(registries.attention, observer);
  decorate<ObservedResidualNorm>(registries.residual_norm, observer);
  decorate<ObservedActivation>(registries.activation, observer);
  decorate<ObservedSoftmaxCrossEntropy>(registries.softmax_cross_entropy, observer);
  decorate<ObservedEmbedding>(registries.embedding, observer);
  decorate<ObservedAdam>(registries.adam, observer);
  decorate<ObservedTensorOps>(registries.tensor_ops, observer);
}

}  // namespace heddle
