#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/index_range.hpp>
#include <heddle/core/config/config.hpp>
#include <heddle/core/layers/output_loss.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <heddle/dist/report/traffic_report.hpp>
#include <string>
#include <vector>

#include "layouts.hpp"

// Communication of a training step by the formulas of the literature; docs/internals/communication.md has them as a
// table. Sizes divide by the ranks that they are split over, so that no buffer has padding.
namespace heddle::ledger_formulas {

inline constexpr std::int64_t d_model = 128;
inline constexpr std::int64_t d_ff = 256;
inline constexpr std::int64_t heads = 8;
inline constexpr std::int64_t vocabulary = 32;
inline constexpr std::int64_t element = 4;         // bytes, of float32
inline constexpr std::int64_t statistics = 4;      // float32 values a token, of the loss
inline constexpr std::int64_t number = 8;          // bytes, of a loss sum or a gradient norm
inline constexpr std::int64_t logits_chunk = 256;  // tokens, on the host
inline constexpr std::int64_t max_slices = 8;

inline void add(Ledger& ledger, CollectiveOp collective, std::int64_t operations, std::int64_t bytes) {
  ledger[static_cast<std::size_t>(collective)].operations += operations;
  ledger[static_cast<std::size_t>(collective)].bytes += bytes;
}

inline std::string describe(Ledger const& ledger) {
  std::string text;
  for (std::size_t collective = 0; collective < collectives; ++collective) {
    if (ledger[collective].operations != 0 || ledger[collective].bytes != 0) {
      text += fmt::format("{}{} {} of {} bytes", text.empty() ? "" : ", ", ledger[collective].operations,
                          name_of(static_cast<CollectiveOp>(collective)), ledger[collective].bytes);
    }
  }
  return text.empty() ? "nothing" : text;
}

/// One side of a micro-batch: the tokens of each rank of the context group.
struct Tokens {
  std::vector<std::int64_t> held;
  int rank = 0;

  Tokens(TokenRows const& own, ContextRows const& rows, Communicator const& context) : rank(context.rank()) {
    for (TokenRows const& shard : rows.shards) {
      held.push_back(shard.tokens);
    }
    if (held.empty()) {
      held.push_back(own.tokens);
    }
  }
  std::int64_t here() const { return held[static_cast<std::size_t>(rank)]; }
  std::int64_t next() const { return held[static_cast<std::size_t>(rank + 1) % held.size()]; }
  std::int64_t all() const {
    std::int64_t sum = 0;
    for (std::int64_t const tokens : held) {
      sum += tokens;
    }
    return sum;
  }
};

/// A rank's costs, formula by formula. n: tokens on this context rank, t, c, r: ranks of the tensor and the context
/// group and replicas.
class Formulas {
 public:
  Formulas(Layout const& layout, ParallelState const& parallel) : layout_(layout), parallel_(parallel) {}

  TrafficByGroup const& ledgers() const { return ledgers_; }

  /// Shoeybi et al. 2019: all-reduces of n d_model, one forward and one backward for each sublayer. Korthikanti et al.
  /// 2022: an all-gather in, a reduce-scatter out, and their conjugates; a further all-gather restores the sublayer's
  /// input for the gradient of its weight.
  void tensor_sublayer(std::int64_t tokens) {
    if (layout_.sequence_parallel) {
      over_tensor(CollectiveOp::all_gather, 3, tokens);
      over_tensor(CollectiveOp::reduce_scatter, 2, tokens);
    } else {
      over_tensor(CollectiveOp::all_reduce, 2, tokens);
    }
  }
  /// Tensors that enter or leave the split work once each way: the embedding's output, the memory, the output's input.
  void tensor_passage(std::int64_t tokens) {
    if (layout_.sequence_parallel) {
      over_tensor(CollectiveOp::all_gather, 1, tokens);
      over_tensor(CollectiveOp::reduce_scatter, 1, tokens);
    } else {
      over_tensor(CollectiveOp::all_reduce, 1, tokens);
    }
  }

