#pragma once

#include <heddle/core/operations/kernel_author.hpp>
#include <heddle/core/operations/token_ranking.hpp>

/// A row of the table of a ranking, and the ways to fill it that implementations share.
namespace heddle::kernels {

/// A call's numbers as a kernel captures them.
template <class Element>
struct RankingView {
  Rows<Element const> logits;
  std::int64_t columns;
  std::int64_t first_token;
  std::int64_t end_column;  ///< column of the end token, which may lie outside of the columns
  double* table;
  std::int64_t count;

  RankingView(TokenRankingCall const& call, Tensor const& ranking)
      : logits{call.logits.data<Element>(), call.logits.row_stride()},
        columns(call.logits.dim(1)),
        first_token(call.first_token),
        end_column(call.end - call.first_token),
        table(ranking.data<double>()),
        count((ranking.dim(1) - RankingColumns::tokens) / 2) {}

  /// Tokens that a row ranks: all columns where there are fewer than wanted.
  KOKKOS_INLINE_FUNCTION std::int64_t ranked() const { return count < columns ? count : columns; }
};

/// Candidates are columns and their logits until `finish` makes them tokens and log-probabilities.
class RankedRow {
 public:
  template <class Element>
  KOKKOS_INLINE_FUNCTION RankedRow(RankingView<Element> const& view, std::int64_t row)
      : head_(view.table + row * (RankingColumns::tokens + 2 * view.count)),
        columns_(head_ + RankingColumns::tokens),
        logits_(columns_ + view.count),
        count_(view.count) {}

  KOKKOS_INLINE_FUNCTION double logit(std::int64_t index) const { return logits_[index]; }
  KOKKOS_INLINE_FUNCTION void set(std::int64_t index, double column, double logit) const {
    columns_[index] = column;
    logits_[index] = logit;
  }

  /// Puts a candidate whose column is the highest so far among `size` ordered ones; the last makes room if all places
  /// are taken.
  KOKKOS_INLINE_FUNCTION void insert(std::int64_t size, double column, double logit) const {
    std::int64_t index = size < count_ ? size : count_ - 1;
    for (; index > 0 && logits_[index - 1] < logit; --index) {
      set(index, columns_[index - 1], logits_[index - 1]);
    }
    set(index, column, logit);
  }

  /// Selects and orders candidates with a heap whose root is the least likely: in (columns log count) operations, by
  /// one thread.
  template <class Element>
  KOKKOS_INLINE_FUNCTION void select_with_heap(Element const* logits, std::int64_t columns) const {
    std::int64_t const size = columns < count_ ? columns : count_;
    for (std::int64_t column = 0; column < size; ++column) {
      set(column, static_cast<double>(column), wide<double>(logits[column]));
    }
    for (std::int64_t parent = size / 2; parent-- > 0;) {
      sift_down(parent, size);
    }
    for (std::int64_t column = size; column < columns; ++column) {
      if (wide<double>(logits[column]) > logits_[0]) {
        set(0, static_cast<double>(column), wide<double>(logits[column]));
        sift_down(0, size);
      }
    }
    for (std::int64_t last = size; last-- > 1;) {
      swap(0, last);
      sift_down(0, last);
    }
  }

  /// Writes the row's results: the candidates are ordered, `log_sum_exp` is over all columns.
  template <class Element>
  KOKKOS_INLINE_FUNCTION void finish(RankingView<Element> const& view, Element const* logits,
                                     double log_sum_exp) const {
    bool const has_end = view.end_column >= 0 && view.end_column < view.columns;
    head_[RankingColumns::log_sum_exp] = log_sum_exp;
    head_[RankingColumns::end] = has_end ? wide<double>(logits[view.end_column]) - log_sum_exp : -INFINITY;
    for (std::int64_t index = 0; index < count_; ++index) {
      bool const exists = index < view.ranked();
      set(index, exists ? columns_[index] + static_cast<double>(view.first_token) : -1,
          exists ? logits_[index] - log_sum_exp : -INFINITY);
    }
  }

 private:
  KOKKOS_INLINE_FUNCTION bool less_likely(std::int64_t a, std::int64_t b) const {
    return logits_[a] < logits_[b] || (logits_[a] == logits_[b] && columns_[a] > columns_[b]);
  }
  KOKKOS_INLINE_FUNCTION void swap(std::int64_t a, std::int64_t b) const {
    double const column = columns_[a];
    double const logit = logits_[a];
    set(a, columns_[b], logits_[b]);
    set(b, column, logit);
  }
  KOKKOS_INLINE_FUNCTION void sift_down(std::int64_t parent, std::int64_t size) const {
    for (std::int64_t child = 2 * parent + 1; child < size; child = 2 * parent + 1) {
      if (child + 1 < size && less_likely(child + 1, child)) {
        ++child;
      }
      if (!less_likely(child, parent)) {
        return;
      }
      swap(parent, child);
      parent = child;
    }
  }

  double* head_;
  double* columns_;
  double* logits_;
  std::int64_t count_;
};

}  // namespace heddle::kernels
