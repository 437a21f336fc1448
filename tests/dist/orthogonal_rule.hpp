#pragma once

#include <algorithm>
#include <cmath>
#include <heddle/core/operations/registry.hpp>
#include <heddle/core/operations/update.hpp>
#include <memory>
#include <vector>

namespace heddle {

/// A rule over matrices, a stand-in for such as a plug-in has: the update is the momentum with all its singular values
/// replaced by 1, by a Newton-Schulz iteration. Computed on the host, in float64.
class OrthogonalUpdate final : public Update {
 public:
  bool supports(UpdateProblem const& problem) const override {
    return problem.rule == rule_.name && problem.dtype == DType::float32;
  }
  RuleDefinition const& rule() const override { return rule_; }

  void update(Execution& /*execution*/, UpdateCall const& call) override {
    auto const scalars = to_host<double>(call.scalars);
    auto const gradient = to_host<float>(call.gradient);
    auto momentum = to_host<float>(call.state[0]);
    auto value = to_host<float>(call.value);
    double const scale = scalars[update_scalars::gradient_scale];
    for (std::size_t i = 0; i < momentum.size(); ++i) {
      momentum[i] = static_cast<float>(0.9 * momentum[i] + scale * gradient[i]);
    }
    std::size_t const rows = static_cast<std::size_t>(call.value.dim(0));
    Matrix const direction = orthogonalised({momentum.begin(), momentum.end()}, rows);
    for (std::size_t i = 0; i < value.size(); ++i) {
      value[i] -= static_cast<float>(scalars[update_scalars::learning_rate] * direction[i]);
    }
    copy_from_host(call.state[0], momentum.data());
    copy_from_host(call.value, value.data());
  }

 private:
  using Matrix = std::vector<double>;

  /// a b, or a bᵀ, of `rows` rows of a.
  static Matrix product(Matrix const& a, Matrix const& b, std::size_t rows, bool transpose_b) {
    std::size_t const inner = a.size() / rows;
    std::size_t const columns = b.size() / inner;
    Matrix result(rows * columns, 0.0);
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = 0; j < columns; ++j) {
        for (std::size_t k = 0; k < inner; ++k) {
          result[i * columns + j] += a[i * inner + k] * (transpose_b ? b[j * inner + k] : b[k * columns + j]);
        }
      }
    }
    return result;
  }

  static Matrix orthogonalised(Matrix x, std::size_t rows) {
    constexpr int iterations = 40;
    double squares = 0;
    for (double const each : x) {
      squares += each * each;
    }
    for (double& each : x) {
      each /= std::sqrt(std::max(squares, 1e-30));
    }
    for (int iteration = 0; iteration < iterations; ++iteration) {
      Matrix const cube = product(product(x, x, rows, true), x, rows, false);
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = 1.5 * x[i] - 0.5 * cube[i];
      }
    }
    return x;
  }

  RuleDefinition rule_{
      .name = "orthogonal", .state = {"orthogonal.momentum"}, .scope = RuleDefinition::Scope::parameters};
};

inline void add_orthogonal_rule(KernelRegistries& registries) {
  registries.of<Update>().add("orthogonal", 10, std::make_shared<OrthogonalUpdate>());
}

}  // namespace heddle
