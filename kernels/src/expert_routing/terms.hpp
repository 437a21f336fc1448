#pragma once

#include <heddle/core/operations/expert_routing.hpp>
#include <heddle/core/operations/kernel_author.hpp>

/// The parts of a routing that implementations share. `Real` is the type of scores and weights, `Wide` the type that an
/// implementation computes in.
namespace heddle::kernels {

/// A routing as a kernel captures it.
template <class Real>
struct RoutesView {
  Rows<Real> logits, scores, weights;
  Rows<std::int32_t> chosen, place;
  Real const* bias;  ///< null: there is none
  std::int32_t* row;
  std::int32_t* counts;
  double* load;
  std::int64_t rows, experts, choices, capacity;
  bool softmax, normalized;

  RoutesView(ExpertRoutingCall const& call, ExpertRoutes const& routes)
      : logits(rows_of<Real>(call.logits)),
        scores(rows_of<Real>(routes.scores)),
        weights(rows_of<Real>(routes.weights)),
        chosen(rows_of<std::int32_t>(routes.chosen)),
        place(rows_of<std::int32_t>(routes.place)),
        bias(call.bias.empty() ? nullptr : call.bias.data<Real>()),
        row(routes.row.data<std::int32_t>()),
        counts(routes.counts.data<std::int32_t>()),
        load(routes.load.data<double>()),
        rows(call.logits.dim(0)),
        experts(call.logits.dim(1)),
        choices(call.chosen),
        capacity(call.capacity),
        softmax(call.scoring == ExpertScoring::softmax),
        normalized(call.normalized) {}

  /// The number to order by: NaN is the lowest.
  KOKKOS_INLINE_FUNCTION Real key(std::int64_t r, std::int64_t expert) const {
    Real const key = bias == nullptr ? logits[r][expert] : scores[r][expert] + bias[expert];
    return key == key ? key : static_cast<Real>(-INFINITY);
  }

  /// chosen[r] = the experts with the highest keys, in order.
  KOKKOS_INLINE_FUNCTION void choose(std::int64_t r) const {
    for (std::int64_t j = 0; j < choices; ++j) {
      std::int64_t best = -1;
      for (std::int64_t expert = 0; expert < experts; ++expert) {
        if ((best < 0 || key(r, expert) > key(r, best)) && (j == 0 || follows(r, expert, chosen[r][j - 1]))) {
          best = expert;
        }
      }
      chosen[r][j] = static_cast<std::int32_t>(best);
    }
  }

  /// scores[r] =, from the logits.
  template <class Wide>
  KOKKOS_INLINE_FUNCTION void score(std::int64_t r) const {
    Wide const log_sum = softmax ? log_sum_exp<Wide>(r) : Wide{0};
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      auto const logit = static_cast<Wide>(logits[r][expert]);
      Wide const value = softmax ? std::exp(logit - log_sum) : 1 / (1 + std::exp(-logit));
      scores[r][expert] = static_cast<Real>(value);
    }
  }

  /// weights[r] =, from the scores and the chosen experts.
  template <class Wide>
  KOKKOS_INLINE_FUNCTION void weigh(std::int64_t r) const {
    Wide const sum = chosen_sum<Wide>(r);
    for (std::int64_t j = 0; j < choices; ++j) {
      weights[r][j] = static_cast<Real>(static_cast<Wide>(scores[r][chosen[r][j]]) / sum);
    }
  }

  /// Divides the weights of a row.
  template <class Wide>
  KOKKOS_INLINE_FUNCTION Wide chosen_sum(std::int64_t r) const {
    Wide sum = 0;
    for (std::int64_t j = 0; j < choices; ++j) {
      sum += static_cast<Wide>(scores[r][chosen[r][j]]);
    }
    return normalized ? sum : Wide{1};
  }

