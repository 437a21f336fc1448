#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <heddle/core/operations/embedding.hpp>
#include <heddle/core/trials/trials.hpp>
#include <numeric>

namespace heddle {

namespace {

struct Variant {
  std::int64_t columns;
  bool positions;
  double dropout;
  bool frozen = false;   ///< the table, so that only the positions have a gradient
  bool rounded = false;  ///< the frozen table is in bfloat16
};

constexpr std::int64_t vocabulary = 13;
constexpr std::int64_t max_length = 9;
constexpr std::array lengths{5, 0, 9, 1, 7};

/// Ids from 0 to 19 of which [4, 17) are in the table; repeated ones; sequences with and without tokens.
EmbeddingCall make_call(Variant const& variant, TrialTensors& tensors, DType dtype) {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> samples;
  std::vector<std::int32_t> positions;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    for (std::int32_t position = 0; position < lengths[i]; ++position) {
      auto const row = static_cast<std::int32_t>(ids.size());
      ids.push_back(row % 3 == 0 ? 5 : row * row % 20);
      samples.push_back(static_cast<std::int32_t>(3 * i + 1));
      positions.push_back(position);
    }
  }
  std::vector<std::int32_t> order(ids.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t left, std::int32_t right) {
    return ids[static_cast<std::size_t>(left)] < ids[static_cast<std::size_t>(right)];
  });
  EmbeddingCall call;
  DType const rounded = dtype == DType::float64 ? dtype : DType::bfloat16;
  call.table = tensors.input(variant.rounded ? rounded : parameter_dtype(dtype), {vocabulary, variant.columns});
  call.positions = variant.positions ? tensors.input(parameter_dtype(dtype), {max_length, variant.columns}) : Tensor();
  call.tokens = {tensors.integers(ids), tensors.integers(order)};
  call.rows.sequences = tensors.sequences({lengths.begin(), lengths.end()});
  call.rows.sample = tensors.integers(samples);
  call.rows.position = tensors.integers(positions);
  call.rows.tokens = static_cast<std::int64_t>(ids.size());
  call.first_token = 4;
  call.scale = 1.75;
  call.dropout = tensors.dropout(variant.dropout, call.rows.tokens);
  if (call.dropout.active()) {
    call.dropout.sample = call.rows.sample;
    call.dropout.position = call.rows.position;
  }
  return call;
}

Trial<Embedding> make_trial(Variant const& variant, TrialTensors& tensors, DType dtype) {
  EmbeddingCall const call = make_call(variant, tensors, dtype);
  Shape const shape{call.rows.tokens, variant.columns};
  Tensor const output = tensors.output(dtype, shape);
  Tensor const upstream = tensors.input(dtype, shape);
  Tensor const grad_table = variant.frozen ? Tensor() : tensors.sums(call.table.dtype(), call.table.shape());
  Tensor const grad_positions =
      variant.positions ? tensors.sums(call.positions.dtype(), call.positions.shape()) : Tensor();
  Trial<Embedding> trial{.problem = call.problem(dtype)};
  trial.forward = [=](Embedding& kernel, Execution& execution) { kernel.forward(execution, call, output); };
  trial.backward = [=](Embedding& kernel, Execution& execution) {
    kernel.backward(execution, call, upstream, grad_table, grad_positions);
  };
  trial.outputs = {{"output", output, upstream}};
  if (!variant.frozen) {
    trial.gradients = {{"table", call.table, grad_table, TrialTensors::start}};
  }
  if (variant.positions) {
    trial.gradients.push_back({"positions", call.positions, grad_positions, TrialTensors::start});
  }
  return trial;
}

}  // namespace

void add_embedding_trials(KernelRegistries& registries) {
  auto const add = [&](Variant const& variant) {
    std::string const name = fmt::format("{} columns{}{}{}", variant.columns, variant.positions ? ", positions" : "",
                                         variant.dropout > 0 ? fmt::format(", dropout {}", variant.dropout) : "",
                                         variant.rounded  ? ", table in bfloat16"
                                         : variant.frozen ? ", frozen table"
                                                          : "");
    registries.of<Embedding>().add_trial(name, std::bind_front(make_trial, variant));
  };
  for (std::int64_t const columns : {std::int64_t{1}, std::int64_t{67}, std::int64_t{200}}) {
    for (bool const positions : {false, true}) {
      for (double const dropout : {0.0, 0.3}) {
        add({columns, positions, dropout});
      }
    }
  }
  add({67, true, 0.3, true});
  add({67, true, 0.3, true, true});
}

}  // namespace heddle
