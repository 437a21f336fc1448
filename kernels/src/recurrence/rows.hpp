#pragma once

#include <heddle/core/operations/kernel_author.hpp>
#include <heddle/core/operations/recurrence.hpp>

namespace heddle::kernels {

/// The tensors of a call; those of the other direction are unset.
template <class Element>
struct RecurrenceRows {
  using Real = ArithmeticType<Element>;

  Rows<Element> input, gate, output, grad_output, grad_input, grad_gate;
  Rows<Real> state;
  std::int32_t const *begin, *length, *position;
  std::int64_t sequences, columns;

  RecurrenceRows(RecurrenceCall const& call, Tensor const& result)
      : input(rows_of<Element>(call.input)),
        gate(rows_of<Element>(call.gate)),
        output(rows_of<Element>(result)),
        state(rows_of<Real>(call.state)),
        begin(call.sequences.begin.data<std::int32_t>()),
        length(call.sequences.length.data<std::int32_t>()),
        position(call.gate.empty() ? call.position.data<std::int32_t>() : nullptr),
        sequences(call.sequences.count),
        columns(call.input.dim(1)) {}
  RecurrenceRows(RecurrenceCall const& call, Tensor const& result, Tensor const& given,
                 RecurrenceGradients const& gradients)
      : RecurrenceRows(call, result) {
    grad_output = rows_of<Element>(given);
    grad_input = rows_of<Element>(gradients.input);
    grad_gate = rows_of<Element>(gradients.gate);
  }

  /// 1 - f of a row without a gate: its share of the mean.
  template <class Number>
  KOKKOS_INLINE_FUNCTION Number share(std::int64_t row) const {
    return Number{1} / static_cast<Number>(position[row] + 1);
  }
};

}  // namespace heddle::kernels
