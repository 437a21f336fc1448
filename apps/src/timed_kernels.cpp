#include "timed_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <heddle/core/execution.hpp>
#include <initializer_list>

namespace heddle {

namespace {

constexpr int fewest_rounds = 3;
constexpr int most_rounds = 20;
constexpr double enough_seconds = 0.2;  ///< of each implementation, after the fewest rounds
constexpr double most_seconds = 1;      ///< of all together, after which no round begins

struct Work {
  std::string name;
  double flops = 0;
  double bytes = 0;
};

double bytes_of(std::initializer_list<Tensor> tensors) {
  double bytes = 0;
  for (Tensor const& tensor : tensors) {
    bytes += static_cast<double>(tensor.bytes());
  }
  return bytes;
}

/// What a layer selected: makes each call by all candidates, the first time, and then by the one that was selected.
template <class Interface>
class Timed : public Interface {
 public:
  using Problem = typename Interface::Problem;
  using Entry = typename KernelRegistry<Interface>::Entry;

  Timed(std::vector<Entry> candidates, Problem problem, std::shared_ptr<Interface> selected, TimedProblem& times)
      : candidates_(std::move(candidates)),
        problem_(std::move(problem)),
        selected_(std::move(selected)),
        times_(times) {}

  bool supports(Problem const& problem) const override { return selected_->supports(problem); }

 protected:
  template <class Call>
  auto time(Execution& execution, Work const& work, Call const& call) {
    return time(execution, problem_, work, call);
  }

  template <class Call>
  auto time(Execution& execution, Problem const& problem, Work const& work, Call const& call) {
    auto& calls = times_.calls;
    auto known = std::find_if(calls.begin(), calls.end(), [&](TimedCall const& old) { return old.name == work.name; });
    if (known == calls.end()) {
      known = calls.insert(known, {work.name, work.flops, work.bytes, 0, measure(execution, problem, call)});
    }
    known->count += 1;
    return call(*selected_);
  }

 private:
  /// By turns, so that what else the machine does meets all alike.
  template <class Call>
  TimesByName measure(Execution& execution, Problem const& problem, Call const& call) {
    using Clock = std::chrono::steady_clock;
    TimesByName least;
    double elapsed = 0;
    auto const enough = enough_seconds * static_cast<double>(candidates_.size());
    for (int round = 0; elapsed < most_seconds && (round < fewest_rounds || (round < most_rounds && elapsed < enough));
         ++round) {
      for (Entry const& entry : candidates_) {
        if (!entry.kernel->supports(problem)) {
          continue;
        }
        execution.space.fence();
        auto const begin = Clock::now();
        call(*entry.kernel);
        execution.space.fence();
        double const seconds = std::chrono::duration<double>(Clock::now() - begin).count();
        double& best = least.try_emplace(entry.name, seconds).first->second;
        best = std::min(best, seconds);
        elapsed += seconds;
      }
      if (least.empty()) {
        break;
      }
    }
    return least;
  }

