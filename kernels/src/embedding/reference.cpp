#include <heddle/core/operations/kernel_author.hpp>

#include "support/factories.hpp"

namespace heddle {

namespace {

/// The definition, element by element.
struct ReferenceEmbedding {
  template <class Element>
  static void forward(Execution& execution, EmbeddingCall const& call, Tensor const& output) {
    using Parameter = kernels::ArithmeticType<Element>;
    auto const table = kernels::rows_of<Parameter>(call.table);
    auto const positions = kernels::rows_of<Parameter>(call.positions);
    auto const y = kernels::rows_of<Element>(output);
    std::int32_t const* const id = call.tokens.id.data<std::int32_t>();
    std::int32_t const* const position = call.rows.position.data<std::int32_t>();
    kernels::DropoutRule const dropout(call.dropout);
    std::int64_t const columns = call.table.dim(1);
    std::int64_t const vocabulary = call.table.dim(0);
    std::int64_t const first_token = call.first_token;
    double const scale = call.scale;
    kernels::for_each(
        execution, "heddle::reference_embedding", output.dim(0), KOKKOS_LAMBDA(std::int64_t row) {
          std::int64_t const token = id[row] - first_token;
          bool const here = token >= 0 && token < vocabulary;
          for (std::int64_t j = 0; j < columns; ++j) {
            double const embedded = here ? scale * static_cast<double>(table[token][j]) : 0.0;
            double const placed = positions ? static_cast<double>(positions[position[row]][j]) : 0.0;
            y[row][j] = kernels::narrow<Element>((embedded + placed) * dropout.multiplier(row, j));
          }
        });
  }

  /// Column by column, so that one work item makes each sum, row after row.
  template <class Element>
  static void backward(Execution& execution, EmbeddingCall const& call, Tensor const& grad_output,
                       Tensor const& grad_table, Tensor const& grad_positions) {
    using Parameter = kernels::ArithmeticType<Element>;
    auto const grad_y = kernels::rows_of<Element>(grad_output);
    auto const to_table = kernels::rows_of<Parameter>(grad_table);
    auto const to_positions = kernels::rows_of<Parameter>(grad_positions);
    std::int32_t const* const id = call.tokens.id.data<std::int32_t>();
    std::int32_t const* const position = call.rows.position.data<std::int32_t>();
    kernels::DropoutRule const dropout(call.dropout);
    std::int64_t const rows = grad_output.dim(0);
    std::int64_t const vocabulary = grad_table.dim(0);
    std::int64_t const first_token = call.first_token;
    double const scale = call.scale;
    kernels::for_each(
        execution, "heddle::reference_embedding", grad_output.dim(1), KOKKOS_LAMBDA(std::int64_t j) {
          for (std::int64_t row = 0; row < rows; ++row) {
            double const grad = kernels::wide<double>(grad_y[row][j]) * dropout.multiplier(row, j);
            std::int64_t const token = id[row] - first_token;
            if (token >= 0 && token < vocabulary) {
              to_table[token][j] += static_cast<Parameter>(scale * grad);
            }
            if (to_positions) {
              to_positions[position[row]][j] += static_cast<Parameter>(grad);
            }
          }
        });
  }
};

}  // namespace

void add_embedding_kernels(KernelRegistries& registries) {
  registries.of<Embedding>().add("reference", speeds::reference,
                                 std::make_shared<EmbeddingFrontEnd<ReferenceEmbedding>>());
}

}  // namespace heddle