  /// Liu et al. 2023: blocks of keys and values are passed around the ring, and in backward once more with their
  /// gradients. Jacobs et al. 2023: queries, keys, values and outputs are exchanged.
  void attention(Tokens const& queries, Tokens const& keys, bool self) {
    std::int64_t const c = parallel_.context.size();
    if (c == 1) {
      return;
    }
    std::int64_t const columns = d_model / parallel_.tensor.size() * element;
    if (layout_.context_mode == ContextMode::ulysses) {
      add(ledgers_[TrafficGroup::context], CollectiveOp::all_to_all, self ? 4 : 6,
          columns * (2 * queries.here() + 2 * keys.here()) + columns / c * (2 * queries.all() + 2 * keys.all()));
      return;
    }
    std::int64_t const slices = std::min<std::int64_t>(heads / parallel_.tensor.size(), max_slices);
    std::int64_t const messages = 2 * (c - 1) + slices * c;
    add(ledgers_[TrafficGroup::context], CollectiveOp::send, messages,
        2 * columns * (3 * keys.all() - 2 * keys.next()));
    add(ledgers_[TrafficGroup::context], CollectiveOp::receive, messages,
        2 * columns * (3 * keys.all() - 2 * keys.here()));
  }

  /// The first half of these: attention that is computed again.
  void attention_forward(Tokens const& queries, Tokens const& keys, bool self) {
    std::int64_t const c = parallel_.context.size();
    if (c == 1) {
      return;
    }
    std::int64_t const columns = d_model / parallel_.tensor.size() * element;
    if (layout_.context_mode == ContextMode::ulysses) {
      add(ledgers_[TrafficGroup::context], CollectiveOp::all_to_all, self ? 2 : 3,
          columns * (queries.here() + 2 * keys.here()) + columns / c * queries.all());
      return;
    }
    add(ledgers_[TrafficGroup::context], CollectiveOp::send, c - 1, 2 * columns * (keys.all() - keys.next()));
    add(ledgers_[TrafficGroup::context], CollectiveOp::receive, c - 1, 2 * columns * (keys.all() - keys.here()));
  }
  /// A forward pass moves what a passage does, for each sublayer.
  void encoder_layer_again(Tokens const& source, Recompute what) {
    for (int sublayer = 0; sublayer < (what == Recompute::layer ? 2 : 1); ++sublayer) {
      tensor_passage(source.here());
    }
    attention_forward(source, source, true);
  }
  void decoder_layer_again(Tokens const& source, Tokens const& target, Recompute what) {
    for (int sublayer = 0; sublayer < (what == Recompute::layer ? 3 : 2); ++sublayer) {
      tensor_passage(target.here());
    }
    attention_forward(target, target, true);
    attention_forward(target, source, false);
  }

  void encoder_layer(Tokens const& source) {
    for (int sublayer = 0; sublayer < 2; ++sublayer) {
      tensor_sublayer(source.here());
    }
    attention(source, source, true);
  }
  void decoder_layer(Tokens const& source, Tokens const& target) {
    for (int sublayer = 0; sublayer < 3; ++sublayer) {
      tensor_sublayer(target.here());
    }
    attention(target, target, true);
    attention(target, source, false);
  }

  /// Four numbers per token from every rank of the tensor group to every other, chunk by chunk of the logits.
  void loss_statistics(std::int64_t tokens) {
    if (parallel_.tensor.size() > 1) {
      int const ranks = parallel_.tensor.size();
      std::int64_t const chunk = OutputLoss::chunk_tokens(vocabulary, ranks, DType::float32);
      add(ledgers_[TrafficGroup::tensor], CollectiveOp::all_gather, (tokens + chunk - 1) / chunk,
          ranks * statistics * tokens * element);
    }
  }

  /// Messages across the boundary before a layer, both ways: {hidden, memory}, each a message with this tensor rank's
  /// rows.
  void border(std::int64_t layer, ModelConfig const& model, Tokens const& source, Tokens const& target) {
    if (layer == 0 || layer == model.encoder.layers + model.decoder.layers) {
      return;
    }
    if (layer != model.encoder.layers) {
      message(layer < model.encoder.layers ? source.here() : target.here());
    }
    if (layer >= model.encoder.layers) {
      message(source.here());
    }
  }

