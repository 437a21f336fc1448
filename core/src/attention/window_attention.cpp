#include <algorithm>
#include <heddle/core/attention/context_attention.hpp>
#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <numeric>
#include <span>
#include <vector>

#include "context_tensors.hpp"

namespace heddle {

namespace {

using Integers = std::vector<std::int32_t>;

/// The rows of a rank on the host.
struct HostRows {
  Integers begin, length, position;

  explicit HostRows(TokenRows const& rows)
      : begin(to_host<std::int32_t>(rows.sequences.begin)),
        length(to_host<std::int32_t>(rows.sequences.length)),
        position(to_host<std::int32_t>(rows.position)) {}

  std::span<std::int32_t const> positions(std::size_t sequence) const {
    return std::span(position).subspan(static_cast<std::size_t>(begin[sequence]),
                                       static_cast<std::size_t>(length[sequence]));
  }
};

/// Whether any query at these ascending positions sees the key at `key`.
bool any_sees(AttentionMask const& mask, std::span<std::int32_t const> queries, std::int64_t key) {
  auto const from = std::ranges::lower_bound(queries, mask.first_query(key));
  if (from != queries.end() && *from < mask.end_query(key)) {
    return true;
  }
  auto const may_see = mask.hides_later ? std::ranges::lower_bound(queries, key) : queries.begin();
  return may_see != queries.end() && (key < mask.global_tokens || *may_see < mask.global_tokens);
}

/// The rows of `held` that the queries of `asking` see, sequence by sequence.
Integers rows_seen(AttentionMask const& mask, HostRows const& asking, HostRows const& held) {
  Integers rows;
  for (std::size_t sequence = 0; sequence < held.begin.size(); ++sequence) {
    auto const positions = held.positions(sequence);
    for (std::size_t i = 0; i < positions.size(); ++i) {
      if (any_sees(mask, asking.positions(sequence), positions[i])) {
        rows.push_back(held.begin[sequence] + static_cast<std::int32_t>(i));
      }
    }
  }
  return rows;
}

Tensor upload(Integers const& values) {
  return from_host<std::int32_t>(values, {static_cast<std::int64_t>(values.size())});
}

/// The rows of keys and values that the ranks of a context group exchange so that each has those that its queries see:
/// its own and those of its neighbours, and global tokens. Every rank knows all ranks' positions.
class WindowExchange {
 public:
  WindowExchange(Communicator const& group, ContextAttention::Task const& task, TensorOps& tensor_ops,
                 AttentionMask const& mask)
      : group_(group), task_(task), tensor_ops_(tensor_ops) {
    std::vector<HostRows> const ranks(task.keys.shards.begin(), task.keys.shards.end());
    HostRows const& own = ranks[static_cast<std::size_t>(group.rank())];
    Integers sent;
    std::vector<std::int32_t> sequence;  // of each received row
    Integers position;
    for (HostRows const& other : ranks) {
      Integers const asked = rows_seen(mask, other, own);
      sent.insert(sent.end(), asked.begin(), asked.end());
      send_rows_.push_back(static_cast<std::int64_t>(asked.size()));
      asked_.push_back(places_of(asked, own.position.size()));
      Integers const received = rows_seen(mask, own, other);
      receive_rows_.push_back(static_cast<std::int64_t>(received.size()));
      for (std::int32_t const row : received) {
        auto const next = std::ranges::upper_bound(other.begin, row);
        sequence.push_back(static_cast<std::int32_t>(next - other.begin.begin()) - 1);
        position.push_back(other.position[static_cast<std::size_t>(row)]);
      }
    }
    sent_ = upload(sent);
    sort(own.begin.size(), sequence, position);
  }

  /// keys [rows that this rank sees, 2 * width], by sequence and position, from this rank's k and v. Collective.
  KeysAndValues to_seen(Tensor const& k, Tensor const& v) const {
    Shape const shape{keys_.count > 0 ? position_.dim(0) : 0, k.dim(1) + v.dim(1)};
    KeysAndValues const seen{task_.arena.allocate(k.dtype(), shape)};
    ArenaScope const scope(task_.arena);
    KeysAndValues const own{task_.arena.allocate(k.dtype(), {k.dim(0), shape[1]})};
    tensor_ops_.copy(task_.execution, k, own.keys());
    tensor_ops_.copy(task_.execution, v, own.values());
    Tensor const sent = task_.arena.allocate(k.dtype(), {sent_.dim(0), shape[1]});
    Tensor const received = task_.arena.allocate(k.dtype(), shape);
    tensor_ops_.gather_rows(task_.execution, own.both, sent_, sent);
    group_.all_to_all_rows(sent, send_rows_, received, receive_rows_);
    tensor_ops_.gather_rows(task_.execution, received, order_, seen.both);
    return seen;
  }

