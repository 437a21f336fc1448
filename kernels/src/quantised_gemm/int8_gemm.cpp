#include <algorithm>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/index_range.hpp>
#include <numeric>
#include <vector>

#include "gemm/packed_weights.hpp"
#include "gemm/types.hpp"
#include "int8_choice.hpp"
#include "support/factories.hpp"
#include "support/shares.hpp"

namespace heddle {

namespace {

/// A weight in int8, each column with its own scale.
struct Int8Weight {
  Tensor panels, scales, excesses;

  Int8Weight(std::int64_t n, std::int64_t k)
      : panels(Tensor::allocate(DType::int32,
                                {rounded_up(n, int8::block_columns) * rounded_up(k, int8::reduction_step) / 4})),
        scales(Tensor::allocate(DType::float32, {rounded_up(n, int8::block_columns)})),
        excesses(Tensor::allocate(DType::int32, {rounded_up(n, int8::block_columns)})) {}

  std::size_t bytes() const { return panels.bytes() + scales.bytes() + excesses.bytes(); }
};

std::int8_t* bytes_of(Tensor const& tensor) {
  return static_cast<std::int8_t*>(tensor.raw());
}

/// c = a bᵀ, b's rows quantised once, a's rows at each call, each by its largest absolute element: integer products and
/// sums, which are exact, times both scales. The other products are the gradients of these; they are computed as
/// without int8, as if what was rounded had not been (the straight-through estimator: Bengio et al. 2013), so that a
/// model can be trained for int8. Called by one thread at a time, computes with all threads of the execution space.
class Int8Gemm final : public Gemm {
 public:
  /// `others`: implementations for gradients.
  Int8Gemm(int8::Functions const& functions, KernelRegistry<Gemm> others)
      : functions_(functions), others_(std::move(others)) {}

  bool supports(GemmProblem const& problem) const override {
    constexpr std::int64_t max_k = 1 << 16;  // sums of 32 bits
    return problem.dtype != DType::float64 && (is_gradient(problem) || problem.k <= max_k) &&
           kernels::has_gemm_types(problem);
  }
  Accuracy accuracy() const override { return Accuracy::quantised; }
  std::size_t packed_bytes(GemmProblem const& problem) const override {
    if (is_gradient(problem)) {
      return others_.select("auto", problem)->packed_bytes(problem);
    }
    auto const columns = static_cast<std::size_t>(rounded_up(problem.n, int8::block_columns));
    return columns * (static_cast<std::size_t>(rounded_up(problem.k, int8::reduction_step)) + 8);
  }
  std::size_t kept_bytes() const override {
    return weights_.bytes([](Int8Weight const& weight) { return weight.bytes(); });
  }

  void multiply(Execution& execution, GemmCall const& call) override {
    GemmProblem const problem = call.problem();
    if (is_gradient(problem)) {
      others_.select("auto", problem)->multiply(execution, call);
      return;
    }
    if (problem.m == 0 || problem.n == 0) {
      return;
    }
    execution.space.fence();  // this code does not run in its order
    auto const make = [&] { return Int8Weight(problem.n, problem.k); };
    auto const fill = [&](Int8Weight const& weight) { pack(call, problem, weight); };
    if (call.b_weight.id != 0) {
      multiply_chunks(execution, call, weights_.current(call, problem, make, fill));
      return;
    }
    Int8Weight const weight = make();
    fill(weight);
    multiply_chunks(execution, call, weight);
  }

 private:
  static bool is_gradient(GemmProblem const& problem) { return problem.transpose_a || !problem.transpose_b; }

  /// Multiplies chunks of rows: a chunk of a and c stays in the L2 cache while blocks of columns are written.
  void multiply_chunks(Execution& execution, GemmCall const& call, Int8Weight const& weight) const {
    constexpr std::int64_t floats_of_c = 1 << 18;
    std::int64_t const blocks = std::clamp<std::int64_t>(floats_of_c / (call.c.dim(1) * int8::block_rows), 1, 8);
    std::int64_t const max_rows = blocks * int8::block_rows;
    std::int64_t const rows = call.a.dim(0);
    for (std::int64_t begin = 0; begin < rows; begin += max_rows) {
      GemmCall chunk = call;
      std::int64_t const count = std::min(max_rows, rows - begin);
      chunk.a = call.a.rows(begin, count);
      chunk.c = call.c.rows(begin, count);
      multiply_rows(execution, chunk, weight);
    }
  }

