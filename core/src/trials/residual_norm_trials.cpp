#include <fmt/format.h>

#include <functional>
#include <heddle/core/base/norm_kind.hpp>
#include <heddle/core/operations/residual_norm.hpp>
#include <heddle/core/tensor/doubles.hpp>
#include <heddle/core/trials/trials.hpp>

namespace heddle {

namespace {

/// The gradient whose memory the residual's gradient shares (residual_norm.hpp).
enum class Shared : std::uint8_t { nothing, grad_normalized, grad_sum };

struct Variant {
  char const* name;
  std::int64_t rows, columns;
  bool branch, norm;
  double dropout;
  bool grad_normalized, grad_sum;
  Shared shared = Shared::nothing;
};

constexpr std::array variants{
    Variant{"sum and norm", 70, 67, true, true, 0, true, true},
    Variant{"sum and norm", 11, 301, true, true, 0.3, true, true},
    Variant{"sum and norm, no gradient of the sum", 65, 40, true, true, 0.2, true, false},
    Variant{"sum and norm, no gradient of the norm", 5, 9, true, true, 0.2, false, true},
    Variant{"norm alone", 129, 33, false, true, 0, true, true},
    Variant{"norm alone, no gradient of the sum", 3, 128, false, true, 0, true, false},
    Variant{"sum alone", 6, 130, true, false, 0.5, false, true},
    Variant{"sum alone", 6, 67, true, false, 0, false, true},
    Variant{"sum alone, in place", 6, 67, true, false, 0.5, false, true, Shared::grad_sum},
    Variant{"sum and norm, no gradient of the sum", 5, 67, true, true, 0, true, false},
    Variant{"sum and norm, in place of the sum's gradient", 7, 67, true, true, 0.2, true, true, Shared::grad_sum},
    Variant{"sum and norm, in place of the norm's gradient", 7, 67, true, true, 0.2, true, true,
            Shared::grad_normalized},
    Variant{"norm alone, in place of the sum's gradient", 5, 131, false, true, 0, true, true, Shared::grad_sum},
    Variant{"norm alone, in place of the norm's gradient", 5, 131, false, true, 0, true, false,
            Shared::grad_normalized},
    Variant{"neither", 4, 5, false, false, 0, false, true},
    Variant{"pairs of columns", 7, 96, true, true, 0.3, true, true},
    Variant{"groups of columns", 13, 128, true, true, 0.1, true, true},
    Variant{"a wide row", 9, 1024, true, true, 0.1, true, true},
    Variant{"a wider row", 2, 2048, true, true, 0.1, true, false},
    Variant{"one column", 3, 1, true, true, 0, true, true},
    Variant{"no rows", 0, 8, true, true, 0.1, true, true}};

struct Kind {
  std::string name;
  bool bias = true;
  NormDefinition definition;
};

/// The sums, and the normalized rows by the definition.
struct Expected {
  std::vector<double> sum, normalized;

  Expected(Kind const& kind, ResidualNormCall const& call) : sum(to_doubles(call.residual)) {
    auto const columns = static_cast<std::size_t>(call.residual.dim(1));
    std::vector<double> const branch = to_doubles(call.branch);
    std::vector<double> const factors = dropout_factors(call.dropout, call.residual.dim(0), call.residual.dim(1));
    for (std::size_t i = 0; i < branch.size(); ++i) {
      sum[i] += factors[i] * branch[i];
    }
    std::vector<double> const weight = to_doubles(call.weight);
    std::vector<double> const bias = to_doubles(call.bias);
    for (std::size_t begin = 0; !weight.empty() && begin < sum.size(); begin += columns) {
      std::vector<double> row = kind.definition(std::span(sum).subspan(begin, columns), call.epsilon);
      for (std::size_t c = 0; c < columns; ++c) {
        normalized.push_back(row[c] * weight[c] + (bias.empty() ? 0 : bias[c]));
      }
    }
  }
};

struct Tensors {
  ResidualNormCall call;
  ResidualNormOutput output;
  Tensor grad_normalized, grad_sum;
  ResidualNormGradients gradients;

