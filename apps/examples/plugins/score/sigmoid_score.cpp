// A plug-in: sigmoid attention (Ramapuram et al. 2024). A key's weight is 1 / (1 + exp(-(score + offset))), whatever
// the other keys are: there is no softmax.

#include <heddle/core/base/exponential.hpp>
#include <heddle/core/plugins/entry.hpp>
#include <heddle/core/trials/trials.hpp>

namespace sigmoid_score_plugin {

struct SigmoidScore {
  static constexpr bool normalized = false;  // the values are the weights; true: the scores of a softmax
  // About -log(keys), with which the weights of a query's keys add up to about 1 when training starts.
  static constexpr float offset = -3;

  // Real is float, also for bfloat16, or double. fast_exp is an exponential that compilers vectorise.
  template <class Real>
  static Real value(Real score) {
    return 1 / (1 + heddle::fast_exp(-(score + offset)));
  }
  template <class Real>
  static Real slope(Real score) {
    Real const weight = value(score);
    return weight * (1 - weight);
  }
};

void register_all(heddle::Registries& registries) {
  heddle::add_attention_score<SigmoidScore>(registries.kernels, "sigmoid_score");
}

}  // namespace sigmoid_score_plugin

HEDDLE_PLUGIN(sigmoid_score_plugin::register_all)