  void multiply_rows(Execution& execution, GemmCall const& call, Int8Weight const& weight) const {
    GemmProblem const problem = call.problem();
    ArenaScope const scope(execution.scratch);
    std::int64_t const k = rounded_up(problem.k, int8::reduction_step);
    std::int64_t const rows = rounded_up(problem.m, int8::block_rows);
    std::int64_t const stride = k + 64;  // no power of two: rows would share cache sets
    Tensor const quantised = execution.scratch.allocate(DType::int32, {rows * stride / 4});
    Tensor const row_scales = execution.scratch.allocate(DType::float32, {rows});
    int8::Rows const a{call.a.raw(), call.a.row_stride(), problem.k, problem.dtype == DType::bfloat16};
    int8::Product const product{{bytes_of(quantised), stride, row_scales.data<float>()},
                                problem.m,
                                problem.n,
                                k,
                                bytes_of(weight.panels),
                                weight.scales.data<float>(),
                                weight.excesses.data<std::int32_t>(),
                                problem.bias ? call.bias.data<float>() : nullptr,
                                call.c.raw(),
                                call.c.row_stride(),
                                problem.output_dtype == DType::bfloat16,
                                problem.accumulate};
    int8::Functions const functions = functions_;
    in_shares(execution, problem.m, problem.k, [=](IndexRange const& share) {
      functions.quantise(a, share.begin, share.end, functions.unsigned_rows, product.a);
    });
    in_shares(execution, weight.scales.size() / int8::block_columns, problem.m * problem.k * int8::block_columns,
              [=](IndexRange const& share) { functions.multiply(product, share.begin, share.end); });
  }

  /// Calls `work(share)` for all of `count` units of work in order of their costs, one share for each thread.
  template <class Work>
  static void in_shares(Execution& execution, std::int64_t count, std::int64_t cost, Work const& work) {
    constexpr std::int64_t min_cost = 1 << 18;
    std::int64_t const shares = std::min(count, kernels::shares(count * cost, min_cost, execution.space.concurrency()));
    if (shares == 1) {
      work(IndexRange{0, count});
      return;
    }
    kernels::for_each(execution, "int8 gemm", shares, [=](std::int64_t index) { work(share(count, index, shares)); });
    execution.space.fence();
  }

  /// Quantises b's rows.
  void pack(GemmCall const& call, GemmProblem const& problem, Int8Weight const& weight) const {
    std::int64_t const k = rounded_up(problem.k, int8::reduction_step);
    std::int8_t* const panels = bytes_of(weight.panels);
    float* const scales = weight.scales.data<float>();
    std::int32_t* const excesses = weight.excesses.data<std::int32_t>();
    std::fill_n(panels, weight.panels.bytes(), std::int8_t{0});
    std::fill_n(scales, weight.scales.size(), 0.F);
    std::fill_n(excesses, weight.excesses.size(), 0);
    std::vector<std::int8_t> quantised(static_cast<std::size_t>(k));  // zeros beyond the weight's k
    std::size_t const row_bytes = static_cast<std::size_t>(call.b.row_stride()) * size_of(problem.b_dtype);
    for (std::int64_t column = 0; column < problem.n; ++column) {
      int8::Rows const numbers{
          static_cast<std::byte const*>(call.b.raw()) + static_cast<std::size_t>(column) * row_bytes, 0, problem.k,
          problem.b_dtype == DType::bfloat16};
      functions_.quantise(numbers, 0, 1, false, {quantised.data(), k, scales + column});
      std::int64_t const place = column / int8::panel_columns * int8::panel_columns * k;
      std::int8_t* to = panels + place + column % int8::panel_columns * int8::group;
      for (std::int64_t i = 0; i < k; i += int8::group) {
        std::memcpy(to + i * int8::panel_columns, quantised.data() + i, int8::group);
      }
      excesses[column] = 128 * std::accumulate(quantised.begin(), quantised.end(), 0);
    }
  }

  int8::Functions functions_;
  KernelRegistry<Gemm> others_;
  PackedWeights<Int8Weight> weights_;
};

}  // namespace

void add_int8_gemm(KernelRegistry<Gemm>& registry, CpuLevel level) {
  if (kernel_memory_space() == MemorySpace::host) {
    registry.add("int8", priorities::own, std::make_shared<Int8Gemm>(int8::functions_for(level), registry));
  }
}

}  // namespace heddle
