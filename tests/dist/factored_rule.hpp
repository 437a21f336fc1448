#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <heddle/core/operations/registry.hpp>
#include <heddle/core/operations/update.hpp>
#include <memory>
#include <numeric>
#include <vector>

namespace heddle {

/// A rule with a factored second moment, as Adafactor (Shazeer & Stern 2018), a stand-in for such as a plug-in has:
/// averages over each row and each column of a matrix, the number of updates, and a momentum of the clipped updates. A
/// vector is one row, so that its columns' averages are a whole second moment. Computed on the host, in float64.
class FactoredUpdate final : public Update {
 public:
  bool supports(UpdateProblem const& problem) const override {
    return problem.rule == rule_.name && problem.dtype == DType::float32;
  }
  RuleDefinition const& rule() const override { return rule_; }

  void update(Execution& /*execution*/, UpdateCall const& call) override {
    auto const scalars = to_host<double>(call.scalars);
    auto const gradient = to_host<float>(call.gradient);
    auto value = to_host<float>(call.value);
    auto row_means = to_host<float>(call.state[0]);
    auto column_means = to_host<float>(call.state[1]);
    auto updates = to_host<float>(call.state[2]);
    auto momentum = to_host<float>(call.state[3]);
    std::size_t const columns = column_means.size();
    std::size_t const rows = row_means.size();
    updates[0] += 1;
    double const kept = 1 - std::pow(updates[0], -0.8);
    std::vector<double> direction(value.size());
    std::vector<double> of_row(rows, 0.0);
    std::vector<double> of_column(columns, 0.0);
    for (std::size_t i = 0; i < direction.size(); ++i) {
      direction[i] = scalars[update_scalars::gradient_scale] * gradient[i];
      double const square = direction[i] * direction[i] + 1e-30;
      of_row[i / columns] += square / static_cast<double>(columns);
      of_column[i % columns] += square / static_cast<double>(rows);
    }
    auto const average = [&](std::vector<float>& means, std::vector<double> const& squares) {
      for (std::size_t i = 0; i < means.size(); ++i) {
        means[i] = static_cast<float>(kept * means[i] + (1 - kept) * squares[i]);
      }
    };
    average(row_means, of_row);
    average(column_means, of_column);
    double const mean = std::accumulate(row_means.begin(), row_means.end(), 0.0) / static_cast<double>(rows);
    double squares = 0;
    for (std::size_t i = 0; i < direction.size(); ++i) {
      direction[i] /= std::sqrt(static_cast<double>(row_means[i / columns]) * column_means[i % columns] / mean);
      squares += direction[i] * direction[i];
    }
    double const clip = std::max(1.0, std::sqrt(squares / static_cast<double>(direction.size())));
    for (std::size_t i = 0; i < value.size(); ++i) {
      momentum[i] = static_cast<float>(0.9 * momentum[i] + 0.1 * direction[i] / clip);
      value[i] -= static_cast<float>(scalars[update_scalars::learning_rate] * momentum[i]);
    }
    copy_from_host(call.state[0], row_means.data());
    copy_from_host(call.state[1], column_means.data());
    copy_from_host(call.state[2], updates.data());
    copy_from_host(call.state[3], momentum.data());
    copy_from_host(call.value, value.data());
  }

 private:
  RuleDefinition rule_{.name = "factored",
                       .state = {{"factored.row_second_moment", StateShape::row},
                                 {"factored.column_second_moment", StateShape::column},
                                 {"factored.updates", StateShape::scalar},
                                 "factored.momentum"},
                       .scope = RuleDefinition::Scope::parameters};
};

inline void add_factored_rule(KernelRegistries& registries) {
  registries.of<Update>().add("factored", 10, std::make_shared<FactoredUpdate>());
}

}  // namespace heddle