  /// The sums, in the order of the ranks, of the gradients [rows seen, 2 * width] that the ranks have for this rank's
  /// rows: [own rows, 2 * width], from the arena. Collective.
  KeysAndValues to_own(KeysAndValues const& gradients) const {
    Tensor const& seen = gradients.both;
    std::int64_t const own_rows = task_.keys.shards[static_cast<std::size_t>(group_.rank())].tokens;
    KeysAndValues const sums{task_.arena.allocate(seen.dtype(), {own_rows, seen.dim(1)})};
    tensor_ops_.fill(task_.execution, sums.both, 0);
    ArenaScope const scope(task_.arena);
    Tensor const sent = task_.arena.allocate(seen.dtype(), seen.shape());
    // One row more than there are, of zeros: the place of own rows that a rank has not asked for.
    std::int64_t const rows = sent_.dim(0);
    Tensor const received = task_.arena.allocate(seen.dtype(), {rows + 1, seen.dim(1)});
    Tensor const part = task_.arena.allocate(seen.dtype(), sums.both.shape());
    tensor_ops_.gather_rows(task_.execution, seen, places_, sent);
    group_.all_to_all_rows(sent, receive_rows_, received.rows(0, rows), send_rows_);
    tensor_ops_.fill(task_.execution, received.rows(rows, 1), 0);
    std::int64_t first = 0;
    for (std::size_t rank = 0; rank < send_rows_.size(); first += send_rows_[rank], ++rank) {
      if (send_rows_[rank] > 0) {
        tensor_ops_.gather_rows(task_.execution, received, shifted(asked_[rank], first, rows), part);
        tensor_ops_.add(task_.execution, sums.both, part);
      }
    }
    return sums;
  }

  Sequences const& keys() const { return keys_; }
  Tensor const& position() const { return position_; }

 private:
  /// The place among `rows` of each of `count` rows; -1 if it is not among them.
  static Integers places_of(Integers const& rows, std::size_t count) {
    Integers places(count, -1);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      places[static_cast<std::size_t>(rows[i])] = static_cast<std::int32_t>(i);
    }
    return places;
  }
  static Tensor shifted(Integers places, std::int64_t first, std::int64_t none) {
    for (std::int32_t& place : places) {
      place = static_cast<std::int32_t>(place < 0 ? none : first + place);
    }
    return upload(places);
  }

  /// Puts the received rows in the order of their sequences and positions.
  void sort(std::size_t sequences, Integers const& sequence, Integers const& position) {
    Integers order(sequence.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [&](std::int32_t row) {
      auto const index = static_cast<std::size_t>(row);
      return std::pair(sequence[index], position[index]);
    });
    Integers begin(sequences);
    Integers length(sequences);
    Integers sorted;
    for (std::int32_t const row : order) {
      ++length[static_cast<std::size_t>(sequence[static_cast<std::size_t>(row)])];
      sorted.push_back(position[static_cast<std::size_t>(row)]);
    }
    std::exclusive_scan(length.begin(), length.end(), begin.begin(), 0);
    std::int32_t const longest = length.empty() ? 0 : std::ranges::max(length);
    keys_ = {upload(begin), upload(length), static_cast<std::int64_t>(sequences), longest};
    position_ = upload(sorted);
    order_ = upload(order);
    places_ = upload(places_of(order, order.size()));
  }

  Communicator const& group_;
  ContextAttention::Task const& task_;
  TensorOps& tensor_ops_;
  std::vector<std::int64_t> send_rows_, receive_rows_;  ///< for and from each rank
  std::vector<Integers> asked_;                         ///< the place of each own row among those for a rank, or -1
  Tensor sent_;                                         ///< own rows, rank after rank
  Tensor order_, places_;                               ///< the received row of each key, and the inverse
  Sequences keys_;
  Tensor position_;
};

}  // namespace

ContextAttention::Activations ContextAttention::window_forward(Task const& task, AttentionCall const& call,
                                                               Tensor const& output) const {
  WindowExchange const exchange(group_, task, *tensor_ops_, call.mask);
  Activations kept{call, output, task.arena.allocate(statistics_dtype(call.q.dtype()), {call.q.dim(0), call.heads})};
  KeysAndValues const seen = exchange.to_seen(call.k, call.v);
  kept.call.k = seen.keys();
  kept.call.v = seen.values();
  kept.call.keys = exchange.keys();
  kept.call.key_position = exchange.position();
  kept.call.query_position = task.queries.shards[static_cast<std::size_t>(group_.rank())].position;
  ArenaScope const scope(task.arena);
  Widened const widened(task, *tensor_ops_, operand_dtype(call.q.dtype()));
  Widened const summed(task, *tensor_ops_, sum_dtype(mode_, call.q.dtype()));
  AttentionCall wide = kept.call;
  wide.q = widened(wide.q);
  KeysAndValues const wide_seen{widened(seen.both)};
  wide.k = wide_seen.keys();
  wide.v = wide_seen.values();
  Tensor const sums = summed.room_for(output);
  attention_->forward(task.execution, wide, sums, kept.log_sum_exp);
  summed.copy(sums, output);
  return kept;
}

void ContextAttention::window_backward(Task const& task, Activations const& kept, Tensor const& grad_output,
                                       AttentionGradients const& gradients) const {
  ArenaScope const scope(task.arena);
  WindowExchange const exchange(group_, task, *tensor_ops_, kept.call.mask);
  DType const sums = sum_dtype(mode_, kept.call.q.dtype());
  Widened const widened(task, *tensor_ops_, operand_dtype(kept.call.q.dtype()));
  Widened const summed(task, *tensor_ops_, sums);
  AttentionCall wide = kept.call;
  wide.q = widened(wide.q);
  wide.k = widened(wide.k);
  wide.v = widened(wide.v);
  Tensor const grad_q = summed.room_for(gradients.q);
  KeysAndValues const grad{task.arena.allocate(sums, {wide.k.dim(0), 2 * wide.k.dim(1)})};
  attention_->backward(task.execution, wide, widened(kept.output), kept.log_sum_exp, widened(grad_output),
                       {grad_q, grad.keys(), grad.values(), gradients.bias, gradients.score_weight});
  summed.copy(grad_q, gradients.q);
  KeysAndValues const own = exchange.to_own(grad);
  tensor_ops_->copy(task.execution, own.keys(), gradients.k);
  tensor_ops_->copy(task.execution, own.values(), gradients.v);
}

}  // namespace heddle
