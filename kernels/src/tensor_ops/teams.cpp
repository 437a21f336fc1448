#include <heddle/core/operations/row_lanes.hpp>

#include "extents.hpp"
#include "support/factories.hpp"
#include "support/partial_sums.hpp"

namespace heddle {

namespace {

using Index = std::int64_t;
using kernels::ArithmeticType;
using kernels::ColumnGroup;
using kernels::group_columns;
using kernels::GroupValues;
using kernels::RowLanes;
using kernels::Sum;

/// Calls `body(row, group)` for the groups of all rows of a tensor.
template <class Body>
void for_each_group(Execution& execution, char const* name, Tensor const& tensor, Body const& body) {
  kernels::Extents const extents(tensor);
  kernels::for_each_group(execution, name, extents.rows, extents.columns, body);
}

struct TeamTensorOps {
  template <class Element, class Real = ArithmeticType<Element>>
  static void fill(Execution& execution, Tensor const& tensor, double value) {
    auto const targets = kernels::rows_of<Element>(tensor);
    auto const filling = static_cast<Real>(value);
    for_each_group(
        execution, "fill", tensor, KOKKOS_LAMBDA(Index row, ColumnGroup const& at) {
          at.store(at.load_or(filling, static_cast<Element const*>(nullptr)), targets[row]);
        });
  }

  template <class Element, class Real = ArithmeticType<Element>>
  static void scale(Execution& execution, Tensor const& tensor, double value) {
    auto const targets = kernels::rows_of<Element>(tensor);
    auto const factor = static_cast<Real>(value);
    for_each_group(
        execution, "scale", tensor, KOKKOS_LAMBDA(Index row, ColumnGroup const& at) {
          auto scaled = at.template load<Real>(targets[row]);
          for (int i = 0; i < group_columns; ++i) {
            scaled[i] *= factor;
          }
          at.store(scaled, targets[row]);
        });
  }

  template <class Element, class Real = ArithmeticType<Element>>
  static void add(Execution& execution, Tensor const& into, Tensor const& from) {
    auto const sources = kernels::rows_of<Element>(from);
    auto const targets = kernels::rows_of<Element>(into);
    for_each_group(
        execution, "add", into, KOKKOS_LAMBDA(Index row, ColumnGroup const& at) {
          auto sum = at.template load<Real>(targets[row]);
          auto const addend = at.template load<Real>(sources[row]);
          for (int i = 0; i < group_columns; ++i) {
            sum[i] += addend[i];
          }
          at.store(sum, targets[row]);
        });
  }

  template <class Element, class Real = ArithmeticType<Element>>
  static void mix(Execution& execution, Tensor const& into, Tensor const& from, Tensor const& share) {
    auto const sources = kernels::rows_of<Element>(from);
    auto const targets = kernels::rows_of<Element>(into);
    double const* const part = share.data<double>();
    for_each_group(
        execution, "mix", into, KOKKOS_LAMBDA(Index row, ColumnGroup const& at) {
          auto kept = at.template load<Real>(targets[row]);
          auto const other = at.template load<Real>(sources[row]);
          auto const factor = static_cast<Real>(*part);
          for (int i = 0; i < group_columns; ++i) {
            kept[i] += factor * (other[i] - kept[i]);
          }
          at.store(kept, targets[row]);
        });
  }

  template <class From, class To>
  static void copy(Execution& execution, Tensor const& from, Tensor const& to) {
    using Real = std::conditional_t<std::is_same_v<From, double> || std::is_same_v<To, double>, double, float>;
    auto const sources = kernels::rows_of<From>(from);
    auto const targets = kernels::rows_of<To>(to);
    for_each_group(
        execution, "copy", to, KOKKOS_LAMBDA(Index row, ColumnGroup const& at) {
          at.store(at.template load<Real>(sources[row]), targets[row]);
        });
  }