  template <class Wide>
  KOKKOS_INLINE_FUNCTION Wide log_sum_exp(std::int64_t r) const {
    Real largest = logits[r][0];
    for (std::int64_t expert = 1; expert < experts; ++expert) {
      largest = logits[r][expert] > largest ? logits[r][expert] : largest;
    }
    auto const highest = static_cast<Wide>(largest);
    Wide sum = 0;
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      sum += std::exp(static_cast<Wide>(logits[r][expert]) - highest);
    }
    return highest + std::log(sum);
  }

  /// load[expert] and counts[expert] =.
  KOKKOS_INLINE_FUNCTION void count(std::int64_t expert) const {
    std::int64_t found = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t j = 0; j < choices; ++j) {
        found += chosen[r][j] == expert ? 1 : 0;
      }
    }
    load[expert] = static_cast<double>(found);
    counts[expert] = static_cast<std::int32_t>(capacity > 0 && found > capacity ? capacity : found);
  }

  /// row and place = those of the expert's rows, after all counts are known.
  KOKKOS_INLINE_FUNCTION void assign(std::int64_t expert) const {
    std::int64_t next = 0;
    for (std::int64_t before = 0; before < expert; ++before) {
      next += counts[before];
    }
    std::int64_t const first_dropped = drop_from(expert);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t j = 0; j < choices; ++j) {
        if (chosen[r][j] != expert) {
          continue;
        }
        bool const kept = j * rows + r < first_dropped;
        place[r][j] = kept ? static_cast<std::int32_t>(next) : -1;
        if (kept) {
          row[next++] = static_cast<std::int32_t>(r);
        }
      }
    }
  }

  /// row = -1 at a place that no expert uses.
  KOKKOS_INLINE_FUNCTION void clear_unused(std::int64_t index) const {
    std::int64_t used = 0;
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      used += counts[expert];
    }
    if (index >= used) {
      row[index] = -1;
    }
  }

  /// The auxiliary losses of a row, times their factors.
  template <class Wide>
  KOKKOS_INLINE_FUNCTION Wide loss(std::int64_t r, ExpertLossFactors const& factors) const {
    double const total = total_load();
    Wide sum = 0;
    Wide weighted = 0;
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      auto const score = static_cast<Wide>(scores[r][expert]);
      sum += score;
      weighted += relative_load<Wide>(expert, total) * score;
    }
    Wide const log_sum = factors.z != 0 ? log_sum_exp<Wide>(r) : Wide{0};
    return static_cast<Wide>(factors.balance) * weighted / sum + static_cast<Wide>(factors.z) * log_sum * log_sum;
  }

  /// `write(expert, g)` for the gradient g of each logit of a row.
  template <class Wide, class Write>
  KOKKOS_INLINE_FUNCTION void gradient(std::int64_t r, ExpertLossFactors const& factors, Real const* grad_weights,
                                       Write const& write) const {
    double const total = total_load();
    auto const balance = static_cast<Wide>(factors.balance);
    Wide sum = 0;
    Wide weighted = 0;
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      auto const score = static_cast<Wide>(scores[r][expert]);
      sum += score;
      weighted += relative_load<Wide>(expert, total) * score;
    }
    Wide const divisor = chosen_sum<Wide>(r);
    Wide shift = 0;  // of the gradients of weights that are divided by their sum
    for (std::int64_t j = 0; normalized && j < choices; ++j) {
      shift += static_cast<Wide>(grad_weights[j]) * static_cast<Wide>(weights[r][j]);
    }
    Wide mean = 0;  // of the gradients of the chosen scores, weighted by the scores
    for (std::int64_t j = 0; j < choices; ++j) {
      mean += static_cast<Wide>(scores[r][chosen[r][j]]) * (static_cast<Wide>(grad_weights[j]) - shift) / divisor;
    }
    Wide const log_sum = factors.z != 0 ? log_sum_exp<Wide>(r) : Wide{0};
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      auto const score = static_cast<Wide>(scores[r][expert]);
      Wide of_score = balance * (relative_load<Wide>(expert, total) - weighted / sum) / sum;
      for (std::int64_t j = 0; j < choices; ++j) {
        of_score += chosen[r][j] == expert ? (static_cast<Wide>(grad_weights[j]) - shift) / divisor : Wide{0};
      }
      Wide of_logit = softmax ? score * (of_score - mean) : score * (1 - score) * of_score;
      if (factors.z != 0) {
        auto const logit = static_cast<Wide>(logits[r][expert]);
        of_logit += 2 * static_cast<Wide>(factors.z) * log_sum * std::exp(logit - log_sum);
      }
      write(expert, of_logit);
    }
  }

 private:
  /// Whether an expert comes after another one in the order of a row's choices.
  KOKKOS_INLINE_FUNCTION bool follows(std::int64_t r, std::int64_t expert, std::int64_t other) const {
    return key(r, expert) < key(r, other) || (key(r, expert) == key(r, other) && expert > other);
  }

  KOKKOS_INLINE_FUNCTION double total_load() const {
    double total = 0;
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      total += load[expert];
    }
    return total;
  }
  /// An expert's share of the choices, times the experts: 1 where the load is even.
  template <class Wide>
  KOKKOS_INLINE_FUNCTION Wide relative_load(std::int64_t expert, double total) const {
    return total > 0 ? static_cast<Wide>(load[expert] * static_cast<double>(experts) / total) : Wide{0};
  }

  /// The first of the expert's choices, counted as j * rows + r, that is dropped.
  KOKKOS_INLINE_FUNCTION std::int64_t drop_from(std::int64_t expert) const {
    if (counts[expert] == static_cast<std::int64_t>(load[expert])) {
      return choices * rows;
    }
    std::int64_t kept = 0;
    for (std::int64_t index = 0; index < choices * rows; ++index) {
      if (chosen[index % rows][index / rows] == expert && kept++ == counts[expert]) {
        return index;
      }
    }
    return choices * rows;
  }
};

/// The steps of `route`, of which an implementation gives the type to compute in.
template <class Real, class Wide>
void make_routes(Execution& execution, ExpertRoutingCall const& call, ExpertRoutes const& routes) {
  RoutesView<Real> const view(call, routes);
  for_each(
      execution, "heddle::choose_experts", view.rows, KOKKOS_LAMBDA(std::int64_t r) {
        view.template score<Wide>(r);
        view.choose(r);
        view.template weigh<Wide>(r);
      });
  for_each(
      execution, "heddle::count_choices", view.experts, KOKKOS_LAMBDA(std::int64_t expert) { view.count(expert); });
  for_each(
      execution, "heddle::assign_places", view.experts, KOKKOS_LAMBDA(std::int64_t expert) { view.assign(expert); });
  for_each(
      execution, "heddle::clear_places", view.rows * view.choices,
      KOKKOS_LAMBDA(std::int64_t index) { view.clear_unused(index); });
}

}  // namespace heddle::kernels
