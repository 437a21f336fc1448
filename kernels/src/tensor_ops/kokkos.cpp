#include <heddle/core/operations/kernel_author.hpp>

#include "extents.hpp"
#include "support/factories.hpp"

namespace heddle {

namespace {

using Index = std::int64_t;
using kernels::ArithmeticType;

/// The number of elements of a row, or of a sum, that one work item processes.
constexpr Index block = 4096;
/// The number of columns, and of rows between two roundings into the total, of a column sum's work item.
constexpr Index column_block = 64;
constexpr Index row_block = 128;

/// The same element, converted to a number and back: loops that assign a BFloat16, a class, are not vectorised.
template <class Element>
KOKKOS_INLINE_FUNCTION Element same(Element element) {
  return kernels::narrow_again<Element>(kernels::wide<ArithmeticType<Element>>(element));
}

/// Calls `body(row, begin, end)` for pieces of each row's columns.
template <class Body>
void for_each_piece(Execution& execution, char const* name, Tensor const& tensor, Body const& body) {
  kernels::Extents const extents(tensor);
  Index const pieces = (extents.columns + block - 1) / block;
  kernels::for_each(
      execution, name, extents.rows * pieces, KOKKOS_LAMBDA(Index item) {
        Index const begin = item % pieces * block;
        body(item / pieces, begin, extents.columns - begin < block ? extents.columns : begin + block);
      });
}

/// total[j] += the sum of column j, for `columns` <= column_block.
template <class Element, class Sum>
KOKKOS_INLINE_FUNCTION void add_rows(kernels::Rows<Element const> const& rows, Index count, Index columns,
                                     Sum (&total)[column_block]) {
  Sum part[column_block] = {};
  for (Index row = 0; row < count; ++row) {
    Element const* const from = rows[row];
    for (Index j = 0; j < columns; ++j) {
      part[j] += kernels::wide<Sum>(from[j]);
    }
  }
  for (Index j = 0; j < column_block; ++j) {
    total[j] += part[j];
  }
}

/// Turns pair i of `pairs`, whose numbers stand in the columns i * step and i * step + distance.
template <class Element, class Real>
KOKKOS_INLINE_FUNCTION void turn_pairs(Element* const KOKKOS_RESTRICT columns, Real const* const KOKKOS_RESTRICT angle,
                                       Real direction, Index pairs, Index step, Index distance) {
  for (Index pair = 0; pair < pairs; ++pair) {
    Real const cosine = angle[2 * pair];
    Real const sine = direction * angle[2 * pair + 1];
    Real const first = kernels::wide<Real>(columns[pair * step]);
    Real const second = kernels::wide<Real>(columns[pair * step + distance]);
    columns[pair * step] = kernels::narrow<Element>(first * cosine - second * sine);
    columns[pair * step + distance] = kernels::narrow<Element>(first * sine + second * cosine);
  }
}

struct KokkosTensorOps {
  template <class Element>
  static void fill(Execution& execution, Tensor const& tensor, double value) {
    auto const targets = kernels::rows_of<Element>(tensor);
    auto const filling = static_cast<ArithmeticType<Element>>(value);
    for_each_piece(
        execution, "heddle::fill", tensor, KOKKOS_LAMBDA(Index row, Index begin, Index end) {
          Element* const target = targets[row];
          // A local copy, which no store can change.
          ArithmeticType<Element> const element = filling;
          for (Index j = begin; j < end; ++j) {
            target[j] = kernels::narrow<Element>(element);
          }
        });
  }

  template <class Element>
  static void scale(Execution& execution, Tensor const& tensor, double value) {
    using Real = ArithmeticType<Element>;
    auto const targets = kernels::rows_of<Element>(tensor);
    auto const factor = static_cast<Real>(value);
    for_each_piece(
        execution, "heddle::scale", tensor, KOKKOS_LAMBDA(Index row, Index begin, Index end) {
          Element* const target = targets[row];
          Real const by = factor;
          for (Index j = begin; j < end; ++j) {
            target[j] = kernels::narrow_again<Element>(kernels::wide<Real>(target[j]) * by);
          }
        });
  }

  template <class Element>
  static void add(Execution& execution, Tensor const& into, Tensor const& from) {
    using Sum = ArithmeticType<Element>;
    auto const sources = kernels::rows_of<Element>(from);
    auto const targets = kernels::rows_of<Element>(into);
    for_each_piece(
        execution, "heddle::add", into, KOKKOS_LAMBDA(Index row, Index begin, Index end) {
          Element const* const source = sources[row];
          Element* const target = targets[row];
          for (Index j = begin; j < end; ++j) {
            target[j] = kernels::narrow_again<Element>(kernels::wide<Sum>(target[j]) + kernels::wide<Sum>(source[j]));
          }
        });
  }

