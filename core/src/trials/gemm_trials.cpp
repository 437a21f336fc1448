#include <fmt/format.h>

#include <functional>
#include <heddle/core/operations/gemm.hpp>
#include <heddle/core/tensor/doubles.hpp>
#include <heddle/core/trials/trials.hpp>

namespace heddle {

namespace {

struct Sizes {
  std::int64_t m, n, k;
};

/// Sizes that no block size divides, single rows and columns, more than one block of each dimension.
constexpr std::array sizes{Sizes{1, 37, 19},  Sizes{37, 29, 1}, Sizes{65, 33, 47},
                           Sizes{9, 67, 301}, Sizes{9, 7, 643}, Sizes{0, 5, 3}};

struct Variant {
  Sizes size;
  bool transpose_a = false, transpose_b = false, accumulate = false, bias = false, strided = false;
  bool float32_b = false, float32_c = false;  ///< beside a bfloat16 a
  bool bfloat16_b = false;                    ///< beside a float32 a

  std::string name() const {
    return fmt::format("{} x {} x {}{}{}{}{}{}{}{}{}", size.m, size.n, size.k, transpose_a ? ", aᵀ" : "",
                       transpose_b ? ", bᵀ" : "", accumulate ? ", +=" : "", bias ? ", bias" : "",
                       strided ? ", strided" : "", float32_b ? ", b float32" : "", float32_c ? ", c float32" : "",
                       bfloat16_b ? ", b bfloat16" : "");
  }
};

GemmCall make_call(Variant const& variant, TrialTensors& tensors, DType dtype) {
  auto const& [m, n, k] = variant.size;
  DType const real = statistics_dtype(dtype);
  DType const c_dtype = variant.float32_c ? real : dtype;
  auto const strided = [&](std::int64_t guards) -> TrialTensors& {
    return tensors.strided(variant.strided ? guards : 0);
  };
  GemmCall call;
  call.a = strided(3).input(dtype, variant.transpose_a ? Shape{k, m} : Shape{m, k});
  DType const b_dtype = variant.float32_b                               ? real
                        : variant.bfloat16_b && dtype == DType::float32 ? DType::bfloat16
                                                                        : dtype;
  call.b = strided(5).input(b_dtype, variant.transpose_b ? Shape{n, k} : Shape{k, n});
  std::vector<double> const before = to_doubles(tensors.input(c_dtype, {m, n}));
  call.c = variant.accumulate ? strided(7).updated(c_dtype, {m, n}, before) : strided(7).output(c_dtype, {m, n});
  call.bias = variant.bias ? tensors.input(parameter_dtype(c_dtype), {n}) : Tensor();
  call.transpose_a = variant.transpose_a;
  call.transpose_b = variant.transpose_b;
  call.accumulate = variant.accumulate;
  return call;
}

Trial<Gemm> make_trial(Variant const& variant, TrialTensors& tensors, DType dtype) {
  GemmCall const call = make_call(variant, tensors, dtype);
  Trial<Gemm> trial{.problem = call.problem()};
  bool const mixes = variant.bfloat16_b ? dtype != DType::bfloat16 : dtype != DType::float32;
  if ((variant.float32_b || variant.float32_c || variant.bfloat16_b) && !mixes) {
    return trial;  // no other problem than without
  }
  trial.forward = [call](Gemm& kernel, Execution& execution) { kernel.multiply(execution, call); };
  trial.outputs = {{"c", call.c}};
  return trial;
}

std::vector<Variant> variants() {
  std::vector<Variant> all;
  for (Sizes const& size : sizes) {
    for (int bits = 0; bits < 4; ++bits) {
      bool const transpose_a = (bits & 1) != 0;
      bool const transpose_b = (bits & 2) != 0;
      all.push_back({size, transpose_a, transpose_b, false, true});
      all.push_back({size, transpose_a, transpose_b, true, false, true});
    }
  }
  Sizes const small{67, 29, 41};
  // Each feature alone, for an implementation that supports only this one.
  all.push_back({.size = small});
  all.push_back({.size = small, .transpose_a = true});
  all.push_back({.size = small, .transpose_b = true});
  all.push_back({.size = small, .accumulate = true});
  all.push_back({.size = small, .strided = true});
  for (auto const& [b, c] : {std::pair{false, true}, std::pair{true, false}, std::pair{true, true}}) {
    all.push_back({.size = small, .transpose_b = true, .bias = true, .float32_b = b, .float32_c = c});
    all.push_back({.size = small, .transpose_a = true, .accumulate = true, .float32_b = b, .float32_c = c});
  }
  for (Sizes const& size : {small, sizes[3], sizes[4]}) {
    all.push_back({.size = size, .bias = true, .bfloat16_b = true});
    all.push_back({.size = size, .transpose_b = true, .accumulate = true, .strided = true, .bfloat16_b = true});
  }
  // A rest of 31 elements after a block of 32, and rows that no tile of 16 divides: a library's code for the matrix
  // registers of CPUs failed here.
  Sizes const rest{39, 112, 63};
  all.push_back({.size = rest, .transpose_b = true, .bias = true});
  all.push_back({.size = rest, .transpose_a = true});
  all.push_back({.size = rest, .transpose_a = true, .accumulate = true, .float32_c = true});
  return all;
}

}  // namespace

void add_gemm_trials(KernelRegistries& registries) {
  for (Variant const& variant : variants()) {
    registries.of<Gemm>().add_trial(variant.name(), std::bind_front(make_trial, variant));
  }
}

}  // namespace heddle
