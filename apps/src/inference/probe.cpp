#include "probe.hpp"

#include <algorithm>
#include <heddle/core/attention/alignment_guide.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/tensor/doubles.hpp>
#include <utility>

namespace heddle {
namespace {

Tensor in_dtype(Tensor const& tensor, DType dtype) {
  return tensor.empty() || tensor.dtype() == dtype ? tensor : from_doubles(to_doubles(tensor), dtype, tensor.shape());
}

/// The same problem in another dtype, without dropout, and with the keys in place of the values.
AttentionCall probed(AttentionCall const& call, DType dtype) {
  if (call.accumulate || !call.state.empty()) {
    throw Error("the weights of a call that continues another one are not known");
  }
  AttentionCall result = call;
  result.q = in_dtype(call.q, dtype);
  result.k = in_dtype(call.k, dtype);
  result.bias = in_dtype(call.bias, dtype);
  result.score_weight = in_dtype(call.score_weight, dtype);
  result.v = result.k;
  result.dropout = {};
  return result;
}

/// Values [key tokens, kv_heads * head_dim] that are 1 in column j of the sequences' keys first + j.
Tensor unit_values(AttentionCall const& call, std::int64_t head_dim, std::int64_t first) {
  auto const begin = to_host<std::int32_t>(call.keys.begin);
  auto const length = to_host<std::int32_t>(call.keys.length);
  std::int64_t const columns = call.k.dim(1);
  std::vector<double> values(static_cast<std::size_t>(call.k.dim(0) * columns));
  for (std::size_t sequence = 0; sequence < begin.size(); ++sequence) {
    std::int64_t const end = std::min<std::int64_t>(first + head_dim, length[sequence]);
    for (std::int64_t key = first; key < end; ++key) {
      for (std::int64_t head = 0; head < columns; head += head_dim) {
        values[static_cast<std::size_t>((begin[sequence] + key) * columns + head + key - first)] = 1;
      }
    }
  }
  return from_doubles(values, call.k.dtype(), call.k.shape());
}

}  // namespace

std::vector<SequenceAttention> attention_weights(Execution& execution, Attention& attention, AttentionCall const& call,
                                                 DType dtype) {
  AttentionCall part = probed(call, dtype);
  std::int64_t const columns = call.q.dim(1);
  std::int64_t const head_dim = columns / call.heads;
  auto const query_begin = to_host<std::int32_t>(call.queries.begin);
  auto const query_length = to_host<std::int32_t>(call.queries.length);
  auto const key_length = to_host<std::int32_t>(call.keys.length);
  std::vector<SequenceAttention> sequences;
  for (std::size_t index = 0; index < query_begin.size(); ++index) {
    SequenceAttention sequence{query_length[index], key_length[index], {}};
    sequence.weights.resize(static_cast<std::size_t>(call.heads * sequence.queries * sequence.keys));
    sequences.push_back(std::move(sequence));
  }
  Tensor const output = Tensor::allocate(dtype, call.q.shape());
  Tensor const log_sum_exp = Tensor::allocate(dtype, {call.q.dim(0), call.heads});
  for (std::int64_t first = 0; first < call.keys.max_length; first += head_dim) {
    part.v = unit_values(part, head_dim, first);
    attention.forward(execution, part, output, log_sum_exp);
    std::vector<double> const weights = to_doubles(output);
    for (std::size_t index = 0; index < sequences.size(); ++index) {
      SequenceAttention& sequence = sequences[index];
      std::int64_t const end = std::min(first + head_dim, sequence.keys);
      for (std::int64_t row = 0; row < call.heads * sequence.queries; ++row) {
        std::int64_t const head = row / sequence.queries;
        std::int64_t const query = query_begin[index] + row % sequence.queries;
        for (std::int64_t key = first; key < end; ++key) {
          sequence.weights[static_cast<std::size_t>(row * sequence.keys + key)] =
              weights[static_cast<std::size_t>(query * columns + head * head_dim + key - first)];
        }
      }
    }
  }
  return sequences;
}

std::vector<SequenceAttention> attention_weights(Execution& execution, KernelRegistry<Attention> const& kernels,
                                                 AttentionCall const& call) {
  auto const fastest = kernels.select("auto", probed(call, DType::float32).problem());
  return attention_weights(execution, *fastest, call, DType::float32);
}

std::vector<ObservedAttention> AttentionProbe::stop() {
  return std::exchange(calls_, std::nullopt).value_or(std::vector<ObservedAttention>());
}

void AttentionProbe::forward(Execution& execution, AttentionCall const& call, Tensor const& output,
                             Tensor const& log_sum_exp) {
  if (calls_) {
    calls_->push_back(
        {call.heads, call.mask, call.bias.empty() ? std::vector<double>() : to_doubles(call.bias),
         kernels_ ? attention_weights(execution, *kernels_, call) : attention_weights(execution, *reference_, call)});
  }
  auto const computing = kernels_ ? kernels_->select("auto", call.problem()) : reference_;
  computing->forward(execution, call, output, log_sum_exp);
}

void AttentionProbe::backward(Execution& execution, AttentionCall const& call, Tensor const& output,
                              Tensor const& log_sum_exp, Tensor const& grad_output,
                              AttentionGradients const& gradients) {
  reference_->backward(execution, call, output, log_sum_exp, grad_output, gradients);
}

void EmbeddingProbe::forward(Execution& execution, EmbeddingCall const& call, Tensor const& output) {
  positions_.push_back(call.positions);
  reference_->forward(execution, call, output);
}

void EmbeddingProbe::backward(Execution& execution, EmbeddingCall const& call, Tensor const& grad_output,
                              Tensor const& grad_table, Tensor const& grad_positions) {
  reference_->backward(execution, call, grad_output, grad_table, grad_positions);
}

std::vector<AttentionSublayer> attention_sublayers(ModelDescription const& model) {
  std::vector<AttentionSublayer> sublayers;
  for (StackDescription const& stack : model.stacks) {
    for (LayerDescription const& layer : stack.layers) {
      for (SublayerDescription const& sublayer : layer.sublayers) {
        if (sublayer.traits.attends) {
          bool const cross = sublayer.name == "cross_attention";
          sublayers.push_back({sublayer.path, stack.side, cross ? stack.encoder_side.value_or(stack.side) : stack.side,
                               guided_alignment_weight(sublayer.options) > 0});
        }
      }
    }
  }
  return sublayers;
}

}  // namespace heddle
