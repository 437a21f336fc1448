#include "factories.hpp"
#include "kernel_parts.hpp"

namespace heddle {

namespace {

/// Columns that one work item sums for the positions.
constexpr std::int64_t column_block = 64;

template <class Real>
void forward_as(Execution& execution, EmbeddingCall const& call, Tensor const& output) {
  auto const table = parts::rows_of<Real>(call.table);
  auto const positions = parts::rows_of<Real>(call.positions);
  auto const outputs = parts::rows_of<Real>(output);
  std::int32_t const* const id = call.tokens.id.data<std::int32_t>();
  std::int32_t const* const position = call.rows.position.data<std::int32_t>();
  parts::DropoutRule const dropout(call.dropout);
  std::int64_t const columns = call.table.dim(1);
  std::int64_t const vocabulary = call.table.dim(0);
  std::int64_t const first_token = call.first_token;
  auto const scale = static_cast<Real>(call.scale);
  parts::for_each(
      execution, "heddle::embedding", output.dim(0), KOKKOS_LAMBDA(std::int64_t row) {
        Real* const y = outputs[row];
        std::int64_t const token = id[row] - first_token;
        bool const here = token >= 0 && token < vocabulary;
        Real const* const embedding = table[here ? token : 0];
        for (std::int64_t j = 0; j < columns; ++j) {
          y[j] = here ? scale * embedding[j] : Real{0};
        }
        if (positions) {
          Real const* const place = positions[position[row]];
          for (std::int64_t j = 0; j < columns; ++j) {
            y[j] += place[j];
          }
        }
        if (dropout.active) {
          dropout.template for_each_chunk<Real>(row, columns,
                                                [=](std::int64_t begin, std::int64_t end, Real const* kept) {
                                                  for (std::int64_t j = begin; j < end; ++j) {
                                                    y[j] *= kept[j - begin];
                                                  }
                                                });
        }
      });
}

/// to = grad_output where it was kept, scaled like the kept ones, and 0 elsewhere.
template <class Real>
void undo_dropout(Execution& execution, parts::DropoutRule const& dropout, Tensor const& grad_output,
                  Tensor const& to) {
  auto const grads = parts::rows_of<Real>(grad_output);
  auto const outputs = parts::rows_of<Real>(to);
  std::int64_t const columns = grad_output.dim(1);
  parts::for_each(
      execution, "heddle::embedding_dropout", grad_output.dim(0), KOKKOS_LAMBDA(std::int64_t row) {
        Real const* const grad = grads[row];
        Real* const out = outputs[row];
        dropout.template for_each_chunk<Real>(row, columns,
                                              [=](std::int64_t begin, std::int64_t end, Real const* kept) {
                                                for (std::int64_t j = begin; j < end; ++j) {
                                                  out[j] = grad[j] * kept[j - begin];
                                                }
                                              });
      });
}

/// One work item per token id that occurs: the first of its rows in the sorted order adds them all.
template <class Real>
void add_to_table(Execution& execution, EmbeddingCall const& call, Tensor const& grad, Tensor const& grad_table) {
  auto const grads = parts::rows_of<Real>(grad);
  auto const table = parts::rows_of<Real>(grad_table);
  std::int32_t const* const id = call.tokens.id.data<std::int32_t>();
  std::int32_t const* const order = call.tokens.row_order.data<std::int32_t>();
  std::int64_t const rows = grad.dim(0);
  std::int64_t const columns = grad.dim(1);
  std::int64_t const vocabulary = grad_table.dim(0);
  std::int64_t const first_token = call.first_token;
  auto const scale = static_cast<Real>(call.scale);
  parts::for_each(
      execution, "heddle::embedding_table", rows, KOKKOS_LAMBDA(std::int64_t first) {
        std::int32_t const segment = id[order[first]];
        std::int64_t const token = segment - first_token;
        if (token < 0 || token >= vocabulary || (first > 0 && id[order[first - 1]] == segment)) {
          return;
        }
        Real* const KOKKOS_RESTRICT sum = table[token];
        for (std::int64_t i = first; i < rows && id[order[i]] == segment; ++i) {
          Real const* const KOKKOS_RESTRICT row = grads[order[i]];
          for (std::int64_t j = 0; j < columns; ++j) {
            sum[j] += scale * row[j];
          }
        }
      });
}

/// One work item per block of columns, which visits the rows in order.
template <class Real>
void add_to_positions(Execution& execution, EmbeddingCall const& call, Tensor const& grad,
                      Tensor const& grad_positions) {
  auto const grads = parts::rows_of<Real>(grad);
  auto const sums = parts::rows_of<Real>(grad_positions);
  std::int32_t const* const position = call.rows.position.data<std::int32_t>();
  std::int64_t const rows = grad.dim(0);
  std::int64_t const columns = grad.dim(1);
  std::int64_t const blocks = (columns + column_block - 1) / column_block;
  parts::for_each(
      execution, "heddle::embedding_positions", blocks, KOKKOS_LAMBDA(std::int64_t item) {
        std::int64_t const begin = item * column_block;
        std::int64_t const count = columns - begin < column_block ? columns - begin : column_block;
        for (std::int64_t row = 0; row < rows; ++row) {
          Real const* const KOKKOS_RESTRICT from = grads[row] + begin;
          Real* const KOKKOS_RESTRICT sum = sums[position[row]] + begin;
          for (std::int64_t j = 0; j < count; ++j) {
            sum[j] += from[j];
          }
        }
      });
}

class KokkosEmbedding final : public Embedding {
 public:
  bool supports(EmbeddingProblem const& problem) const override {
    return problem.dtype == problem.table_dtype && (problem.dtype == DType::float32 || problem.dtype == DType::float64);
  }

  void forward(Execution& execution, EmbeddingCall const& call, Tensor const& output) override {
    parts::with_real(output.dtype(), [&]<class Real>(Real) { forward_as<Real>(execution, call, output); });
  }

  void backward(Execution& execution, EmbeddingCall const& call, Tensor const& grad_output, Tensor const& grad_table,
                Tensor const& grad_positions) override {
    parts::with_real(grad_output.dtype(), [&]<class Real>(Real) {
      ArenaScope const scope(execution.scratch);
      Tensor grad = grad_output;
      if (call.dropout.active()) {
        grad = execution.scratch.allocate(grad_output.dtype(), grad_output.shape());
        undo_dropout<Real>(execution, parts::DropoutRule(call.dropout), grad_output, grad);
      }
      add_to_table<Real>(execution, call, grad, grad_table);
      if (!grad_positions.empty()) {
        add_to_positions<Real>(execution, call, grad, grad_positions);
      }
    });
  }
};

}  // namespace

std::shared_ptr<Embedding> make_kokkos_embedding() {
  return std::make_shared<KokkosEmbedding>();
}

}  // namespace heddle
