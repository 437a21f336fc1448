#include <heddle/core/operations/guided_alignment.hpp>
#include <heddle/core/operations/kernel_author.hpp>
#include <limits>

#include "support/factories.hpp"

namespace heddle {
namespace {

/// The sequences of one side's rows, which lie one after another.
struct SequenceRows {
  std::int32_t const* begin;
  std::int32_t const* length;
  std::int64_t count;

  explicit SequenceRows(Sequences const& sequences)
      : begin(sequences.begin.data<std::int32_t>()),
        length(sequences.length.data<std::int32_t>()),
        count(sequences.count) {}
  /// The sequence of a row: the last one that begins at it or before.
  KOKKOS_INLINE_FUNCTION std::int64_t of(std::int64_t row) const {
    std::int64_t low = 0;
    for (std::int64_t high = count; high - low > 1;) {
      std::int64_t const middle = (low + high) / 2;
      (begin[middle] <= row ? low : high) = middle;
    }
    return low;
  }
};

template <class Element>
struct GuidedView {
  using Real = kernels::ArithmeticType<Element>;

  kernels::Rows<Element> q, k;
  SequenceRows queries, keys;
  std::int32_t const* begin;
  std::int32_t const* position;
  double scale;
  std::int64_t columns;

  explicit GuidedView(GuidedAlignmentCall const& call)
      : q(kernels::rows_of<Element>(call.q)),
        k(kernels::rows_of<Element>(call.k)),
        queries(call.queries),
        keys(call.keys),
        begin(call.alignment.begin.data<std::int32_t>()),
        position(call.alignment.position.data<std::int32_t>()),
        scale(call.scale),
        columns(call.q.dim(1)) {}

  KOKKOS_INLINE_FUNCTION std::int64_t aligned(std::int64_t row) const { return begin[row + 1] - begin[row]; }
  KOKKOS_INLINE_FUNCTION double score(std::int64_t row, std::int64_t key) const {
    double sum = 0;
    for (std::int64_t j = 0; j < columns; ++j) {
      sum += kernels::wide<double>(q[row][j]) * kernels::wide<double>(k[key][j]);
    }
    return scale * sum;
  }
  /// The gradient of a row's loss for its score of the key at `place` of its sequence: its weight less its share of the
  /// alignment.
  KOKKOS_INLINE_FUNCTION double slope(std::int64_t row, std::int64_t key, std::int64_t place, double log_sum) const {
    double aligned_here = 0;
    for (std::int32_t at = begin[row]; at < begin[row + 1]; ++at) {
      aligned_here += position[at] == place ? 1 : 0;
    }
    return std::exp(score(row, key) - log_sum) - aligned_here / static_cast<double>(aligned(row));
  }
  KOKKOS_INLINE_FUNCTION void clear(Real* into) const {
    for (std::int64_t j = 0; j < columns; ++j) {
      into[j] = 0;
    }
  }
  /// into += factor * from.
  KOKKOS_INLINE_FUNCTION void add(Real* into, double factor, Element const* from) const {
    for (std::int64_t j = 0; j < columns; ++j) {
      into[j] += static_cast<Real>(factor) * kernels::wide<Real>(from[j]);
    }
  }
};

struct ReferenceGuidedAlignment {
  template <class Element>
  static void forward(Execution& execution, GuidedAlignmentCall const& call, Tensor const& rows, double factor,
                      Tensor const& sum) {
    GuidedView<Element> const view(call);
    auto const out = kernels::rows_of<double>(rows);
    std::int64_t const count = call.q.dim(0);
    kernels::for_each(
        execution, "heddle::guided_alignment", count, KOKKOS_LAMBDA(std::int64_t row) {
          out[row][0] = out[row][1] = 0;
          if (view.aligned(row) == 0) {
            return;
          }
          std::int64_t const sequence = view.queries.of(row);
          std::int64_t const first = view.keys.begin[sequence];
          double highest = -std::numeric_limits<double>::infinity();
          double exponentials = 0;
          for (std::int64_t key = first; key < first + view.keys.length[sequence]; ++key) {
            double const score = view.score(row, key);
            exponentials = score > highest ? exponentials * std::exp(highest - score) + 1
                                           : exponentials + std::exp(score - highest);
            highest = score > highest ? score : highest;
          }
          double aligned = 0;
          for (std::int32_t at = view.begin[row]; at < view.begin[row + 1]; ++at) {
            aligned += view.score(row, first + view.position[at]);
          }
          out[row][0] = highest + std::log(exponentials);
          out[row][1] = out[row][0] - aligned / static_cast<double>(view.aligned(row));
        });
    double* const total = sum.data<double>();
    kernels::for_each(
        execution, "heddle::guided_alignment_sum", 1, KOKKOS_LAMBDA(std::int64_t) {
          for (std::int64_t row = 0; row < count; ++row) {
            total[0] += factor * out[row][1];
          }
        });
  }

  template <class Element>
  static void backward(Execution& execution, GuidedAlignmentCall const& call, Tensor const& rows, double factor,
                       Tensor const& grad_q, Tensor const& grad_k) {
    GuidedView<Element> const view(call);
    auto const in = kernels::rows_of<double>(rows);
    using Real = kernels::ArithmeticType<Element>;
    auto const q_gradients = kernels::rows_of<Real>(grad_q);
    auto const k_gradients = kernels::rows_of<Real>(grad_k);
    double const scaled = factor * call.scale;
    kernels::for_each(
        execution, "heddle::guided_alignment_queries", call.q.dim(0), KOKKOS_LAMBDA(std::int64_t row) {
          view.clear(q_gradients[row]);
          if (view.aligned(row) == 0) {
            return;
          }
          std::int64_t const sequence = view.queries.of(row);
          std::int64_t const first = view.keys.begin[sequence];
          for (std::int64_t place = 0; place < view.keys.length[sequence]; ++place) {
            double const slope = view.slope(row, first + place, place, in[row][0]);
            view.add(q_gradients[row], scaled * slope, view.k[first + place]);
          }
        });
    kernels::for_each(
        execution, "heddle::guided_alignment_keys", call.k.dim(0), KOKKOS_LAMBDA(std::int64_t key) {
          view.clear(k_gradients[key]);
          std::int64_t const sequence = view.keys.of(key);
          std::int64_t const place = key - view.keys.begin[sequence];
          std::int64_t const first = view.queries.begin[sequence];
          for (std::int64_t row = first; row < first + view.queries.length[sequence]; ++row) {
            if (view.aligned(row) > 0) {
              double const slope = view.slope(row, key, place, in[row][0]);
              view.add(k_gradients[key], scaled * slope, view.q[row]);
            }
          }
        });
  }
};

}  // namespace

void add_guided_alignment_kernels(KernelRegistries& registries) {
  registries.of<GuidedAlignment>().add("reference", priorities::reference,
                                       std::make_shared<GuidedAlignmentFrontEnd<ReferenceGuidedAlignment>>());
}

}  // namespace heddle