  Tensors(Kind const& kind, Variant const& variant, TrialTensors& tensors, DType dtype) {
    Shape const matrix{variant.rows, variant.columns};
    Shape const vector{variant.columns};
    DType const statistics = statistics_dtype(dtype);
    call.residual = tensors.input(dtype, matrix, -3, 5);
    call.kind = kind.name;
    call.dropout = tensors.dropout(variant.dropout, variant.rows);
    if (variant.branch) {
      call.branch = tensors.input(dtype, matrix);
      output.sum = tensors.output(dtype, matrix);
      gradients.branch = tensors.output(dtype, matrix);
    }
    if (variant.norm) {
      call.weight = tensors.input(statistics, vector, 0.5, 1.5);
      call.bias = kind.bias ? tensors.input(statistics, vector) : Tensor();
      output.normalized = tensors.output(dtype, matrix);
      output.mean = tensors.output(statistics, {variant.rows});
      output.reciprocal_deviation = tensors.output(statistics, {variant.rows});
      gradients.weight = tensors.sums(statistics, vector);
      gradients.bias = kind.bias ? tensors.sums(statistics, vector) : Tensor();
    }
    auto const upstream = [&](bool given, Shared sharing) {
      Tensor const numbers = given ? tensors.input(dtype, matrix) : Tensor();
      return variant.shared == sharing ? tensors.updated(dtype, matrix, to_doubles(numbers)) : numbers;
    };
    grad_normalized = upstream(variant.grad_normalized, Shared::grad_normalized);
    grad_sum = upstream(variant.grad_sum, Shared::grad_sum);
    gradients.residual = variant.shared == Shared::nothing    ? tensors.output(dtype, matrix)
                         : variant.shared == Shared::grad_sum ? grad_sum
                                                              : grad_normalized;
  }

  /// The sum as backward requires it: without a branch it is the residual.
  ResidualNormOutput backward_output() const {
    ResidualNormOutput result = output;
    result.sum = output.sum.empty() ? call.residual : output.sum;
    return result;
  }
};

Trial<ResidualNorm> make_trial(Kind const& kind, Variant const& variant, TrialTensors& made, DType dtype) {
  Tensors const tensors(kind, variant, made, dtype);
  Trial<ResidualNorm> trial{.problem = tensors.call.problem()};
  trial.forward = [=](ResidualNorm& kernel, Execution& execution) {
    kernel.forward(execution, tensors.call, tensors.output);
  };
  trial.backward = [=](ResidualNorm& kernel, Execution& execution) {
    kernel.backward(execution, tensors.call, tensors.backward_output(), tensors.grad_normalized, tensors.grad_sum,
                    tensors.gradients);
  };
  if (kind.definition) {
    Expected const expected(kind, tensors.call);
    trial.outputs = {{"sum", tensors.output.sum, tensors.grad_sum, expected.sum},
                     {"normalized", tensors.output.normalized, tensors.grad_normalized, expected.normalized}};
  } else {
    trial.outputs = {{"sum", tensors.output.sum, tensors.grad_sum},
                     {"normalized", tensors.output.normalized, tensors.grad_normalized},
                     {"mean", tensors.output.mean},
                     {"reciprocal deviation", tensors.output.reciprocal_deviation}};
  }
  if (!variant.branch) {
    trial.outputs.front() = {"sum", tensors.call.residual, tensors.grad_sum};
  }
  std::erase_if(trial.outputs, [](TrialOutput const& output) { return output.value.empty(); });
  ResidualNormGradients const& gradients = tensors.gradients;
  trial.gradients = {{"residual", tensors.call.residual, gradients.residual},
                     {"branch", tensors.call.branch, gradients.branch},
                     {"weight", tensors.call.weight, gradients.weight, TrialTensors::start},
                     {"bias", tensors.call.bias, gradients.bias, TrialTensors::start}};
  std::erase_if(trial.gradients, [](TrialGradient const& gradient) { return gradient.variable.empty(); });
  return trial;
}

}  // namespace

void add_norm_trials(KernelRegistries& registries, std::string const& kind, NormDefinition const& definition) {
  for (bool const bias : {true, false}) {
    for (Variant const& variant : variants) {
      if (!variant.norm && !bias) {
        continue;  // without a norm there is no bias
      }
      std::string const name =
          fmt::format("{} norm: {}, {} x {}{}{}", kind, variant.name, variant.rows, variant.columns,
                      variant.dropout > 0 ? fmt::format(", dropout {}", variant.dropout) : "",
                      bias || !variant.norm ? "" : ", without bias");
      registries.of<ResidualNorm>().add_trial(name, std::bind_front(make_trial, Kind{kind, bias, definition}, variant));
    }
  }
}

void add_residual_norm_trials(KernelRegistries& registries) {
  for (NormTraits const& kind : norm_kinds) {
    add_norm_trials(registries, std::string(kind.name));
  }
}

}  // namespace heddle
