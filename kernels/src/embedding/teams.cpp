#include <heddle/core/operations/row_lanes.hpp>

#include "rows.hpp"
#include "support/factories.hpp"
#include "support/partial_sums.hpp"

namespace heddle {

namespace {

using kernels::ColumnGroup;
using kernels::EmbeddingRows;
using kernels::group_columns;
using kernels::GroupValues;
using kernels::RowLanes;

/// group of `row` += sum.
template <class Real>
KOKKOS_INLINE_FUNCTION void add_to_row(ColumnGroup const& at, GroupValues<Real> const& sum, Real* row) {
  auto value = at.template load<Real>(row);
  for (int i = 0; i < group_columns; ++i) {
    value[i] += sum[i];
  }
  at.store(value, row);
}

/// The table's gradient: rows sorted by their token are divided into pieces of equal length, so that a frequent token
/// is the work of many teams. A piece adds tokens that lie only in it to the table. For a token that it shares with its
/// neighbours it keeps a partial sum: for its first token, which started before it, in `partial` [piece][0]; for its
/// last one, which starts in it and continues after it, in [piece][1].
template <class Element>
struct TableGradient {
  using Real = kernels::ArithmeticType<Element>;

  EmbeddingRows<Element> of;
  std::int64_t pieces;
  Real* partial;  ///< [pieces, 2, columns]

  TableGradient(EmbeddingRows<Element> const& grads, Arena& scratch)
      : of(grads),
        pieces((of.rows + kernels::rows_per_partial - 1) / kernels::rows_per_partial),
        partial(scratch.allocate(DTypeOf<Real>::value, Shape{pieces, 2, of.columns}).template data<Real>()) {}

  /// The token of a place in the sorted order; none at its ends.
  KOKKOS_INLINE_FUNCTION std::int64_t token(std::int64_t place) const {
    constexpr std::int64_t none = std::int64_t{1} << 40;
    return place < 0 || place >= of.rows ? none : std::int64_t{of.id[of.order[place]]};
  }
  KOKKOS_INLINE_FUNCTION std::int64_t begin(std::int64_t piece) const { return piece * kernels::rows_per_partial; }
  KOKKOS_INLINE_FUNCTION std::int64_t end(std::int64_t piece) const {
    return begin(piece + 1) < of.rows ? begin(piece + 1) : of.rows;
  }
  KOKKOS_INLINE_FUNCTION Real* shared_sum(std::int64_t piece, int slot) const {
    return partial + (2 * piece + slot) * of.columns;
  }

  /// sum += the gradient of the row at a place in the sorted order.
  KOKKOS_INLINE_FUNCTION void add(ColumnGroup const& at, std::int64_t place, GroupValues<Real>& sum) const {
    std::int64_t const row = of.order[place];
    auto const scale = static_cast<Real>(of.scale);
    auto const grad = at.template load<Real>(of.output[row]);
    auto const kept = at.template multipliers<Real>(of.dropout, row);
    for (int i = 0; i < group_columns; ++i) {
      sum[i] += scale * kept[i] * grad[i];
    }
  }

  KOKKOS_INLINE_FUNCTION void sum_piece(ColumnGroup const& at, std::int64_t piece) const {
    std::int64_t const last = end(piece);
    for (std::int64_t place = begin(piece); place < last;) {
      std::int64_t const current = token(place);
      bool const began_before = token(place - 1) == current;
      GroupValues<Real> sum{};
      for (; place < last && token(place) == current; ++place) {
        if (of.has(current)) {
          add(at, place, sum);
        }
      }
      if (began_before || token(place) == current) {
        at.store(sum, shared_sum(piece, began_before ? 0 : 1));
      } else if (of.has(current)) {
        add_to_row(at, sum, of.of_token(current));
      }
    }
  }

  /// Whether the piece's last token starts in it and continues after it: the piece adds that token's partial sums.
  KOKKOS_INLINE_FUNCTION bool adds_shared_sums(std::int64_t piece) const {
    std::int64_t const last = token(end(piece) - 1);
    return of.has(last) && token(end(piece)) == last && token(begin(piece) - 1) != last;
  }

