#pragma once

#include <fmt/format.h>

#include <heddle/core/attention/context_attention.hpp>
#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/registry.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/kernels/register.hpp>
#include <string>

#include "dist_fixture.hpp"
#include "kernel_test_support.hpp"
#include "test_ids.hpp"
#include "test_scores.hpp"

namespace heddle {

struct Lengths {
  std::size_t source, target;  ///< without the end token
};

inline std::vector<Sample> pairs_of(std::vector<Lengths> const& lengths) {
  std::vector<Sample> pairs;
  for (auto const [source, target] : lengths) {
    auto const sample = static_cast<std::int32_t>(3 * pairs.size() + 2);
    pairs.push_back({sample, std::vector<std::int32_t>(source, 7), std::vector<std::int32_t>(target, 8)});
  }
  return pairs;
}

inline Pack pack_of(std::vector<Lengths> const& lengths, GroupMember split) {
  return make_pack(pairs_of(lengths), test_ids, split);
}

/// Lengths above and below those of a kernel's block, a group's ranks, and its chunks.
inline std::vector<Lengths> const uneven{{40, 3}, {0, 170}, {2, 0}, {150, 66}, {6, 1}, {0, 0}, {17, 12}};

struct Attended {
  AttentionMask mask;
  Side queries, keys;
  float dropout;
  ScoreKind score = ScoreKind::dot_product;
  std::int64_t kv_heads = 8;
  bool bias = false;
  std::shared_ptr<AttentionScore const> function = {};
};

inline std::string describe(Attended const& attended) {
  return fmt::format("{}{} {}{}, {} heads of keys{}", attended.queries != attended.keys ? "cross " : "",
                     describe(attended.mask), name_of(attended.score), attended.dropout > 0 ? " with dropout" : "",
                     attended.kv_heads, attended.bias ? ", biases" : "");
}

/// A call's inputs.
struct Inputs {
  Tensor q, k, v, grad_output;
};

/// A call's tensors: the whole's, which every rank makes with the same values, or a rank's rows of them.
struct Rows : Inputs {
  Tensor output, log_sum_exp;
  AttentionGradients gradients;

  /// Gradients of keys and values are side by side, as a projection takes them: their rows are strided.
  Rows(Inputs const& inputs, std::int64_t heads)
      : Inputs(inputs),
        output(Tensor::allocate(q.dtype(), q.shape())),
        log_sum_exp(Tensor::allocate(statistics_dtype(q.dtype()), {q.dim(0), heads})) {
    std::int64_t const width = k.dim(1);
    Tensor const grad = Tensor::allocate(q.dtype(), {k.dim(0), 2 * width});
    gradients = {Tensor::allocate(q.dtype(), q.shape()), grad.columns(0, width), grad.columns(width, width)};
  }
};

inline Inputs random_inputs(DType dtype, Shape const& queries, Shape const& keys) {
  return {random_tensor(dtype, queries, 1), random_tensor(dtype, keys, 2), random_tensor(dtype, keys, 3),
          random_tensor(dtype, queries, 4)};
}

class ContextAttentionTest : public DistTest {
 protected:
  static constexpr std::int64_t heads = 8;
  static constexpr std::int64_t width = heads * 4;

  ContextAttentionTest() { register_built_in_kernels(registries_); }

  std::shared_ptr<Attention> kernel(char const* name, AttentionProblem const& problem = {}) {
    return registries_.of<Attention>().select(name, problem);
  }
  /// The values that are compared with the whole pack on one rank.
  struct Tested {
    char const* kernel;
    DType dtype;
    ContextMode mode;
  };
  ContextAttention context_attention(Communicator const& group, ContextMode mode, char const* name = "kokkos",
                                     AttentionProblem problem = {}) {
    std::shared_ptr<Attention> attention = kernel(name, problem);
    if (!attention->wide_results()) {
      problem.dtype = ContextAttention::sum_dtype(mode, problem.dtype);
      attention = kernel(name, problem);
    }
    return {group, mode, attention, tensor_ops_};
  }

  AttentionCall call_of(Rows const& rows, Pack const& pack, Attended const& attended) const {
    TokenRows const& queries = pack.rows(attended.queries);
    DType const statistics = statistics_dtype(rows.q.dtype());
    bool const prefix = attended.mask.is(MaskKind::prefix);
    return {.q = rows.q,
            .k = rows.k,
            .v = rows.v,
            .queries = queries.sequences,
            .keys = pack.rows(attended.keys).sequences,
            .heads = heads,
            .kv_heads = attended.kv_heads,
            .scale = 0.6,
            .score = attended.score,
            .function = attended.function,
            .score_weight =
                attended.score == ScoreKind::additive ? random_tensor(statistics, {heads, width / heads}, 8) : Tensor(),
            .mask = attended.mask,
            .prefix_length = prefix ? int_tensor(std::vector<std::int32_t>(uneven.size(), 7)) : Tensor(),
            .bias = attended.bias ? random_tensor(statistics, {heads, 41}, 9) : Tensor(),
            .dropout = {.rate = attended.dropout,
                        .key = 99,
                        .step = 5,
                        .first_column = 16,
                        .sample = queries.sample,
                        .position = queries.position}};
  }

  /// Gives the gradients of the call's parameters room, set to 0.
  static void add_parameter_gradients(Rows& rows, AttentionCall const& call) {
    auto const zeros = [](Tensor const& parameter) {
      return parameter.empty()
                 ? Tensor()
                 : tensor_of(std::vector<double>(values(parameter).size()), parameter.dtype(), parameter.shape());
    };
    rows.gradients.bias = zeros(call.bias);
    rows.gradients.score_weight = zeros(call.score_weight);
  }

  /// The whole pack on one rank, by the reference implementation.
  Rows whole_of(Attended const& attended) {
    Pack const pack = pack_of(uneven, {});
    Shape const queries{pack.rows(attended.queries).tokens, width};
    Shape const keys{pack.rows(attended.keys).tokens, attended.kv_heads * (width / heads)};
    Rows whole(random_inputs(DType::float64, queries, keys), heads);
    AttentionCall const call = call_of(whole, pack, attended);
    add_parameter_gradients(whole, call);
    kernel("reference")->forward(execution_, call, whole.output, whole.log_sum_exp);
    kernel("reference")
        ->backward(execution_, call, whole.output, whole.log_sum_exp, whole.grad_output, whole.gradients);
    return whole;
  }

  /// This rank's rows of a matrix of the whole.
  Tensor local(Tensor const& whole, ContextRows const& rows, int rank) {
    std::int64_t begin = 0;
    for (int i = 0; i < rank; ++i) {
      begin += rows.shards[static_cast<std::size_t>(i)].tokens;
    }
    std::int64_t const count = rows.shards[static_cast<std::size_t>(rank)].tokens;
    Tensor const part = Tensor::allocate(whole.dtype(), {count, whole.dim(1)});
    tensor_ops_->gather_rows(execution_, whole, rows.from_whole.rows(begin, count), part);
    return part;
  }

  KernelRegistries registries_;
  Arena scratch_;
  Execution execution_{Kokkos::DefaultExecutionSpace(), scratch_};
  Arena arena_;
  std::shared_ptr<TensorOps> tensor_ops_ = registered_tensor_ops();

 private:
  static std::shared_ptr<TensorOps> registered_tensor_ops() {
    KernelRegistries registries;
    register_built_in_kernels(registries);
    return registries.of<TensorOps>().select("kokkos", {});
  }
};

}  // namespace heddle