  template <class Element>
  static void mix(Execution& execution, Tensor const& into, Tensor const& from, Tensor const& share) {
    using Sum = ArithmeticType<Element>;
    auto const sources = kernels::rows_of<Element>(from);
    auto const targets = kernels::rows_of<Element>(into);
    double const* const part = share.data<double>();
    for_each_piece(
        execution, "heddle::mix", into, KOKKOS_LAMBDA(Index row, Index begin, Index end) {
          Element const* const source = sources[row];
          Element* const target = targets[row];
          auto const factor = static_cast<Sum>(*part);
          for (Index j = begin; j < end; ++j) {
            Sum const kept = kernels::wide<Sum>(target[j]);
            target[j] = kernels::narrow_again<Element>(kept + factor * (kernels::wide<Sum>(source[j]) - kept));
          }
        });
  }

  template <class From, class To>
  static void copy(Execution& execution, Tensor const& from, Tensor const& to) {
    auto const sources = kernels::rows_of<From>(from);
    auto const targets = kernels::rows_of<To>(to);
    for_each_piece(
        execution, "heddle::copy", to, KOKKOS_LAMBDA(Index row, Index begin, Index end) {
          From const* const KOKKOS_RESTRICT source = sources[row];
          To* const KOKKOS_RESTRICT target = targets[row];
          for (Index j = begin; j < end; ++j) {
            if constexpr (std::is_same_v<From, To>) {
              target[j] = same(source[j]);
            } else {
              target[j] =
                  static_cast<To>(static_cast<ArithmeticType<To>>(static_cast<ArithmeticType<From>>(source[j])));
            }
          }
        });
  }

  template <class Element>
  static void add_column_sums(Execution& execution, Tensor const& matrix, Tensor const& sums) {
    using Sum = ArithmeticType<Element>;
    auto const source = kernels::rows_of<Element>(matrix);
    Sum* const target = sums.data<Sum>();
    Index const rows = matrix.dim(0);
    Index const columns = matrix.dim(1);
    Index const blocks = (columns + column_block - 1) / column_block;
    kernels::for_each(
        execution, "heddle::column_sums", blocks, KOKKOS_LAMBDA(Index item) {
          Index const first = item * column_block;
          Index const count = columns - first < column_block ? columns - first : column_block;
          Sum total[column_block] = {};
          for (Index begin = 0; begin < rows; begin += row_block) {
            kernels::Rows<Element const> const part{source[begin] + first, source.stride};
            Index const height = rows - begin < row_block ? rows - begin : row_block;
            // The usual number of columns as a constant: their sums stay in registers.
            if (count == column_block) {
              add_rows(part, height, column_block, total);
            } else {
              add_rows(part, height, count, total);
            }
          }
          for (Index j = 0; j < count; ++j) {
            target[first + j] += total[j];
          }
        });
  }

  template <class Element>
  static void add_sum_of_squares(Execution& execution, Tensor const& tensor, Tensor const& into) {
    Element const* const elements = tensor.data<Element>();
    Index const size = tensor.size();
    Index const blocks = (size + block - 1) / block;
    ArenaScope const scope(execution.scratch);
    Tensor const partial = execution.scratch.allocate(DType::float64, Shape{blocks});
    double* const sums = partial.data<double>();
    kernels::for_each(
        execution, "heddle::sum_of_squares", blocks, KOKKOS_LAMBDA(Index item) {
          Index const end = size - item * block < block ? size : (item + 1) * block;
          double sum = 0;
          for (Index i = item * block; i < end; ++i) {
            auto const value = static_cast<double>(static_cast<ArithmeticType<Element>>(elements[i]));
            sum += value * value;
          }
          sums[item] = sum;
        });
    double* const total = into.data<double>();
    kernels::for_each(
        execution, "heddle::add_sum_of_squares", 1, KOKKOS_LAMBDA(Index) {
          double sum = 0;
          for (Index i = 0; i < blocks; ++i) {
            sum += sums[i];
          }
          *total += sum;
        });
  }

  template <class Element>
  static void copy_rows(Execution& execution, Tensor const& from, Tensor const& index, Tensor const& to,
                        Tensor const& place) {
    auto const sources = kernels::rows_of<Element>(from);
    auto const targets = kernels::rows_of<Element>(to);
    kernels::RowPairs const rows(to, index, place);
    Index const columns = to.dim(1);
    kernels::for_each(
        execution, "heddle::copy_rows", rows.count, KOKKOS_LAMBDA(Index i) {
          Element const* const KOKKOS_RESTRICT source = sources[rows.from(i)];
          Element* const KOKKOS_RESTRICT target = targets[rows.to(i)];
          for (Index j = 0; j < columns; ++j) {
            target[j] = same(source[j]);
          }
        });
  }

