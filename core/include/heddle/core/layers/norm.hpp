#pragma once

#include <heddle/core/layers/layer.hpp>
#include <heddle/core/operations/residual_norm.hpp>
#include <memory>
#include <string>
#include <vector>

namespace heddle {

/// A norm of rows, with the residual sum before it where there is one, in one call of the ResidualNorm kernel:
///
///     sum = residual + dropout(branch),   normalized = norm(sum) * weight + bias
///
/// Kind and ε are the layer's (model.norm_kind, model.norm_epsilon). Parameters: NAME.weight and, where the kind has
/// one, NAME.bias, both [columns]. A kind that is not built in has a bias where a registered kernel supports it with
/// one.
class Norm {
 public:
  struct Declaration {
    std::string name;
    std::int64_t columns = 0;
    MeshAxes partial_over = {};  ///< the parameters' gradient_partial_over
    double dropout = 0;          ///< the highest of the branches, by which the kernel is selected
  };
  /// Throws ConfigError, which names the norm and its kind, where no chosen kernel supports them.
  Norm(LayerSpec const& spec, Declaration const& declaration);
  /// A norm of the residual stream, or of a branch of it.
  static Norm of_stream(LayerSpec const& spec, std::string const& name, double dropout = 0) {
    return {spec, {name, spec.model.d_model, spec.stream_axes(), dropout}};
  }
  /// Only the sum, where no norm follows: nothing is normalized, no parameter declared.
  static Norm none(LayerSpec const& spec, double dropout) { return {spec, dropout}; }
  bool present() const { return weight_ != nullptr; }

  struct Input {
    Tensor residual;  ///< [rows, columns]
    Tensor branch{};  ///< [rows, columns], or empty
    Dropout dropout{};
  };
  /// The values that backward needs. `output.sum` is the residual where there is no branch; `output.normalized` is
  /// empty where there is no norm.
  struct Activations {
    ResidualNormCall call;
    ResidualNormOutput output;
  };
  /// Results come from the arena.
  Activations forward(LayerContext& context, Input const& input) const;

  struct Gradients {
    Tensor normalized{};  ///< flowed back to that output; empty: zero
    Tensor sum{};         ///< flowed back to the sum; empty: zero; not both are empty
    Tensor residual;      ///< =; may be the memory of one of those
    Tensor branch{};      ///< =; empty without a branch; memory of its own
  };
  /// Parameter gradients +=.
  void backward(LayerContext& context, Activations const& activations, Gradients const& gradients) const;
  /// Reports that the parameters' gradients are final. Call it once after backward, unless the norm belongs to a
  /// branch or an input, whose stack or model part reports it.
  void done(LayerContext const& context) const { context.uses_done(parameters_); }

 private:
  Norm(LayerSpec const& spec, double dropout);

  std::string kind_{NormKind::layer};
  double epsilon_;
  Parameter* weight_ = nullptr;  ///< null: no norm
  Parameter* bias_ = nullptr;    ///< null: none
  std::vector<Parameter const*> parameters_;
  std::shared_ptr<ResidualNorm> kernel_;
};

}  // namespace heddle
