#include <fmt/format.h>

#include <functional>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/tensor/doubles.hpp>
#include <heddle/core/trials/trials.hpp>

namespace heddle {

namespace {

constexpr std::int64_t rows = 301;
constexpr std::int64_t columns = 67;

/// A trial of one call of `method`, whose only result is `result`.
template <auto method, class... Arguments>
Trial<TensorOps> ops_trial(DType dtype, Tensor const& result, Arguments const&... arguments) {
  auto const call = [=](TensorOps& ops, Execution& execution) { (ops.*method)(execution, arguments...); };
  return {.problem = {dtype}, .forward = call, .outputs = {{"result", result}}};
}

Tensor updated_matrix(TrialTensors& tensors, DType dtype, Shape const& shape) {
  Tensor const numbers = tensors.input(dtype, shape);
  return tensors.strided(5).updated(dtype, shape, to_doubles(numbers));
}

Trial<TensorOps> fill_trial(TrialTensors& tensors, DType dtype) {
  Tensor const matrix = tensors.strided(5).output(dtype, {rows, columns});
  return ops_trial<&TensorOps::fill>(dtype, matrix, matrix, 2.5);
}

Trial<TensorOps> scale_trial(TrialTensors& tensors, DType dtype) {
  Tensor const matrix = updated_matrix(tensors, dtype, {rows, columns});
  return ops_trial<&TensorOps::scale>(dtype, matrix, matrix, 0.3);
}

Trial<TensorOps> add_trial(TrialTensors& tensors, DType dtype) {
  Tensor const into = updated_matrix(tensors, dtype, {rows, columns});
  Tensor const from = tensors.strided(2).input(dtype, {rows, columns});
  return ops_trial<&TensorOps::add>(dtype, into, into, from);
}

Trial<TensorOps> mix_trial(TrialTensors& tensors, DType dtype) {
  Tensor const into = updated_matrix(tensors, dtype, {rows, columns});
  Tensor const from = tensors.strided(2).input(dtype, {rows, columns});
  Tensor const share = from_doubles({0.3}, DType::float64, {1});
  return ops_trial<&TensorOps::mix>(dtype, into, into, from, share);
}

Trial<TensorOps> copy_trial(DType to, TrialTensors& tensors, DType dtype) {
  Tensor const from = tensors.strided(3).input(dtype, {rows, columns}, -100, 100);
  Tensor const target = tensors.strided(5).output(dtype == DType::float64 ? dtype : to, {rows, columns});
  return ops_trial<&TensorOps::copy>(dtype, target, from, target);
}

Trial<TensorOps> column_sums_trial(TrialTensors& tensors, DType dtype) {
  Tensor const matrix = tensors.strided(3).input(dtype, {rows, columns});
  Tensor const sums = tensors.sums(statistics_dtype(dtype), {columns});
  return ops_trial<&TensorOps::add_column_sums>(dtype, sums, matrix, sums);
}

Trial<TensorOps> squares_trial(TrialTensors& tensors, DType dtype) {
  Tensor const vector = tensors.input(dtype, {12301});
  Tensor const sum = tensors.sums(DType::float64, {1});
  return ops_trial<&TensorOps::add_sum_of_squares>(dtype, sum, vector, sum);
}

Trial<TensorOps> gather_trial(TrialTensors& tensors, DType dtype) {
  Tensor const from = tensors.strided(3).input(dtype, {rows, columns});
  Tensor const index = tensors.integers({300, 0, 5, 5, 17});
  Tensor const to = tensors.strided(2).output(dtype, {5, columns});
  return ops_trial<&TensorOps::copy_rows>(dtype, to, from, index, to, Tensor());
}

Trial<TensorOps> scatter_trial(TrialTensors& tensors, DType dtype) {
  Tensor const from = tensors.strided(3).input(dtype, {5, columns});
  Tensor const place = tensors.integers({4, 2, 0, 1, 3});
  Tensor const to = tensors.strided(2).output(dtype, {5, columns});
  return ops_trial<&TensorOps::copy_rows>(dtype, to, from, Tensor(), to, place);
}

Trial<TensorOps> gather_columns_trial(TrialTensors& tensors, DType dtype) {
  Tensor const from = tensors.input(dtype, {rows, columns});
  Tensor const index = tensors.integers({66, 0, 5, 5, 17});
  Tensor const to = tensors.output(dtype, {rows, 5});
  return ops_trial<&TensorOps::gather_columns>(dtype, to, from, index, to);
}

Trial<TensorOps> add_gathered_columns_trial(TrialTensors& tensors, DType dtype) {
  Tensor const from = tensors.input(dtype, {rows, 5});
  Tensor const index = tensors.integers({66, 0, 5, 5, 17});
  Tensor const into = tensors.sums(dtype, {rows, columns});
  return ops_trial<&TensorOps::add_gathered_columns>(dtype, into, from, index, into);
}

Trial<TensorOps> rotate_trial(PairLayout layout, bool back, TrialTensors& tensors, DType dtype) {
  constexpr std::int64_t width = 6;
  constexpr std::int32_t positions = 40;
  std::vector<std::int32_t> position;
  for (std::int32_t row = 0; row < rows; ++row) {
    position.push_back(row * 7 % positions);
  }
  Rotation const rotation{.position = tensors.integers(position),
                          .table = tensors.input(statistics_dtype(dtype), {positions, width}),
                          .layout = layout,
                          .back = back};
  Tensor const matrix = updated_matrix(tensors, dtype, {rows, 5 * width});
  return ops_trial<&TensorOps::rotate>(dtype, matrix, matrix, rotation);
}

Trial<TensorOps> cap_trial(TrialTensors& tensors, DType dtype) {
  Tensor const values = updated_matrix(tensors, dtype, {rows, columns});
  return ops_trial<&TensorOps::cap>(dtype, values, values, 0.7);
}

Trial<TensorOps> cap_backward_trial(TrialTensors& tensors, DType dtype) {
  Tensor const capped = tensors.strided(3).input(dtype, {rows, columns});
  Tensor const gradient = updated_matrix(tensors, dtype, {rows, columns});
  return ops_trial<&TensorOps::cap_backward>(dtype, gradient, capped, gradient, 1.5);
}

}  // namespace

void add_tensor_ops_trials(KernelRegistries& registries) {
  auto& registry = registries.of<TensorOps>();
  registry.add_trial("fill", fill_trial);
  registry.add_trial("scale", scale_trial);
  registry.add_trial("add", add_trial);
  registry.add_trial("mix", mix_trial);
  for (DType const to : {DType::float32, DType::bfloat16}) {
    registry.add_trial(fmt::format("copy to {}", name_of(to)), std::bind_front(copy_trial, to));
  }
  registry.add_trial("column sums", column_sums_trial);
  registry.add_trial("sum of squares", squares_trial);
  registry.add_trial("gather rows", gather_trial);
  registry.add_trial("scatter rows", scatter_trial);
  registry.add_trial("gather columns", gather_columns_trial);
  registry.add_trial("add gathered columns", add_gathered_columns_trial);
  registry.add_trial("cap", cap_trial);
  registry.add_trial("cap backward", cap_backward_trial);
  for (PairLayout const layout : {PairLayout::interleaved, PairLayout::halves}) {
    for (bool const back : {false, true}) {
      registry.add_trial(fmt::format("rotate {}, {}", back ? "back" : "forth", name_of(layout)),
                         std::bind_front(rotate_trial, layout, back));
    }
  }
}

}  // namespace heddle