  std::vector<Entry> candidates_;
  Problem problem_;
  std::shared_ptr<Interface> selected_;
  TimedProblem& times_;
};

class TimedGemm : public Timed<Gemm> {
 public:
  using Timed::Timed;
  void multiply(Execution& execution, GemmCall const& call) override {
    GemmProblem const problem = call.problem();
    char const* const product = problem.transpose_a   ? "weight gradient"
                                : problem.transpose_b ? "forward"
                                                      : "input gradient";
    bool const added = problem.accumulate && !problem.transpose_a;
    Work const work{
        fmt::format("{}{}, {} x {} x {}", product, added ? " added" : "", problem.m, problem.n, problem.k),
        2.0 * static_cast<double>(problem.m) * static_cast<double>(problem.n) * static_cast<double>(problem.k),
        bytes_of({call.a, call.b, call.c, call.bias}) + (problem.accumulate ? bytes_of({call.c}) : 0)};
    time(execution, problem, work, [&](Gemm& kernel) { kernel.multiply(execution, call); });
  }
};

/// Queries times the keys that each sees.
double visible_pairs(AttentionCall const& call) {
  std::vector<std::int32_t> const queries = to_host<std::int32_t>(call.queries.length);
  std::vector<std::int32_t> const keys = to_host<std::int32_t>(call.keys.length);
  double pairs = 0;
  for (std::size_t index = 0; index < std::min(queries.size(), keys.size()); ++index) {
    double const rows = queries[index];
    pairs += rows * (call.causal ? std::max(0.0, keys[index] - (rows - 1) / 2) : keys[index]);
  }
  return pairs;
}

class TimedAttention : public Timed<Attention> {
 public:
  using Timed::Timed;
  void forward(Execution& execution, AttentionCall const& call, Tensor const& output,
               Tensor const& log_sum_exp) override {
    Work const work = work_of("forward", call, 4, {call.q, call.k, call.v, output, log_sum_exp});
    time(execution, call.problem(), work,
         [&](Attention& kernel) { kernel.forward(execution, call, output, log_sum_exp); });
  }
  void backward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp,
                Tensor const& grad_output, AttentionGradients const& gradients) override {
    Work const work =
        work_of("backward", call, 10,
                {call.q, call.k, call.v, output, log_sum_exp, grad_output, gradients.q, gradients.k, gradients.v});
    time(execution, call.problem(), work,
         [&](Attention& kernel) { kernel.backward(execution, call, output, log_sum_exp, grad_output, gradients); });
  }

 private:
  /// `flops`: for each visible pair and column.
  static Work work_of(char const* name, AttentionCall const& call, double flops,
                      std::initializer_list<Tensor> tensors) {
    return {fmt::format("{}, {} on {} tokens", name, call.q.dim(0), call.k.dim(0)),
            flops * visible_pairs(call) * static_cast<double>(call.q.dim(1)), bytes_of(tensors)};
  }
};

class TimedResidualNorm : public Timed<ResidualNorm> {
 public:
  using Timed::Timed;
  void forward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output) override {
    Work const work{name_of("forward", call, !output.normalized.empty()), 0,
                    bytes_of({call.residual, call.branch, output.sum, output.normalized})};
    time(execution, call.problem(), work, [&](ResidualNorm& kernel) { kernel.forward(execution, call, output); });
  }
  void backward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output,
                Tensor const& grad_normalized, Tensor const& grad_sum,
                ResidualNormGradients const& gradients) override {
    Work const work{name_of("backward", call, !grad_normalized.empty()), 0,
                    bytes_of({output.sum, grad_normalized, grad_sum, gradients.residual, gradients.branch})};
    time(execution, call.problem(), work,
         [&](ResidualNorm& kernel) { kernel.backward(execution, call, output, grad_normalized, grad_sum, gradients); });
  }

 private:
  static std::string name_of(char const* name, ResidualNormCall const& call, bool norm) {
    return fmt::format("{}{}{}, {} rows", name, call.branch.empty() ? "" : " of a sum", norm ? " and norm" : "",
                       call.residual.dim(0));
  }
};

class TimedActivation : public Timed<Activation> {
 public:
  using Timed::Timed;
  void forward(Execution& execution, ActivationCall const& call, Tensor const& output) override {
    Work const work{"forward, " + call.input.shape().to_string(), 0, bytes_of({call.input, output})};
    time(execution, call.problem(), work, [&](Activation& kernel) { kernel.forward(execution, call, output); });
  }
  void backward(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                Tensor const& grad_input) override {
    Work const work{"backward, " + call.input.shape().to_string(), 0, bytes_of({call.input, grad_output, grad_input})};
    time(execution, call.problem(), work,
         [&](Activation& kernel) { kernel.backward(execution, call, grad_output, grad_input); });
  }
};

