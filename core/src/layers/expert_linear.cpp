#include "expert_linear.hpp"

#include <heddle/core/base/error.hpp>
#include <heddle/core/parameters/update_rules.hpp>

namespace heddle {

namespace {

Parameter& declare_weight(LayerSpec const& spec, std::int64_t experts, Linear::Extents const& extents,
                          Linear::Split split) {
  if (has_adapter(spec.model.adapter, spec.name)) {
    throw ConfigError("{}: {} has no adapters, as its experts are one parameter; name other projections",
                      spec.model.adapter.places.of("targets"), spec.name);
  }
  std::string const name = spec.name + ".weight";
  return spec.parameters.declare({.name = name,
                                  .placement = {{experts, extents.outputs, extents.inputs},
                                                Placement::sharded_along(split == Linear::Split::inputs ? 2 : 1)},
                                  .initializer = Initializer::xavier_uniform(extents.inputs, extents.outputs),
                                  .rounded = spec.model.frozen.rounded && is_frozen(spec.model.frozen, name),
                                  .of_experts = true});
}

Parameter* declare_bias(LayerSpec const& spec, std::int64_t experts, std::int64_t outputs, Linear::Split split) {
  if (!spec.model.biases) {
    return nullptr;
  }
  int const axis = split == Linear::Split::inputs ? -1 : 1;
  return &spec.parameters.declare({.name = spec.name + ".bias",
                                   .placement = {{experts, outputs}, Placement::sharded_along(axis)},
                                   .initializer = Initializer::zeros(),
                                   .of_experts = true});
}

/// An expert's matrix [outputs, inputs] of a tensor [experts, outputs, inputs].
Tensor matrix_of(Tensor const& all, std::int64_t expert) {
  return all.rows(expert, 1).reshaped({all.dim(1), all.dim(2)});
}

/// Calls `work(group, rows)` for each group with rows.
template <class Work>
void for_each_group(ExpertLinear::Counts counts, Work const& work) {
  IndexRange rows;
  for (std::size_t group = 0; group < counts.size(); ++group) {
    rows = {rows.end, rows.end + counts[group]};
    if (rows.count() > 0) {
      work(static_cast<std::int64_t>(group), rows);
    }
  }
}

/// The gradient of a group's expert: of its own from each rank's rows, or of the expert's.
Tensor gradient_of(Parameter const& parameter, std::int64_t group) {
  Tensor const& all = parameter.gradient;
  return all.rows(group % all.dim(0), 1);
}

}  // namespace

ExpertLinear::ExpertLinear(LayerSpec const& spec, std::int64_t experts, Linear::Extents const& extents,
                           Linear::Split split)
    : adds_bias_(split != Linear::Split::inputs || spec.parallel.tensor.rank() == 0),
      weight_(declare_weight(spec, experts, extents, split)),
      bias_(declare_bias(spec, experts, extents.outputs, split)),
      gemm_(spec.kernels.select<Gemm>({.dtype = spec.dtype,
                                       .b_dtype = weight_.value_dtype(spec.dtype),
                                       .output_dtype = spec.dtype,
                                       .m = 64,
                                       .n = weight_.local_shape[1],
                                       .k = weight_.local_shape[2],
                                       .transpose_b = true,
                                       .bias = bias_ != nullptr})),
      tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})) {}

Tensor ExpertLinear::bias_of(std::int64_t expert) const {
  return bias_ == nullptr || !adds_bias_ ? Tensor() : bias_->value.rows(expert, 1).reshaped({bias_->value.dim(1)});
}

void ExpertLinear::forward(LayerContext& context, Tensor const& x, Counts counts, Tensor const& y) const {
  for_each_group(counts, [&](std::int64_t group, IndexRange const& rows) {
    std::int64_t const expert = group % weight_.value.dim(0);
    gemm_->multiply(context.execution, {.a = x.rows(rows.begin, rows.count()),
                                        .b = matrix_of(weight_.value, expert),
                                        .c = y.rows(rows.begin, rows.count()),
                                        .bias = bias_of(expert),
                                        .transpose_b = true,
                                        .b_weight = weight_.weight_version()});
  });
}

void ExpertLinear::backward(LayerContext& context, Tensor const& grad_y, Tensor const& x, Counts counts,
                            Tensor const& grad_x, bool accumulate) const {
  for_each_group(counts, [&](std::int64_t group, IndexRange const& rows) {
    std::int64_t const expert = group % weight_.value.dim(0);
    Tensor const grad_rows = grad_y.rows(rows.begin, rows.count());
    if (!weight_.gradient.empty()) {
      gemm_->multiply(context.execution, {.a = grad_rows,
                                          .b = x.rows(rows.begin, rows.count()),
                                          .c = gradient_of(weight_, group).reshaped({grad_y.dim(1), x.dim(1)}),
                                          .bias = {},
                                          .transpose_a = true,
                                          .accumulate = true});
    }
    if (bias_ != nullptr && !bias_->gradient.empty()) {
      Tensor const gradient = gradient_of(*bias_, group).reshaped({grad_y.dim(1)});
      tensor_ops_->add_column_sums(context.execution, grad_rows, gradient);
    }
    gemm_->multiply(context.execution, {.a = grad_rows,
                                        .b = matrix_of(weight_.value, expert),
                                        .c = grad_x.rows(rows.begin, rows.count()),
                                        .bias = {},
                                        .accumulate = accumulate,
                                        .b_weight = weight_.weight_version()});
    context.progress();
  });
}

}  // namespace heddle
