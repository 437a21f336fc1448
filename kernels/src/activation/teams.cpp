#include <heddle/core/operations/row_lanes.hpp>

#include "functions.hpp"
#include "support/factories.hpp"

namespace heddle {

namespace {

using kernels::ActivationRows;
using kernels::ColumnGroup;
using kernels::group_columns;
using kernels::GroupValues;
using kernels::RowLanes;

template <class Function, class Element, class Real = kernels::ArithmeticType<Element>>
void run_forward(Execution& execution, ActivationRows<Element> const& of) {
  kernels::for_each_row(
      execution, "activation forward", of.rows, of.columns, KOKKOS_LAMBDA(std::int64_t row, RowLanes const& lanes) {
        lanes.for_each_group(of.columns, [&](ColumnGroup const& at) {
          auto const x = at.template load<Real>(of.input[row]);
          auto const gate = at.load_or(Real{1}, of.gate ? of.gate[row] : nullptr);
          auto const kept = at.template multipliers<Real>(of.dropout, row);
          GroupValues<Real> y;
          for (int i = 0; i < group_columns; ++i) {
            y[i] = Function::value(x[i]) * kept[i] * gate[i];
          }
          at.store(y, of.output[row]);
        });
      });
}

template <class Function, class Element, class Real = kernels::ArithmeticType<Element>>
void differentiate(Execution& execution, ActivationRows<Element> const& of) {
  kernels::for_each_row(
      execution, "activation backward", of.rows, of.columns, KOKKOS_LAMBDA(std::int64_t row, RowLanes const& lanes) {
        lanes.for_each_group(of.columns, [&](ColumnGroup const& at) {
          auto const x = at.template load<Real>(of.input[row]);
          auto const gate = at.load_or(Real{1}, of.gate ? of.gate[row] : nullptr);
          auto const kept = at.template multipliers<Real>(of.dropout, row);
          auto grad = at.template load<Real>(of.grad_output[row]);
          GroupValues<Real> of_gate;
          for (int i = 0; i < group_columns; ++i) {
            grad[i] *= kept[i];
            of_gate[i] = grad[i] * Function::value(x[i]);
            grad[i] *= gate[i] * Function::derivative(x[i]);
          }
          at.store(grad, of.grad_input[row]);
          if (of.grad_gate) {
            at.store(of_gate, of.grad_gate[row]);
          }
        });
      });
}

/// relu's gradient if forward's output is available: an element that is zero there was below zero or dropped.
template <class Element, class Real = kernels::ArithmeticType<Element>>
void differentiate_relu(Execution& execution, ActivationRows<Element> const& of) {
  auto const scale = static_cast<Real>(of.dropout.scale);
  kernels::for_each_row(
      execution, "relu backward", of.rows, of.columns, KOKKOS_LAMBDA(std::int64_t row, RowLanes const& lanes) {
        lanes.for_each_group(of.columns, [&](ColumnGroup const& at) {
          auto const y = at.template load<Real>(of.output[row]);
          auto grad = at.template load<Real>(of.grad_output[row]);
          for (int i = 0; i < group_columns; ++i) {
            grad[i] *= y[i] > Real{0} ? scale : Real{0};
          }
          at.store(grad, of.grad_input[row]);
        });
      });
}

struct TeamActivation {
  static bool supports(ActivationProblem const& problem) { return is_built_in_activation(problem.function); }

  template <class Element>
  static void forward(Execution& execution, ActivationCall const& call, Tensor const& output) {
    ActivationRows<Element> const rows(call, output);
    kernels::BuiltInFunctions::with(call.function,
                                    [&]<class Function>(Function) { run_forward<Function>(execution, rows); });
  }
  template <class Element>
  static void backward(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                       ActivationGradients const& gradients) {
    ActivationRows<Element> const rows(call, grad_output, gradients);
    kernels::BuiltInFunctions::with(call.function, [&]<class Function>(Function) {
      if (std::is_same_v<Function, kernels::Relu> && rows.output && !rows.gate) {
        differentiate_relu(execution, rows);
      } else {
        differentiate<Function>(execution, rows);
      }
    });
  }
};

}  // namespace

void add_team_activation_kernels(KernelRegistries& registries) {
  registries.of<Activation>().add("teams", priorities::teams(), std::make_shared<ActivationFrontEnd<TeamActivation>>());
}

}  // namespace heddle