  /// Sums over blocks of rows, then over the blocks.
  template <class Element, class Real = ArithmeticType<Element>>
  static void add_column_sums(Execution& execution, Tensor const& matrix, Tensor const& sums) {
    ArenaScope const scope(execution.scratch);
    auto const source = kernels::rows_of<Element>(matrix);
    Index const rows = matrix.dim(0);
    Index const columns = matrix.dim(1);
    Index const blocks = (rows + kernels::rows_per_partial - 1) / kernels::rows_per_partial;
    Tensor const partial = execution.scratch.allocate(DTypeOf<Real>::value, Shape{blocks, columns});
    auto const of_block = kernels::rows_of<Real>(partial);
    kernels::for_each_group(
        execution, "column sums", blocks, columns, KOKKOS_LAMBDA(Index block, ColumnGroup const& at) {
          Index const begin = block * kernels::rows_per_partial;
          Index const end = rows - begin < kernels::rows_per_partial ? rows : begin + kernels::rows_per_partial;
          GroupValues<Real> sum{};
          for (Index row = begin; row < end; ++row) {
            auto const addend = at.template load<Real>(source[row]);
            for (int i = 0; i < group_columns; ++i) {
              sum[i] += addend[i];
            }
          }
          at.store(sum, of_block[block]);
        });
    kernels::add_partial_sums<Real>(execution, of_block.data, blocks, columns, sums);
  }

  /// Sums over blocks of elements, a team's each, then over the blocks.
  template <class Element>
  static void add_sum_of_squares(Execution& execution, Tensor const& tensor, Tensor const& into) {
    constexpr Index block = 1 << 16;
    ArenaScope const scope(execution.scratch);
    Element const* const elements = tensor.data<Element>();
    Index const size = tensor.size();
    Index const blocks = (size + block - 1) / block;
    Tensor const partial = execution.scratch.allocate(DType::float64, Shape{blocks});
    double* const sums = partial.data<double>();
    kernels::for_each_row(
        execution, "sum of squares", blocks, block, KOKKOS_LAMBDA(Index item, RowLanes const& lanes) {
          Index const begin = item * block;
          Element const* const first = elements + begin;
          auto const sum = lanes.template reduce_groups<Sum<double>>(
              size - begin < block ? size - begin : block, [&](ColumnGroup const& at, Sum<double>& partial_sum) {
                auto const x = at.template load<ArithmeticType<Element>>(first);
                for (int i = 0; i < group_columns; ++i) {
                  partial_sum.value += static_cast<double>(x[i]) * static_cast<double>(x[i]);
                }
              });
          lanes.once([&] { sums[item] = sum.value; });
        });
    kernels::add_partial_sums<double>(execution, sums, blocks, 1, into);
  }

  template <class Element, class Real = ArithmeticType<Element>>
  static void copy_rows(Execution& execution, Tensor const& from, Tensor const& index, Tensor const& to,
                        Tensor const& place) {
    auto const sources = kernels::rows_of<Element>(from);
    auto const targets = kernels::rows_of<Element>(to);
    kernels::RowPairs const rows(to, index, place);
    kernels::for_each_group(
        execution, "copy rows", rows.count, to.dim(1), KOKKOS_LAMBDA(Index i, ColumnGroup const& at) {
          at.store(at.template load<Real>(sources[rows.from(i)]), targets[rows.to(i)]);
        });
  }

  template <class Element>
  static void gather_columns(Execution& execution, Tensor const& from, Tensor const& index, Tensor const& to) {
    auto const sources = kernels::rows_of<Element>(from);
    auto const targets = kernels::rows_of<Element>(to);
    std::int32_t const* const columns = index.data<std::int32_t>();
    Index const count = to.dim(1);
    kernels::for_each_row(
        execution, "gather columns", to.dim(0), count, KOKKOS_LAMBDA(Index row, RowLanes const& lanes) {
          lanes.for_each(count, [&](Index j) { targets[row][j] = sources[row][columns[j]]; });
        });
  }