  /// The gradients' sum over the replicas, `elements` in this many buckets; ZeRO-1 (Rajbhandari et al. 2020): the same
  /// bytes once as a reduce-scatter and once, of the values, as an all-gather.
  void gradients(std::int64_t elements, std::int64_t buckets) {
    if (parallel_.replicas.size() == 1) {
      return;
    }
    if (layout_.shard_optimizer) {
      add(ledgers_[TrafficGroup::replicas], CollectiveOp::reduce_scatter, buckets, elements * element);
      add(ledgers_[TrafficGroup::replicas], CollectiveOp::all_gather, buckets, elements * element);
    } else {
      add(ledgers_[TrafficGroup::replicas], CollectiveOp::all_reduce, buckets, elements * element);
    }
  }
  /// Over the tensor group: gradients of parameters that see a part of the tokens on each of its ranks.
  void partial_gradients(std::int64_t elements) {
    if (elements > 0) {
      add(ledgers_[TrafficGroup::tensor], CollectiveOp::all_reduce, 1, elements * element);
    }
  }
  /// A table of which this many stages hold a copy: each sends the gradient of its part to each other one.
  void shared_table(std::size_t stages) {
    std::int64_t const others = static_cast<std::int64_t>(stages) - 1;
    std::int64_t const replicas = layout_.shard_optimizer ? parallel_.replicas.size() : 1;
    std::int64_t const bytes = others * vocabulary * d_model / parallel_.tensor.size() / replicas * element;
    add(ledgers_[TrafficGroup::pipeline], CollectiveOp::send, others, bytes);
    add(ledgers_[TrafficGroup::pipeline], CollectiveOp::receive, others, bytes);
  }
  /// The step's loss, smoothed and not, and the gradient's norm.
  void scalars() {
    numbers(parallel_.replicas, ledgers_[TrafficGroup::replicas], 2);
    if (layout_.shard_optimizer) {
      numbers(parallel_.replicas, ledgers_[TrafficGroup::replicas], 1);
    }
    numbers(parallel_.pipeline, ledgers_[TrafficGroup::pipeline], 2);
    numbers(parallel_.pipeline, ledgers_[TrafficGroup::pipeline], 1);
    numbers(parallel_.tensor, ledgers_[TrafficGroup::tensor], 1);
  }

 private:
  void over_tensor(CollectiveOp collective, std::int64_t operations, std::int64_t tokens) {
    if (parallel_.tensor.size() > 1) {
      add(ledgers_[TrafficGroup::tensor], collective, operations, operations * tokens * d_model * element);
    }
  }
  void message(std::int64_t tokens) {
    int const ranks = layout_.sequence_parallel ? parallel_.tensor.size() : 1;
    std::int64_t const rows = share(tokens, parallel_.tensor.rank() % ranks, ranks).count();
    add(ledgers_[TrafficGroup::pipeline], CollectiveOp::send, 1, rows * d_model * element);
    add(ledgers_[TrafficGroup::pipeline], CollectiveOp::receive, 1, rows * d_model * element);
  }
  static void numbers(Communicator const& group, Ledger& ledger, std::int64_t count) {
    if (group.size() > 1) {
      add(ledger, CollectiveOp::all_reduce, 1, count * number);
    }
  }

  Layout layout_;
  ParallelState const& parallel_;
  TrafficByGroup ledgers_{};
};

/// Parameters of one layer on each of t tensor ranks.
inline std::int64_t layer_elements(std::int64_t attentions, std::int64_t t) {
  std::int64_t const attention = 4 * d_model * d_model / t + 3 * d_model / t + d_model;
  std::int64_t const feed_forward = 2 * d_model * d_ff / t + d_ff / t + d_model;
  std::int64_t const norms = 2 * d_model * (attentions + 1);
  return attentions * attention + feed_forward + norms;
}

}  // namespace heddle::ledger_formulas