  template <class Element>
  static void gather_columns(Execution& execution, Tensor const& from, Tensor const& index, Tensor const& to) {
    auto const sources = kernels::rows_of<Element>(from);
    auto const targets = kernels::rows_of<Element>(to);
    std::int32_t const* const columns = index.data<std::int32_t>();
    Index const count = to.dim(1);
    kernels::for_each(
        execution, "heddle::gather_columns", to.dim(0), KOKKOS_LAMBDA(Index row) {
          for (Index j = 0; j < count; ++j) {
            targets[row][j] = sources[row][columns[j]];
          }
        });
  }

  /// One work item for each row, which adds in order: no two items add to one element.
  template <class Element>
  static void add_gathered_columns(Execution& execution, Tensor const& from, Tensor const& index, Tensor const& into) {
    using Sum = ArithmeticType<Element>;
    auto const sources = kernels::rows_of<Element>(from);
    auto const targets = kernels::rows_of<Element>(into);
    std::int32_t const* const columns = index.data<std::int32_t>();
    Index const count = from.dim(1);
    kernels::for_each(
        execution, "heddle::add_gathered_columns", into.dim(0), KOKKOS_LAMBDA(Index row) {
          for (Index j = 0; j < count; ++j) {
            Element& target = targets[row][columns[j]];
            target = kernels::narrow<Element>(kernels::wide<Sum>(target) + kernels::wide<Sum>(sources[row][j]));
          }
        });
  }

  template <class Element>
  static void rotate(Execution& execution, Tensor const& matrix, Rotation const& rotation) {
    using Real = ArithmeticType<Element>;
    auto const rows = kernels::rows_of<Element>(matrix);
    auto const angles = kernels::rows_of<Real>(rotation.table);
    std::int32_t const* const positions = rotation.position.data<std::int32_t>();
    Index const width = rotation.table.dim(1);
    Index const groups = matrix.dim(1) / width;
    Real const direction = rotation.back ? Real{-1} : Real{1};
    bool const interleaved = rotation.layout == PairLayout::interleaved;
    kernels::for_each(
        execution, "heddle::rotate", matrix.dim(0), KOKKOS_LAMBDA(Index row) {
          Real const* const KOKKOS_RESTRICT angle = angles[positions[row]];
          for (Index group = 0; group < groups; ++group) {
            Element* const KOKKOS_RESTRICT columns = rows[row] + group * width;
            // Constants, so that the compiler knows the strides of the usual layouts.
            if (interleaved) {
              turn_pairs(columns, angle, direction, width / 2, 2, 1);
            } else {
              turn_pairs(columns, angle, direction, width / 2, 1, width / 2);
            }
          }
        });
  }

  template <class Element>
  static void cap(Execution& execution, Tensor const& values, double limit) {
    using Real = ArithmeticType<Element>;
    auto const rows = kernels::rows_of<Element>(values);
    auto const highest = static_cast<Real>(limit);
    for_each_piece(
        execution, "heddle::cap", values, KOKKOS_LAMBDA(Index row, Index begin, Index end) {
          Element* const KOKKOS_RESTRICT value = rows[row];
          Real const bound = highest;
          Real const inverse = 1 / bound;
          for (Index j = begin; j < end; ++j) {
            value[j] = kernels::narrow_again<Element>(bound * fast_tanh(kernels::wide<Real>(value[j]) * inverse));
          }
        });
  }

  template <class Element>
  static void cap_backward(Execution& execution, Tensor const& capped, Tensor const& gradient, double limit) {
    using Real = ArithmeticType<Element>;
    auto const results = kernels::rows_of<Element>(capped);
    auto const rows = kernels::rows_of<Element>(gradient);
    auto const one_by_limit = static_cast<Real>(1 / limit);
    for_each_piece(
        execution, "heddle::cap_backward", gradient, KOKKOS_LAMBDA(Index row, Index begin, Index end) {
          Element const* const KOKKOS_RESTRICT result = results[row];
          Element* const KOKKOS_RESTRICT values = rows[row];
          Real const inverse = one_by_limit;
          for (Index j = begin; j < end; ++j) {
            Real const tanh = kernels::wide<Real>(result[j]) * inverse;
            values[j] = kernels::narrow_again<Element>(kernels::wide<Real>(values[j]) * (1 - tanh * tanh));
          }
        });
  }
};

}  // namespace

void add_portable_tensor_ops_kernels(KernelRegistries& registries) {
  registries.of<TensorOps>().add("kokkos", priorities::portable,
                                 std::make_shared<TensorOpsFrontEnd<KokkosTensorOps>>());
}

}  // namespace heddle