  /// A lane looks for all columns that are added to one: in order, and to no other lane's.
  template <class Element, class Real = ArithmeticType<Element>>
  static void add_gathered_columns(Execution& execution, Tensor const& from, Tensor const& index, Tensor const& into) {
    auto const sources = kernels::rows_of<Element>(from);
    auto const targets = kernels::rows_of<Element>(into);
    std::int32_t const* const columns = index.data<std::int32_t>();
    Index const count = from.dim(1);
    Index const target_columns = into.dim(1);
    kernels::for_each_row(
        execution, "add gathered columns", into.dim(0), target_columns,
        KOKKOS_LAMBDA(Index row, RowLanes const& lanes) {
          lanes.for_each(target_columns, [&](Index column) {
            Element& target = targets[row][column];
            for (Index j = 0; j < count; ++j) {
              if (columns[j] == column) {
                target = kernels::narrow<Element>(kernels::wide<Real>(target) + kernels::wide<Real>(sources[row][j]));
              }
            }
          });
        });
  }

  template <class Element, class Real = ArithmeticType<Element>>
  static void rotate(Execution& execution, Tensor const& matrix, Rotation const& rotation) {
    auto const rows = kernels::rows_of<Element>(matrix);
    auto const angles = kernels::rows_of<Real>(rotation.table);
    std::int32_t const* const positions = rotation.position.data<std::int32_t>();
    Index const pairs = rotation.table.dim(1) / 2;  // in each group of columns
    Index const all_pairs = matrix.dim(1) / 2;
    Real const direction = rotation.back ? Real{-1} : Real{1};
    bool const interleaved = rotation.layout == PairLayout::interleaved;
    kernels::for_each_row(
        execution, "rotate", matrix.dim(0), all_pairs, KOKKOS_LAMBDA(Index row, RowLanes const& lanes) {
          Real const* const angle = angles[positions[row]];
          lanes.for_each(all_pairs, [&](Index index) {
            Index const pair = index % pairs;
            Element* const columns = rows[row] + (index - pair) * 2 + (interleaved ? 2 * pair : pair);
            Index const distance = interleaved ? 1 : pairs;
            Real const cosine = angle[2 * pair];
            Real const sine = direction * angle[2 * pair + 1];
            Real const first = kernels::wide<Real>(columns[0]);
            Real const second = kernels::wide<Real>(columns[distance]);
            columns[0] = kernels::narrow<Element>(first * cosine - second * sine);
            columns[distance] = kernels::narrow<Element>(first * sine + second * cosine);
          });
        });
  }

  template <class Element, class Real = ArithmeticType<Element>>
  static void cap(Execution& execution, Tensor const& values, double limit) {
    auto const rows = kernels::rows_of<Element>(values);
    auto const highest = static_cast<Real>(limit);
    for_each_group(
        execution, "cap", values, KOKKOS_LAMBDA(Index row, ColumnGroup const& at) {
          auto value = at.template load<Real>(rows[row]);
          for (int i = 0; i < group_columns; ++i) {
            value[i] = highest * fast_tanh(value[i] / highest);
          }
          at.store(value, rows[row]);
        });
  }

  template <class Element, class Real = ArithmeticType<Element>>
  static void cap_backward(Execution& execution, Tensor const& capped, Tensor const& gradient, double limit) {
    auto const results = kernels::rows_of<Element>(capped);
    auto const rows = kernels::rows_of<Element>(gradient);
    auto const highest = static_cast<Real>(limit);
    for_each_group(
        execution, "cap backward", gradient, KOKKOS_LAMBDA(Index row, ColumnGroup const& at) {
          auto const result = at.template load<Real>(results[row]);
          auto value = at.template load<Real>(rows[row]);
          for (int i = 0; i < group_columns; ++i) {
            Real const tanh = result[i] / highest;
            value[i] *= 1 - tanh * tanh;
          }
          at.store(value, rows[row]);
        });
  }
};

}  // namespace

void add_team_tensor_ops_kernels(KernelRegistries& registries) {
  registries.of<TensorOps>().add("teams", priorities::teams(), std::make_shared<TensorOpsFrontEnd<TeamTensorOps>>());
}

}  // namespace heddle
