#include <heddle/core/operations/kernel_author.hpp>

#include "extents.hpp"
#include "support/factories.hpp"

namespace heddle {

namespace {

/// `double` holds every floating element exactly.
template <class Element>
KOKKOS_INLINE_FUNCTION double wide(Element element) {
  return kernels::wide<double>(element);
}

/// Calls `body(row, column)` for each element, a row of them in each work item.
template <class Body>
void for_each_element(Execution& execution, char const* name, std::int64_t rows, std::int64_t columns,
                      Body const& body) {
  kernels::for_each(
      execution, name, rows, KOKKOS_LAMBDA(std::int64_t row) {
        for (std::int64_t j = 0; j < columns; ++j) {
          body(row, j);
        }
      });
}

template <class Body>
void for_each_element(Execution& execution, char const* name, Tensor const& tensor, Body const& body) {
  kernels::Extents const extents(tensor);
  for_each_element(execution, name, extents.rows, extents.columns, body);
}

/// Element by element in float64.
struct ReferenceTensorOps {
  template <class Element>
  static void fill(Execution& execution, Tensor const& tensor, double value) {
    auto const target = kernels::rows_of<Element>(tensor);
    for_each_element(
        execution, "heddle::reference_fill", tensor,
        KOKKOS_LAMBDA(std::int64_t row, std::int64_t j) { target[row][j] = kernels::narrow<Element>(value); });
  }

  template <class Element>
  static void scale(Execution& execution, Tensor const& tensor, double factor) {
    auto const target = kernels::rows_of<Element>(tensor);
    for_each_element(
        execution, "heddle::reference_scale", tensor, KOKKOS_LAMBDA(std::int64_t row, std::int64_t j) {
          target[row][j] = kernels::narrow<Element>(wide(target[row][j]) * factor);
        });
  }

  template <class Element>
  static void add(Execution& execution, Tensor const& into, Tensor const& from) {
    auto const source = kernels::rows_of<Element>(from);
    auto const target = kernels::rows_of<Element>(into);
    for_each_element(
        execution, "heddle::reference_add", into, KOKKOS_LAMBDA(std::int64_t row, std::int64_t j) {
          target[row][j] = kernels::narrow<Element>(wide(target[row][j]) + wide(source[row][j]));
        });
  }

  template <class Element>
  static void mix(Execution& execution, Tensor const& into, Tensor const& from, Tensor const& share) {
    auto const source = kernels::rows_of<Element>(from);
    auto const target = kernels::rows_of<Element>(into);
    double const* const part = share.data<double>();
    for_each_element(
        execution, "heddle::reference_mix", into, KOKKOS_LAMBDA(std::int64_t row, std::int64_t j) {
          double const kept = wide(target[row][j]);
          target[row][j] = kernels::narrow<Element>(kept + *part * (wide(source[row][j]) - kept));
        });
  }

  template <class From, class To>
  static void copy(Execution& execution, Tensor const& from, Tensor const& to) {
    auto const source = kernels::rows_of<From>(from);
    auto const target = kernels::rows_of<To>(to);
    for_each_element(
        execution, "heddle::reference_copy", to, KOKKOS_LAMBDA(std::int64_t row, std::int64_t j) {
          target[row][j] = kernels::narrow<To>(wide(source[row][j]));
        });
  }

  template <class Element>
  static void add_column_sums(Execution& execution, Tensor const& matrix, Tensor const& sums) {
    using Sum = kernels::ArithmeticType<Element>;
    auto const source = kernels::rows_of<Element>(matrix);
    Sum* const target = sums.data<Sum>();
    std::int64_t const rows = matrix.dim(0);
    kernels::for_each(
        execution, "heddle::reference_column_sums", matrix.dim(1), KOKKOS_LAMBDA(std::int64_t j) {
          double sum = 0;
          for (std::int64_t row = 0; row < rows; ++row) {
            sum += wide(source[row][j]);
          }
          target[j] += static_cast<Sum>(sum);
        });
  }

  template <class Element>
  static void add_sum_of_squares(Execution& execution, Tensor const& tensor, Tensor const& into) {
    Element const* const elements = tensor.data<Element>();
    std::int64_t const size = tensor.size();
    double* const result = into.data<double>();
    kernels::for_each(
        execution, "heddle::reference_squares", 1, KOKKOS_LAMBDA(std::int64_t) {
          double sum = 0;
          for (std::int64_t i = 0; i < size; ++i) {
            sum += wide(elements[i]) * wide(elements[i]);
          }
          result[0] += sum;
        });
  }

