#include <fmt/format.h>

#include <cmath>
#include <heddle/core/operations/gemm.hpp>
#include <heddle/core/tensor/doubles.hpp>

#include "built_in_trials.hpp"

namespace heddle {

namespace {

struct Sizes {
  std::int64_t m, n, k;
};

/// Sizes that no block size divides, single rows and columns, more than one block of each dimension.
constexpr std::array sizes{Sizes{1, 37, 19},  Sizes{37, 29, 1}, Sizes{65, 33, 47},
                           Sizes{9, 67, 301}, Sizes{9, 7, 643}, Sizes{0, 5, 3}};

struct Variant {
  Sizes size = {7, 13, 5};
  bool transpose_a = false, transpose_b = false, accumulate = false, bias = false, strided = false;
  bool float32_b = false, float32_c = false;  ///< beside a bfloat16 a
  GemmActivation activation = GemmActivation::none;
  bool bias_gradient = false;

  std::string name() const {
    std::string words = fmt::format("{} x {} x {}{}{}{}{}{}", size.m, size.n, size.k, transpose_a ? ", aᵀ" : "",
                                    transpose_b ? ", bᵀ" : "", accumulate ? ", +=" : "", bias ? ", bias" : "",
                                    strided ? ", strided" : "");
    words += fmt::format("{}{}", float32_b ? ", b float32" : "", float32_c ? ", c float32" : "");
    words += activation == GemmActivation::none ? "" : fmt::format(", {}", name_of(activation));
    return words + (bias_gradient ? ", bias gradient" : "");
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
  call.b = strided(5).input(variant.float32_b ? real : dtype, variant.transpose_b ? Shape{n, k} : Shape{k, n});
  std::vector<double> const before = to_doubles(tensors.input(c_dtype, {m, n}));
  call.c = variant.accumulate ? strided(7).updated(c_dtype, {m, n}, before) : strided(7).output(c_dtype, {m, n});
  call.bias = variant.bias ? tensors.input(parameter_dtype(c_dtype), {n}) : Tensor();
  call.transpose_a = variant.transpose_a;
  call.transpose_b = variant.transpose_b;
  call.accumulate = variant.accumulate;
  call.activation = variant.activation;
  if (variant.activation != GemmActivation::none) {
    call.activation_input = tensors.output(c_dtype, {m, n});
  }
  call.bias_gradient = variant.bias_gradient ? tensors.sums(parameter_dtype(c_dtype), {m}) : Tensor();
  return call;
}

double activated(GemmActivation activation, double x) {
  switch (activation) {
    case GemmActivation::none:
      return x;
    case GemmActivation::relu:
      return std::max(x, 0.0);
    case GemmActivation::gelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case GemmActivation::silu:
      return x / (1 + std::exp(-x));
  }
  return x;
}

/// The results of an epilogue by the definition, which `reference` may leave to other operations.
struct Expected {
  std::vector<double> c, input, bias_gradient;

  explicit Expected(GemmCall const& call) {
    auto const m = static_cast<std::size_t>(call.c.dim(0));
    auto const n = static_cast<std::size_t>(call.c.dim(1));
    std::size_t const k = static_cast<std::size_t>(call.a.size()) / m;
    std::vector<double> const a = to_doubles(call.a);
    std::vector<double> const b = to_doubles(call.b);
    std::vector<double> const bias = to_doubles(call.bias);
    c = call.accumulate ? to_doubles(call.c) : std::vector<double>(m * n);
    bias_gradient.assign(m, TrialTensors::start);
    for (std::size_t i = 0; i < m; ++i) {
      for (std::size_t p = 0; p < k; ++p) {
        double const factor = call.transpose_a ? a[p * m + i] : a[i * k + p];
        bias_gradient[i] += factor;
        for (std::size_t j = 0; j < n; ++j) {
          c[i * n + j] += factor * (call.transpose_b ? b[j * k + p] : b[p * n + j]);
        }
      }
      for (std::size_t j = 0; j < n; ++j) {
        c[i * n + j] += bias.empty() ? 0 : bias[j];
        input.push_back(c[i * n + j]);
        c[i * n + j] = activated(call.activation, c[i * n + j]);
      }
    }
  }
};

Trial<Gemm> make_trial(Variant const& variant, TrialTensors& tensors, DType dtype) {
  GemmCall const call = make_call(variant, tensors, dtype);
  Trial<Gemm> trial{.problem = call.problem()};
  if ((variant.float32_b || variant.float32_c) && dtype == DType::float32) {
    return trial;  // no other problem than without
  }
  trial.forward = [call](Gemm& kernel, Execution& execution) { kernel.multiply(execution, call); };
  if (!trial.problem.has_epilogue()) {
    trial.outputs = {{"c", call.c}};
    return trial;
  }
  Expected const expected(call);
  trial.outputs = {{"c", call.c, {}, expected.c}};
  if (!call.activation_input.empty()) {
    trial.outputs.push_back({"input of the activation", call.activation_input, {}, expected.input});
  }
  if (!call.bias_gradient.empty()) {
    trial.outputs.push_back({"bias gradient", call.bias_gradient, {}, expected.bias_gradient});
  }
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
  // Each feature by itself, for an implementation that supports no other.
  all.push_back({.size = small});
  all.push_back({.size = small, .transpose_a = true});
  all.push_back({.size = small, .transpose_b = true});
  all.push_back({.size = small, .accumulate = true});
  all.push_back({.size = small, .strided = true});
  all.push_back({.size = small, .bias_gradient = true});
  for (auto const& [b, c] : {std::pair{false, true}, std::pair{true, false}, std::pair{true, true}}) {
    all.push_back({.size = small, .transpose_b = true, .bias = true, .float32_b = b, .float32_c = c});
    all.push_back({.size = small, .transpose_a = true, .accumulate = true, .float32_b = b, .float32_c = c});
  }
  // A rest of 31 elements behind a block of 32, and rows that no tile of 16 divides: a library's code for the matrix
  // registers of CPUs failed here.
  Sizes const rest{39, 112, 63};
  all.push_back({.size = rest, .transpose_b = true, .bias = true});
  all.push_back({.size = rest, .transpose_a = true});
  all.push_back({.size = rest, .transpose_a = true, .accumulate = true, .float32_c = true});
  for (GemmActivation const activation : {GemmActivation::relu, GemmActivation::gelu, GemmActivation::silu}) {
    all.push_back({.activation = activation});
    all.push_back({.transpose_b = true, .bias = true, .activation = activation});
  }
  all.push_back({.transpose_a = true, .accumulate = true, .strided = true, .bias_gradient = true});
  return all;
}

}  // namespace

void add_gemm_trials(KernelRegistries& registries) {
  for (Variant const& variant : variants()) {
    registries.of<Gemm>().add_trial(
        variant.name(), [variant](TrialTensors& tensors, DType dtype) { return make_trial(variant, tensors, dtype); });
  }
}

}  // namespace heddle