  KOKKOS_INLINE_FUNCTION void add_shared_sums(ColumnGroup const& at, std::int64_t piece) const {
    std::int64_t const last = token(end(piece) - 1);
    auto sum = at.template load<Real>(shared_sum(piece, 1));
    for (std::int64_t next = piece + 1; next < pieces && token(begin(next)) == last; ++next) {
      add_to_group(at, shared_sum(next, 0), sum);
    }
    add_to_row(at, sum, of.of_token(last));
  }

 private:
  KOKKOS_INLINE_FUNCTION static void add_to_group(ColumnGroup const& at, Real const* row, GroupValues<Real>& sum) {
    auto const more = at.template load<Real>(row);
    for (int i = 0; i < group_columns; ++i) {
      sum[i] += more[i];
    }
  }
};

template <class Element>
void add_to_table(Execution& execution, EmbeddingRows<Element> const& grads) {
  ArenaScope const scope(execution.scratch);
  TableGradient<Element> const gradient(grads, execution.scratch);
  std::int64_t const columns = grads.columns;
  kernels::for_each_row(
      execution, "embedding gradient", gradient.pieces, columns,
      KOKKOS_LAMBDA(std::int64_t piece, RowLanes const& lanes) {
        lanes.for_each_group(columns, [&](ColumnGroup const& at) { gradient.sum_piece(at, piece); });
      });
  kernels::for_each_row(
      execution, "embedding gradient, frequent tokens", gradient.pieces, columns,
      KOKKOS_LAMBDA(std::int64_t piece, RowLanes const& lanes) {
        if (gradient.adds_shared_sums(piece)) {
          lanes.for_each_group(columns, [&](ColumnGroup const& at) { gradient.add_shared_sums(at, piece); });
        }
      });
}

/// One row of lanes a position; it looks at all rows.
template <class Element, class Real = kernels::ArithmeticType<Element>>
void add_to_positions(Execution& execution, EmbeddingRows<Element> const& grads, std::int64_t positions) {
  kernels::for_each_row(
      execution, "position gradient", positions, grads.columns,
      KOKKOS_LAMBDA(std::int64_t position, RowLanes const& lanes) {
        lanes.for_each_group(grads.columns, [&](ColumnGroup const& at) {
          GroupValues<Real> sum{};
          for (std::int64_t row = 0; row < grads.rows; ++row) {
            if (grads.position[row] == position) {
              auto const from = at.template load<Real>(grads.output[row]);
              auto const kept = at.template multipliers<Real>(grads.dropout, row);
              for (int i = 0; i < group_columns; ++i) {
                sum[i] += kept[i] * from[i];
              }
            }
          }
          add_to_row(at, sum, grads.positions[position]);
        });
      });
}

struct TeamEmbedding {
  template <class Element, class TableElement, class Real = kernels::ArithmeticType<Element>>
  static void forward(Execution& execution, EmbeddingCall const& call, Tensor const& output) {
    EmbeddingRows<Element, TableElement> const of(call, output, call.table, call.positions);
    auto const scale = static_cast<Real>(of.scale);
    kernels::for_each_row(
        execution, "embedding", of.rows, of.columns, KOKKOS_LAMBDA(std::int64_t row, RowLanes const& lanes) {
          lanes.for_each_group(of.columns, [&](ColumnGroup const& at) {
            auto const embedding = at.load_or(Real{0}, of.of_token(of.id[row]));
            auto const place = at.load_or(Real{0}, of.place(row));
            auto const kept = at.template multipliers<Real>(of.dropout, row);
            GroupValues<Real> y;
            for (int i = 0; i < group_columns; ++i) {
              y[i] = (scale * embedding[i] + place[i]) * kept[i];
            }
            at.store(y, of.output[row]);
          });
        });
  }

  template <class Element>
  static void backward(Execution& execution, EmbeddingCall const& call, Tensor const& grad_output,
                       Tensor const& grad_table, Tensor const& grad_positions) {
    EmbeddingRows<Element> const grads(call, grad_output, grad_table, grad_positions);
    if (grads.rows > 0 && grads.table) {
      add_to_table(execution, grads);
    }
    if (grads.positions) {
      add_to_positions(execution, grads, grad_positions.dim(0));
    }
  }
};

}  // namespace

void add_team_embedding_kernels(KernelRegistries& registries) {
  registries.of<Embedding>().add("teams", priorities::teams(), std::make_shared<EmbeddingFrontEnd<TeamEmbedding>>());
}

}  // namespace heddle
