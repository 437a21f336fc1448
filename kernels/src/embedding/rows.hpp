#pragma once

#include <heddle/core/operations/embedding.hpp>
#include <heddle/core/operations/kernel_author.hpp>

namespace heddle::kernels {

/// The tensors of a call: forward's output and tables, or their gradients.
template <class Element, class TableElement = ArithmeticType<Element>>
struct EmbeddingRows {
  using Real = ArithmeticType<Element>;

  Rows<Element> output;
  Rows<TableElement> table;
  Rows<Real> positions;
  std::int32_t const *id, *position, *order;  ///< of each row; rows in the order of their tokens
  DropoutRule dropout;
  std::int64_t rows, columns, vocabulary, first_token;
  double scale;

  EmbeddingRows(EmbeddingCall const& call, Tensor const& of_output, Tensor const& of_table, Tensor const& of_positions)
      : output(rows_of<Element>(of_output)),
        table(rows_of<TableElement>(of_table)),
        positions(rows_of<Real>(of_positions)),
        id(call.tokens.id.data<std::int32_t>()),
        position(rows_of<std::int32_t>(call.rows.position).data),
        order(rows_of<std::int32_t>(call.tokens.row_order).data),
        dropout(call.dropout),
        rows(of_output.dim(0)),
        columns(of_output.dim(1)),
        vocabulary(of_table.empty() ? 0 : of_table.dim(0)),
        first_token(call.first_token),
        scale(call.scale) {}

  /// Whether this rank's part of the table has the token.
  KOKKOS_INLINE_FUNCTION bool has(std::int64_t token) const {
    return token >= first_token && token < first_token + vocabulary;
  }
  /// The token's row of the table; null where another rank has it.
  KOKKOS_INLINE_FUNCTION TableElement* of_token(std::int64_t token) const {
    return has(token) ? table[token - first_token] : nullptr;
  }
  /// The row of the table of positions that belongs to a row; null without a table.
  KOKKOS_INLINE_FUNCTION Real* place(std::int64_t row) const { return positions ? positions[position[row]] : nullptr; }
};

}  // namespace heddle::kernels
