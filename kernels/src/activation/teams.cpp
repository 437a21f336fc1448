#include <heddle/core/operations/row_lanes.hpp>

#include "functions.hpp"
#include "support/factories.hpp"

namespace heddle {

namespace {

using kernels::ColumnGroup;
using kernels::group_columns;
using kernels::GroupValues;
using kernels::RowLanes;

template <class Function, class Element, class Real = kernels::ArithmeticType<Element>>
void run_forward(Execution& execution, ActivationCall const& call, Tensor const& output) {
  auto const input = kernels::rows_of<Element>(call.input);
  auto const gates = kernels::rows_of<Element>(call.gate);
  auto const outputs = kernels::rows_of<Element>(output);
  kernels::DropoutRule const dropout(call.dropout);
  std::int64_t const columns = call.input.dim(1);
  kernels::for_each_row(
      execution, "activation forward", call.input.dim(0), columns,
      KOKKOS_LAMBDA(std::int64_t row, RowLanes const& lanes) {
        lanes.for_each_group(columns, [&](ColumnGroup const& at) {
          auto const x = at.template load<Real>(input[row]);
          auto const gate = at.load_or(Real{1}, gates ? gates[row] : nullptr);
          auto const kept = at.template multipliers<Real>(dropout, row);
          GroupValues<Real> y;
          for (int i = 0; i < group_columns; ++i) {
            y[i] = Function::value(x[i]) * kept[i] * gate[i];
          }
          at.store(y, outputs[row]);
        });
      });
}

/// The tensors of a backward call.
template <class Element>
struct BackwardRows {
  kernels::Rows<Element> input, gate, output, grad_output;
  kernels::Rows<Element> grad_input, grad_gate;

  BackwardRows(ActivationCall const& call, Tensor const& given, ActivationGradients const& gradients)
      : input(kernels::rows_of<Element>(call.input)),
        gate(kernels::rows_of<Element>(call.gate)),
        output(kernels::rows_of<Element>(call.output)),
        grad_output(kernels::rows_of<Element>(given)),
        grad_input(kernels::rows_of<Element>(gradients.input)),
        grad_gate(kernels::rows_of<Element>(gradients.gate)) {}
};

template <class Function, class Element, class Real = kernels::ArithmeticType<Element>>
void differentiate(Execution& execution, ActivationCall const& call, BackwardRows<Element> const& rows) {
  kernels::DropoutRule const dropout(call.dropout);
  std::int64_t const columns = call.input.dim(1);
  kernels::for_each_row(
      execution, "activation backward", call.input.dim(0), columns,
      KOKKOS_LAMBDA(std::int64_t row, RowLanes const& lanes) {
        lanes.for_each_group(columns, [&](ColumnGroup const& at) {
          auto const x = at.template load<Real>(rows.input[row]);
          auto const gate = at.load_or(Real{1}, rows.gate ? rows.gate[row] : nullptr);
          auto const kept = at.template multipliers<Real>(dropout, row);
          auto grad = at.template load<Real>(rows.grad_output[row]);
          GroupValues<Real> of_gate;
          for (int i = 0; i < group_columns; ++i) {
            grad[i] *= kept[i];
            of_gate[i] = grad[i] * Function::value(x[i]);
            grad[i] *= gate[i] * Function::derivative(x[i]);
          }
          at.store(grad, rows.grad_input[row]);
          if (rows.grad_gate) {
            at.store(of_gate, rows.grad_gate[row]);
          }
        });
      });
}

/// relu's gradient if forward's output is available: an element that is zero there was below zero or dropped.
template <class Element, class Real = kernels::ArithmeticType<Element>>
void differentiate_relu(Execution& execution, ActivationCall const& call, BackwardRows<Element> const& rows) {
  auto const scale = static_cast<Real>(kernels::DropoutRule(call.dropout).scale);
  std::int64_t const columns = call.output.dim(1);
  kernels::for_each_row(
      execution, "relu backward", call.output.dim(0), columns, KOKKOS_LAMBDA(std::int64_t row, RowLanes const& lanes) {
        lanes.for_each_group(columns, [&](ColumnGroup const& at) {
          auto const y = at.template load<Real>(rows.output[row]);
          auto grad = at.template load<Real>(rows.grad_output[row]);
          for (int i = 0; i < group_columns; ++i) {
            grad[i] *= y[i] > Real{0} ? scale : Real{0};
          }
          at.store(grad, rows.grad_input[row]);
        });
      });
}

struct TeamActivation {
  static bool supports(ActivationProblem const& problem) { return is_built_in_activation(problem.function); }

  template <class Element>
  static void forward(Execution& execution, ActivationCall const& call, Tensor const& output) {
    kernels::BuiltInFunctions::with(
        call.function, [&]<class Function>(Function) { run_forward<Function, Element>(execution, call, output); });
  }
  template <class Element>
  static void backward(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                       ActivationGradients const& gradients) {
    kernels::BuiltInFunctions::with(call.function, [&]<class Function>(Function) {
      BackwardRows<Element> const rows(call, grad_output, gradients);
      if (std::is_same_v<Function, kernels::Relu> && !call.output.empty() && call.gate.empty()) {
        differentiate_relu<Element>(execution, call, rows);
      } else {
        differentiate<Function, Element>(execution, call, rows);
      }
    });
  }
};

}  // namespace

void add_team_activation_kernels(KernelRegistries& registries) {
  registries.of<Activation>().add("teams", speeds::teams(), std::make_shared<ActivationFrontEnd<TeamActivation>>());
}

}  // namespace heddle
