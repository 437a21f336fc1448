#include <heddle/core/operations/kernel_author.hpp>

#include "support/factories.hpp"

namespace heddle {

namespace {

/// The number of columns that one work item sums for the positions.
constexpr std::int64_t column_block = kernels::dropout_chunk;

/// One work item per token id that occurs: the first of its rows in the sorted order adds all of them.
template <class Element, class Real = kernels::ArithmeticType<Element>>
void add_to_table(Execution& execution, EmbeddingCall const& call, Tensor const& grad, Tensor const& grad_table) {
  auto const grads = kernels::rows_of<Element>(grad);
  auto const table = kernels::rows_of<Real>(grad_table);
  std::int32_t const* const id = call.tokens.id.data<std::int32_t>();
  std::int32_t const* const order = call.tokens.row_order.data<std::int32_t>();
  kernels::DropoutRule const dropout(call.dropout);
  std::int64_t const rows = grad.dim(0);
  std::int64_t const columns = grad.dim(1);
  std::int64_t const vocabulary = grad_table.dim(0);
  std::int64_t const first_token = call.first_token;
  auto const scale = static_cast<Real>(call.scale);
  kernels::for_each(
      execution, "heddle::embedding_table", rows, KOKKOS_LAMBDA(std::int64_t first) {
        std::int32_t const segment = id[order[first]];
        std::int64_t const token = segment - first_token;
        if (token < 0 || token >= vocabulary || (first > 0 && id[order[first - 1]] == segment)) {
          return;
        }
        Real* const KOKKOS_RESTRICT sum = table[token];
        for (std::int64_t i = first; i < rows && id[order[i]] == segment; ++i) {
          Element const* const KOKKOS_RESTRICT row = grads[order[i]];
          dropout.template for_each_chunk<Real>(order[i], columns,
                                                [=](std::int64_t begin, std::int64_t end, auto const& kept) {
                                                  for (std::int64_t j = begin; j < end; ++j) {
                                                    sum[j] += scale * kept[j - begin] * kernels::wide<Real>(row[j]);
                                                  }
                                                });
        }
      });
}

/// One work item per block of columns; it passes over the rows in order.
template <class Element, class Real = kernels::ArithmeticType<Element>>
void add_to_positions(Execution& execution, EmbeddingCall const& call, Tensor const& grad,
                      Tensor const& grad_positions) {
  auto const grads = kernels::rows_of<Element>(grad);
  auto const sums = kernels::rows_of<Real>(grad_positions);
  std::int32_t const* const position = call.rows.position.data<std::int32_t>();
  kernels::DropoutRule const dropout(call.dropout);
  std::int64_t const rows = grad.dim(0);
  std::int64_t const columns = grad.dim(1);
  std::int64_t const blocks = (columns + column_block - 1) / column_block;
  kernels::for_each(
      execution, "heddle::embedding_positions", blocks, KOKKOS_LAMBDA(std::int64_t item) {
        std::int64_t const first = item * column_block;
        std::int64_t const last = columns - first < column_block ? columns : first + column_block;
        for (std::int64_t row = 0; row < rows; ++row) {
          Element const* const KOKKOS_RESTRICT from = grads[row];
          Real* const KOKKOS_RESTRICT sum = sums[position[row]];
          dropout.template for_each_chunk<Real>(row, first, last,
                                                [=](std::int64_t begin, std::int64_t end, auto const& kept) {
                                                  for (std::int64_t j = begin; j < end; ++j) {
                                                    sum[j] += kept[j - begin] * kernels::wide<Real>(from[j]);
                                                  }
                                                });
        }
      });
}

struct KokkosEmbedding {
  template <class Element, class Real = kernels::ArithmeticType<Element>>
  static void forward(Execution& execution, EmbeddingCall const& call, Tensor const& output) {
    auto const table = kernels::rows_of<Real>(call.table);
    auto const positions = kernels::rows_of<Real>(call.positions);
    auto const outputs = kernels::rows_of<Element>(output);
    std::int32_t const* const id = call.tokens.id.data<std::int32_t>();
    std::int32_t const* const position = call.rows.position.data<std::int32_t>();
    kernels::DropoutRule const dropout(call.dropout);
    std::int64_t const columns = call.table.dim(1);
    std::int64_t const vocabulary = call.table.dim(0);
    std::int64_t const first_token = call.first_token;
    auto const scale = static_cast<Real>(call.scale);
    kernels::for_each(
        execution, "heddle::embedding", output.dim(0), KOKKOS_LAMBDA(std::int64_t row) {
          Element* const y = outputs[row];
          std::int64_t const token = id[row] - first_token;
          bool const here = token >= 0 && token < vocabulary;
          Real const* const embedding = table[here ? token : 0];
          Real const* const place = positions ? positions[position[row]] : nullptr;
          dropout.template for_each_chunk<Real>(
              row, columns, [=](std::int64_t begin, std::int64_t end, auto const& kept) {
                if (place != nullptr) {
                  for (std::int64_t j = begin; j < end; ++j) {
                    y[j] = kernels::narrow<Element>(((here ? scale * embedding[j] : Real{0}) + place[j]) *
                                                    kept[j - begin]);
                  }
                } else {
                  for (std::int64_t j = begin; j < end; ++j) {
                    y[j] = kernels::narrow<Element>(here ? scale * embedding[j] * kept[j - begin] : Real{0});
                  }
                }
              });
        });
  }

  template <class Element>
  static void backward(Execution& execution, EmbeddingCall const& call, Tensor const& grad_output,
                       Tensor const& grad_table, Tensor const& grad_positions) {
    add_to_table<Element>(execution, call, grad_output, grad_table);
    if (!grad_positions.empty()) {
      add_to_positions<Element>(execution, call, grad_output, grad_positions);
    }
  }
};

}  // namespace

void add_portable_embedding_kernels(KernelRegistries& registries) {
  registries.of<Embedding>().add("kokkos", speeds::portable, std::make_shared<EmbeddingFrontEnd<KokkosEmbedding>>());
}

}  // namespace heddle