class TimedSoftmaxCrossEntropy : public Timed<SoftmaxCrossEntropy> {
 public:
  using Timed::Timed;
  void statistics(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics) override {
    Work const work{"statistics, " + call.logits.shape().to_string(), 0, bytes_of({call.logits, statistics})};
    time(execution, work, [&](SoftmaxCrossEntropy& kernel) { kernel.statistics(execution, call, statistics); });
  }
  void combine(Execution& execution, Tensor const& parts, Tensor const& statistics) override {
    Work const work{"combine, " + parts.shape().to_string(), 0, bytes_of({parts, statistics})};
    time(execution, work, [&](SoftmaxCrossEntropy& kernel) { kernel.combine(execution, parts, statistics); });
  }
  void losses(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics,
              Tensor const& losses) override {
    Work const work{"losses, " + losses.shape().to_string(), 0, bytes_of({call.targets, statistics, losses})};
    time(execution, work, [&](SoftmaxCrossEntropy& kernel) { kernel.losses(execution, call, statistics, losses); });
  }
  void gradient(Execution& execution, SoftmaxCrossEntropyCall const& call, Tensor const& statistics,
                double scale) override {
    Work const work{"gradient, " + call.logits.shape().to_string(), 0, bytes_of({call.logits, call.logits})};
    time(execution, work, [&](SoftmaxCrossEntropy& kernel) { kernel.gradient(execution, call, statistics, scale); });
  }
  void losses_and_gradient(Execution& execution, SoftmaxCrossEntropyCall const& call, double scale,
                           Tensor const& losses) override {
    Work const work{"losses and gradient, " + call.logits.shape().to_string(), 0, bytes_of({call.logits, call.logits})};
    time(execution, work,
         [&](SoftmaxCrossEntropy& kernel) { kernel.losses_and_gradient(execution, call, scale, losses); });
  }
};

class TimedEmbedding : public Timed<Embedding> {
 public:
  using Timed::Timed;
  void forward(Execution& execution, EmbeddingCall const& call, Tensor const& output) override {
    Work const work{"forward, " + output.shape().to_string(), 0, bytes_of({output}) + rows_bytes(call, output)};
    time(execution, work, [&](Embedding& kernel) { kernel.forward(execution, call, output); });
  }
  void backward(Execution& execution, EmbeddingCall const& call, Tensor const& grad_output, Tensor const& grad_table,
                Tensor const& grad_positions) override {
    Work const work{"backward, " + grad_output.shape().to_string(), 0,
                    bytes_of({grad_output}) + 2 * rows_bytes(call, grad_output)};
    time(execution, work,
         [&](Embedding& kernel) { kernel.backward(execution, call, grad_output, grad_table, grad_positions); });
  }

 private:
  /// The tokens' rows of the table.
  static double rows_bytes(EmbeddingCall const& call, Tensor const& output) {
    return static_cast<double>(output.size()) * static_cast<double>(size_of(call.table.dtype()));
  }
};

class TimedAdam : public Timed<Adam> {
 public:
  using Timed::Timed;
  void update(Execution& execution, AdamCall const& call) override {
    double const bytes = bytes_of({call.gradient}) + 2 * bytes_of({call.value, call.first_moment, call.second_moment});
    Work const work{fmt::format("update, {} elements", call.value.size()), 0, bytes};
    time(execution, work, [&](Adam& kernel) { kernel.update(execution, call); });
  }
};