  template <class Element>
  static void copy_rows(Execution& execution, Tensor const& from, Tensor const& index, Tensor const& to,
                        Tensor const& place) {
    auto const source = kernels::rows_of<Element>(from);
    auto const target = kernels::rows_of<Element>(to);
    kernels::RowPairs const rows(to, index, place);
    for_each_element(
        execution, "heddle::reference_copy_rows", rows.count, to.dim(1),
        KOKKOS_LAMBDA(std::int64_t i, std::int64_t j) { target[rows.to(i)][j] = source[rows.from(i)][j]; });
  }

  template <class Element>
  static void gather_columns(Execution& execution, Tensor const& from, Tensor const& index, Tensor const& to) {
    auto const sources = kernels::rows_of<Element>(from);
    auto const targets = kernels::rows_of<Element>(to);
    std::int32_t const* const columns = index.data<std::int32_t>();
    for_each_element(
        execution, "heddle::reference_gather_columns", to.dim(0), to.dim(1),
        KOKKOS_LAMBDA(std::int64_t row, std::int64_t j) { targets[row][j] = sources[row][columns[j]]; });
  }

  template <class Element>
  static void add_gathered_columns(Execution& execution, Tensor const& from, Tensor const& index, Tensor const& into) {
    auto const sources = kernels::rows_of<Element>(from);
    auto const targets = kernels::rows_of<Element>(into);
    std::int32_t const* const columns = index.data<std::int32_t>();
    std::int64_t const count = from.dim(1);
    for_each_element(
        execution, "heddle::reference_add_gathered_columns", into.dim(0), into.dim(1),
        KOKKOS_LAMBDA(std::int64_t row, std::int64_t column) {
          double sum = wide(targets[row][column]);
          for (std::int64_t j = 0; j < count; ++j) {
            sum += columns[j] == column ? wide(sources[row][j]) : 0;
          }
          targets[row][column] = kernels::narrow<Element>(sum);
        });
  }

  template <class Element>
  static void rotate(Execution& execution, Tensor const& matrix, Rotation const& rotation) {
    auto const rows = kernels::rows_of<Element>(matrix);
    auto const angles = kernels::rows_of<kernels::ArithmeticType<Element>>(rotation.table);
    std::int32_t const* const positions = rotation.position.data<std::int32_t>();
    std::int64_t const width = rotation.table.dim(1);
    bool const interleaved = rotation.layout == PairLayout::interleaved;
    double const direction = rotation.back ? -1 : 1;
    for_each_element(
        execution, "heddle::reference_rotate", matrix.dim(0), matrix.dim(1) / 2,
        KOKKOS_LAMBDA(std::int64_t row, std::int64_t pair) {
          std::int64_t const of_group = 2 * pair % width;  // the place of its angle
          double const cosine = angles[positions[row]][of_group];
          double const sine = direction * static_cast<double>(angles[positions[row]][of_group + 1]);
          std::int64_t const place = interleaved ? 2 * pair : 2 * pair - of_group / 2;
          std::int64_t const other = interleaved ? place + 1 : place + width / 2;
          double const first = wide(rows[row][place]);
          double const second = wide(rows[row][other]);
          rows[row][place] = kernels::narrow<Element>(first * cosine - second * sine);
          rows[row][other] = kernels::narrow<Element>(first * sine + second * cosine);
        });
  }

  template <class Element>
  static void cap(Execution& execution, Tensor const& values, double limit) {
    auto const rows = kernels::rows_of<Element>(values);
    for_each_element(
        execution, "heddle::reference_cap", values, KOKKOS_LAMBDA(std::int64_t row, std::int64_t j) {
          rows[row][j] = kernels::narrow<Element>(limit * std::tanh(wide(rows[row][j]) / limit));
        });
  }

  template <class Element>
  static void cap_backward(Execution& execution, Tensor const& capped, Tensor const& gradient, double limit) {
    auto const results = kernels::rows_of<Element>(capped);
    auto const rows = kernels::rows_of<Element>(gradient);
    for_each_element(
        execution, "heddle::reference_cap_backward", gradient, KOKKOS_LAMBDA(std::int64_t row, std::int64_t j) {
          double const tanh = wide(results[row][j]) / limit;
          rows[row][j] = kernels::narrow<Element>(wide(rows[row][j]) * (1 - tanh * tanh));
        });
  }
};

}  // namespace

void add_tensor_ops_kernels(KernelRegistries& registries) {
  registries.of<TensorOps>().add("reference", priorities::reference,
                                 std::make_shared<TensorOpsFrontEnd<ReferenceTensorOps>>());
}

}  // namespace heddle
