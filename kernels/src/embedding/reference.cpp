#include "rows.hpp"
#include "support/factories.hpp"

namespace heddle {

namespace {

/// The definition, element by element.
struct ReferenceEmbedding {
  template <class Element, class TableElement>
  static void forward(Execution& execution, EmbeddingCall const& call, Tensor const& output) {
    kernels::EmbeddingRows<Element, TableElement> const of(call, output, call.table, call.positions);
    kernels::for_each(
        execution, "heddle::reference_embedding", of.rows, KOKKOS_LAMBDA(std::int64_t row) {
          auto const* const embedding = of.of_token(of.id[row]);
          auto const* const place = of.place(row);
          for (std::int64_t j = 0; j < of.columns; ++j) {
            double const embedded = embedding != nullptr ? of.scale * kernels::wide<double>(embedding[j]) : 0.0;
            double const placed = place != nullptr ? static_cast<double>(place[j]) : 0.0;
            of.output[row][j] = kernels::narrow<Element>((embedded + placed) * of.dropout.multiplier(row, j));
          }
        });
  }

  /// Column by column, so that one work item makes each sum, row after row.
  template <class Element, class Real = kernels::ArithmeticType<Element>>
  static void backward(Execution& execution, EmbeddingCall const& call, Tensor const& grad_output,
                       Tensor const& grad_table, Tensor const& grad_positions) {
    kernels::EmbeddingRows<Element> const grads(call, grad_output, grad_table, grad_positions);
    kernels::for_each(
        execution, "heddle::reference_embedding", grads.columns, KOKKOS_LAMBDA(std::int64_t j) {
          for (std::int64_t row = 0; row < grads.rows; ++row) {
            double const grad = kernels::wide<double>(grads.output[row][j]) * grads.dropout.multiplier(row, j);
            if (Real* const embedding = grads.of_token(grads.id[row])) {
              embedding[j] += static_cast<Real>(grads.scale * grad);
            }
            if (Real* const place = grads.place(row)) {
              place[j] += static_cast<Real>(grad);
            }
          }
        });
  }
};

}  // namespace

void add_embedding_kernels(KernelRegistries& registries) {
  registries.of<Embedding>().add("reference", priorities::reference,
                                 std::make_shared<EmbeddingFrontEnd<ReferenceEmbedding>>());
}

}  // namespace heddle