class TimedTensorOps : public Timed<TensorOps> {
 public:
  using Timed::Timed;
  void fill(Execution& execution, Tensor const& tensor, double value) override {
    time(execution, work_of("fill", {tensor}), [&](TensorOps& kernel) { kernel.fill(execution, tensor, value); });
  }
  void add(Execution& execution, Tensor const& into, Tensor const& from) override {
    time(execution, work_of("add", {into, into, from}), [&](TensorOps& kernel) { kernel.add(execution, into, from); });
  }
  void copy(Execution& execution, Tensor const& from, Tensor const& to) override {
    time(execution, work_of("copy", {from, to}), [&](TensorOps& kernel) { kernel.copy(execution, from, to); });
  }
  void add_column_sums(Execution& execution, Tensor const& matrix, Tensor const& sums) override {
    time(execution, work_of("column sums", {matrix, sums, sums}),
         [&](TensorOps& kernel) { kernel.add_column_sums(execution, matrix, sums); });
  }
  double sum_of_squares(Execution& execution, Tensor const& tensor) override {
    return time(execution, work_of("sum of squares", {tensor}),
                [&](TensorOps& kernel) { return kernel.sum_of_squares(execution, tensor); });
  }
  void gather_rows(Execution& execution, Tensor const& from, Tensor const& index, Tensor const& to) override {
    time(execution, work_of("gather", {to, to, index}),
         [&](TensorOps& kernel) { kernel.gather_rows(execution, from, index, to); });
  }

 private:
  static Work work_of(char const* name, std::initializer_list<Tensor> tensors) {
    return {fmt::format("{}, {}", name, tensors.begin()->shape().to_string()), 0, bytes_of(tensors)};
  }
};

/// The implementations that a problem is timed with, the fastest by speed first.
template <class Interface>
auto candidates(KernelRegistry<Interface> const& registry, typename Interface::Problem const& problem, bool all) {
  auto entries = registry.entries();
  std::erase_if(entries, [&](auto const& entry) { return !entry.kernel->supports(problem); });
  std::stable_sort(entries.begin(), entries.end(), [](auto const& a, auto const& b) { return a.speed > b.speed; });
  if (!all) {
    auto const oracle = std::find_if(entries.begin() + 1, entries.end(), [](auto const& e) { return e.speed <= 0; });
    entries.erase(oracle, entries.end());
  }
  return entries;
}

template <class Wrapper, class Interface>
void wrap(KernelRegistry<Interface>& registry, KernelRegistry<Interface> const& plain, bool all,
          TimedProblems& problems) {
  registry.set_wrapper([&plain, all, &of_operation = problems[Interface::operation]](
                           auto const& problem, auto const& selected) -> std::shared_ptr<Interface> {
    auto entries = candidates(plain, problem, all);
    TimedProblem& times = of_operation[timing_key(problem)];
    times.by_speed = entries.front().name;
    return std::make_shared<Wrapper>(std::move(entries), problem, selected, times);
  });
}

}  // namespace

TimesByName TimedProblem::total() const {
  TimesByName total = calls.empty() ? TimesByName() : calls.front().seconds;
  for (auto& [name, seconds] : total) {
    seconds = 0;
  }
  for (TimedCall const& call : calls) {
    std::erase_if(total, [&](auto const& item) { return !call.seconds.contains(item.first); });
    for (auto& [name, seconds] : total) {
      seconds += call.count * call.seconds.at(name);
    }
  }
  return total;
}

std::string TimedProblem::fastest() const {
  TimesByName const times = total();
  std::vector<std::string> names;
  for (auto const& [name, seconds] : times) {
    names.push_back(name);
  }
  return measured_choice(times, by_speed, names);
}

KernelRegistries timed_kernels(KernelRegistries const& kernels, bool all, TimedProblems& problems) {
  KernelRegistries timed = kernels;
  wrap<TimedGemm>(timed.gemm, kernels.gemm, all, problems);
  wrap<TimedAttention>(timed.attention, kernels.attention, all, problems);
  wrap<TimedResidualNorm>(timed.residual_norm, kernels.residual_norm, all, problems);
  wrap<TimedActivation>(timed.activation, kernels.activation, all, problems);
  wrap<TimedSoftmaxCrossEntropy>(timed.softmax_cross_entropy, kernels.softmax_cross_entropy, all, problems);
  wrap<TimedEmbedding>(timed.embedding, kernels.embedding, all, problems);
  wrap<TimedAdam>(timed.adam, kernels.adam, all, problems);
  wrap<TimedTensorOps>(timed.tensor_ops, kernels.tensor_ops, all, problems);
  return timed;
}

}  // namespace heddle
