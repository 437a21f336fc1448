#pragma once

#include <Kokkos_Core.hpp>
#include <heddle/core/base/exponential.hpp>
#include <heddle/core/operations/attention_score.hpp>
#include <heddle/core/operations/registry.hpp>
#include <memory>
#include <type_traits>

namespace heddle {

/// Whether kernels can call scores of plug-ins: not on a device.
inline constexpr bool scores_run = std::is_same_v<Kokkos::DefaultExecutionSpace, Kokkos::DefaultHostExecutionSpace>;

/// Weights of their own, as a plug-in brings them.
struct Logistic {
  static constexpr bool normalized = false;
  template <class Real>
  static Real value(Real score) {
    return 1 / (1 + fast_exp(1 - score));
  }
  template <class Real>
  static Real slope(Real score) {
    return value(score) * (1 - value(score));
  }
};

/// Scores of a softmax, as a plug-in brings them.
struct Cubic {
  static constexpr bool normalized = true;
  template <class Real>
  static Real value(Real score) {
    return score + score * score * score / 8;
  }
  template <class Real>
  static Real slope(Real score) {
    return 1 + score * score * 3 / 8;
  }
};

inline std::shared_ptr<AttentionScore> logistic_score() {
  return std::make_shared<AttentionScoreFrontEnd<Logistic>>("logistic");
}
inline std::shared_ptr<AttentionScore> cubic_score() {
  return std::make_shared<AttentionScoreFrontEnd<Cubic>>("cubic");
}

/// Registers both under their names.
inline void add_test_scores(KernelRegistries& registries) {
  for (auto const& score : {logistic_score(), cubic_score()}) {
    registries.of<AttentionScore>().add(score->name(), 0, score);
  }
}

}  // namespace heddle
