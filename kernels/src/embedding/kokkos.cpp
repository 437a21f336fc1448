#include "rows.hpp"
#include "support/factories.hpp"

namespace heddle {

namespace {

using kernels::EmbeddingRows;

/// The number of columns that one work item sums for the positions.
constexpr std::int64_t column_block = kernels::dropout_chunk;

/// One work item per token id that occurs: the first of its rows in the sorted order adds all of them.
template <class Element, class Real = kernels::ArithmeticType<Element>>
void add_to_table(Execution& execution, EmbeddingRows<Element> const& grads) {
  auto const scale = static_cast<Real>(grads.scale);
  kernels::for_each(
      execution, "heddle::embedding_table", grads.rows, KOKKOS_LAMBDA(std::int64_t first) {
        std::int32_t const* const id = grads.id;
        std::int32_t const* const order = grads.order;
        std::int32_t const token = id[order[first]];
        if (!grads.has(token) || (first > 0 && id[order[first - 1]] == token)) {
          return;
        }
        Real* const KOKKOS_RESTRICT sum = grads.of_token(token);
        for (std::int64_t i = first; i < grads.rows && id[order[i]] == token; ++i) {
          Element const* const KOKKOS_RESTRICT row = grads.output[order[i]];
          grads.dropout.template for_each_chunk<Real>(
              order[i], grads.columns, [=](std::int64_t begin, std::int64_t end, auto const& kept) {
                for (std::int64_t j = begin; j < end; ++j) {
                  sum[j] += scale * kept[j - begin] * kernels::wide<Real>(row[j]);
                }
              });
        }
      });
}

/// One work item per block of columns; it passes over the rows in order.
template <class Element, class Real = kernels::ArithmeticType<Element>>
void add_to_positions(Execution& execution, EmbeddingRows<Element> const& grads) {
  std::int64_t const blocks = (grads.columns + column_block - 1) / column_block;
  kernels::for_each(
      execution, "heddle::embedding_positions", blocks, KOKKOS_LAMBDA(std::int64_t item) {
        std::int64_t const first = item * column_block;
        std::int64_t const last = grads.columns - first < column_block ? grads.columns : first + column_block;
        for (std::int64_t row = 0; row < grads.rows; ++row) {
          Element const* const KOKKOS_RESTRICT from = grads.output[row];
          Real* const KOKKOS_RESTRICT sum = grads.place(row);
          grads.dropout.template for_each_chunk<Real>(row, first, last,
                                                      [=](std::int64_t begin, std::int64_t end, auto const& kept) {
                                                        for (std::int64_t j = begin; j < end; ++j) {
                                                          sum[j] += kept[j - begin] * kernels::wide<Real>(from[j]);
                                                        }
                                                      });
        }
      });
}

struct KokkosEmbedding {
  template <class Element, class TableElement, class Real = kernels::ArithmeticType<Element>>
  static void forward(Execution& execution, EmbeddingCall const& call, Tensor const& output) {
    EmbeddingRows<Element, TableElement> const of(call, output, call.table, call.positions);
    auto const scale = static_cast<Real>(of.scale);
    kernels::for_each(
        execution, "heddle::embedding", of.rows, KOKKOS_LAMBDA(std::int64_t row) {
          Element* const y = of.output[row];
          bool const here = of.has(of.id[row]);
          TableElement const* const embedding = here ? of.of_token(of.id[row]) : of.table[0];
          Real const* const place = of.place(row);
          of.dropout.template for_each_chunk<Real>(
              row, of.columns, [=](std::int64_t begin, std::int64_t end, auto const& kept) {
                if (place != nullptr) {
                  for (std::int64_t j = begin; j < end; ++j) {
                    y[j] = kernels::narrow<Element>(
                        ((here ? scale * kernels::wide<Real>(embedding[j]) : Real{0}) + place[j]) * kept[j - begin]);
                  }
                } else {
                  for (std::int64_t j = begin; j < end; ++j) {
                    y[j] = kernels::narrow<Element>(here ? scale * kernels::wide<Real>(embedding[j]) * kept[j - begin]
                                                         : Real{0});
                  }
                }
              });
        });
  }

  template <class Element>
  static void backward(Execution& execution, EmbeddingCall const& call, Tensor const& grad_output,
                       Tensor const& grad_table, Tensor const& grad_positions) {
    EmbeddingRows<Element> const grads(call, grad_output, grad_table, grad_positions);
    if (grads.table) {
      add_to_table(execution, grads);
    }
    if (grads.positions) {
      add_to_positions(execution, grads);
    }
  }
};

}  // namespace

void add_portable_embedding_kernels(KernelRegistries& registries) {
  registries.of<Embedding>().add("kokkos", priorities::portable,
                                 std::make_shared<EmbeddingFrontEnd<KokkosEmbedding>>());
}

}  // namespace heddle
