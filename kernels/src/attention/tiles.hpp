#pragma once

#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/attention_score.hpp>
#include <heddle/core/operations/kernel_author.hpp>

#include "tile_multiply.hpp"

/// One head of one sequence in the portable attention: each block of up to 64 queries is combined with the blocks of up
/// to 64 keys that any of them sees. Tiles of scores are transposed, [keys, queries]: the softmax's sums then run along
/// vectors of queries, and Philox computes the random numbers of 16 queries at once.
namespace heddle::kernels {

constexpr std::int64_t attention_block = 64;

/// A function of scores, as work items call it: by a pointer, because compilers for devices refuse other calls of code
/// of the host. No kernel on a device supports functions (is_defined).
template <class Real>
class ScoreFunction {
 public:
  explicit ScoreFunction(AttentionCall const& call)
      : score_(call.function.get()),
        apply_([](AttentionScore const& score, std::int64_t count, Real const* scores, Real* values, Real* slopes) {
          score.apply(count, scores, values, slopes);
        }) {}

  KOKKOS_INLINE_FUNCTION explicit operator bool() const { return score_ != nullptr; }
  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t count, Real const* scores, Real* values, Real* slopes) const {
    apply_(*score_, count, scores, values, slopes);
  }

 private:
  AttentionScore const* score_;
  void (*apply_)(AttentionScore const&, std::int64_t, Real const*, Real*, Real*);
};

/// The call's pointers. Element is the type in memory, Real the type of the computation.
template <class Element>
struct AttentionView {
  using Real = ArithmeticType<Element>;

  Rows<Element> q, k, v;
  std::int32_t const *query_begin, *query_length, *key_begin, *key_length;
  std::int32_t const *query_position,
      *key_position;                  ///< position of each row; null: rows of a sequence are consecutive
  std::int32_t const* prefix_length;  ///< prefix of each sequence, for a prefix mask
  Rows<Real> bias, score_weight;      ///< unset where the call has none
  std::int64_t bias_reach;
  std::int64_t count, heads, head_dim, query_blocks;
  std::int64_t sharing;  ///< heads that share a head of keys and values
  Real scale, soft_cap;
  ScoreKind score;
  ScoreFunction<Real> function;  ///< unset for scores of other kinds
  bool normalized;               ///< weights are the softmax of the scores, not a function's values
  AttentionMask mask;
  bool accumulate;
  DropoutRule dropout;

  explicit AttentionView(AttentionCall const& call)
      : q(rows_of<Element>(call.q)),
        k(rows_of<Element>(call.k)),
        v(rows_of<Element>(call.v)),
        query_begin(call.queries.begin.data<std::int32_t>()),
        query_length(call.queries.length.data<std::int32_t>()),
        key_begin(call.keys.begin.data<std::int32_t>()),
        key_length(call.keys.length.data<std::int32_t>()),
        query_position(rows_of<std::int32_t>(call.query_position).data),
        key_position(rows_of<std::int32_t>(call.key_position).data),
        prefix_length(rows_of<std::int32_t>(call.prefix_length).data),
        bias(rows_of<Real>(call.bias)),
        score_weight(rows_of<Real>(call.score_weight)),
        bias_reach(call.bias.empty() ? 0 : call.bias.dim(1) / 2),
        count(call.queries.count),
        heads(call.heads),
        head_dim(call.q.dim(1) / call.heads),
        query_blocks((call.queries.max_length + attention_block - 1) / attention_block),
        sharing(call.kv_heads > 0 ? call.heads / call.kv_heads : 1),
        scale(static_cast<Real>(call.scale)),
        soft_cap(static_cast<Real>(call.soft_cap)),
        score(call.score),
        function(call),
        normalized(call.function == nullptr || call.function->normalized()),
        mask(call.mask),
        accumulate(call.accumulate),
        dropout(call.dropout) {}

  /// The number of columns of tiles [tokens, head_dim].
  std::int64_t stride() const { return round_up(head_dim, tile_columns); }
  KOKKOS_INLINE_FUNCTION bool is_additive() const { return score == ScoreKind::additive; }
  /// The factor of queries that enter an inner product, and of the gradients that their scores give them.
  KOKKOS_INLINE_FUNCTION Real query_scale() const { return is_additive() ? Real{1} : scale; }
};

/// Consecutive queries or keys of a sequence.
struct Block {
  std::int64_t begin;  ///< within the sequence
  std::int64_t count;

  KOKKOS_INLINE_FUNCTION std::int64_t end() const { return begin + count; }
  KOKKOS_INLINE_FUNCTION bool overlaps(Block other) const { return begin < other.end() && other.begin < end(); }
};

KOKKOS_INLINE_FUNCTION Block block_at(std::int64_t begin, std::int64_t length) {
  return {begin, length - begin < attention_block ? length - begin : attention_block};
}

template <class Element>
struct AttentionHead {
  using Real = ArithmeticType<Element>;

  AttentionView<Element> const& view;
  std::int64_t sequence;
  std::int64_t query_row, queries, key_row, keys;  ///< the sequence's first rows and lengths
  std::int64_t prefix;  ///< keys at positions below it are seen by all; 0 without such a mask
  std::int64_t head;

  KOKKOS_INLINE_FUNCTION AttentionHead(AttentionView<Element> const& call, std::int64_t sequence_index,
                                       std::int64_t head_index)
      : view(call),
        sequence(sequence_index),
        query_row(call.query_begin[sequence]),
        queries(call.query_length[sequence]),
        key_row(call.key_begin[sequence]),
        keys(call.key_length[sequence]),
        prefix(call.prefix_length == nullptr ? 0 : call.prefix_length[sequence]),
        head(head_index) {}

  /// Rows have this type of elements, or are results in a wider one.
  template <class Any>
  KOKKOS_INLINE_FUNCTION Any* at(Rows<Any> const& rows, std::int64_t row) const {
    return rows[row] + head * view.head_dim;
  }
  /// The head of the same sequence that is `offset` heads after this one.
  KOKKOS_INLINE_FUNCTION AttentionHead neighbour(std::int64_t offset) const {
    AttentionHead result = *this;
    result.head += offset;
    return result;
  }
  /// Rows of keys, values or their gradients, shifted so that this head's columns are its key head's columns.
  template <class Any>
  KOKKOS_INLINE_FUNCTION Rows<Any> of_keys(Rows<Any> const& rows) const {
    return {rows.data + (head / view.sharing - head) * view.head_dim, rows.stride};
  }

  /// tile[i] = scale * (row first + i of this head), for `count` rows, zero beyond them and beyond head_dim.
  KOKKOS_INLINE_FUNCTION void load(Rows<Element> const& rows, std::int64_t first, std::int64_t count, Tile<Real> tile,
                                   Real scale = 1) const {
    for (std::int64_t i = 0; i < count; ++i) {
      Element const* const from = at(rows, first + i);
      Real* const to = tile[i];
      for (std::int64_t d = 0; d < view.head_dim; ++d) {
        to[d] = static_cast<Real>(from[d]) * scale;
      }
      for (std::int64_t d = view.head_dim; d < tile.stride; ++d) {
        to[d] = 0;
      }
    }
    for (std::int64_t i = count; i < round_up(count, tile_columns); ++i) {
      for (std::int64_t d = 0; d < tile.stride; ++d) {
        tile[i][d] = 0;
      }
    }
  }

  /// Rows first … first + count of this head = scale * tile, or += it where the call accumulates.
  KOKKOS_INLINE_FUNCTION void store(Tile<Real> tile, Rows<Element> const& rows, std::int64_t first, std::int64_t count,
                                    Real scale = 1) const {
    for (std::int64_t i = 0; i < count; ++i) {
      Element* const to = at(rows, first + i);
      Real const* const from = tile[i];
      for (std::int64_t d = 0; d < view.head_dim; ++d) {
        to[d] = static_cast<Element>(view.accumulate ? static_cast<Real>(to[d]) + scale * from[d] : scale * from[d]);
      }
    }
  }

  /// to [head_dim, count] = from [count, head_dim], both as `load` fills them.
  KOKKOS_INLINE_FUNCTION void transpose(Tile<Real> from, std::int64_t count, Tile<Real> to) const {
    for (std::int64_t i = 0; i < round_up(count, tile_columns); i += tile_columns) {
      for (std::int64_t d = 0; d < view.head_dim; ++d) {
        for (std::int64_t lane = 0; lane < tile_columns; ++lane) {
          to[d][i + lane] = from[i + lane][d];
        }
      }
    }
  }

  /// The queries of a block that see a key, counted from the block's first: those of `range`, and the first ones that
  /// are global tokens.
  struct Seeing {
    Block range;
    std::int64_t global;

    KOKKOS_INLINE_FUNCTION bool has(std::int64_t i) const {
      return i < global || (i >= range.begin && i < range.end());
    }
  };
  KOKKOS_INLINE_FUNCTION Seeing seeing(std::int64_t key, Block block) const {
    std::int64_t const position = position_of(key);
    std::int64_t first = 0;
    std::int64_t end = block.count;
    std::int64_t global = 0;
    switch (view.mask.kind) {
      case MaskKind::bidirectional:
        break;
      case MaskKind::causal:
        first = first_query_at(position, block);
        break;
      case MaskKind::window:
      case MaskKind::blocks:
        if (position < view.mask.global_tokens) {
          first = hides_later_keys() ? first_query_at(position, block) : 0;
        } else {
          first = first_query_at(view.mask.first_query(position), block);
          end = first_query_at(view.mask.end_query(position), block);
          global = hides_later_keys() ? 0 : first_query_at(view.mask.global_tokens, block);
        }
        break;
      case MaskKind::prefix:
        first = position < prefix ? 0 : first_query_at(position, block);
        break;
    }
    return {{first, end - first}, global};
  }
  /// The keys from the first to the last that any query of the block sees.
  KOKKOS_INLINE_FUNCTION Block visible_keys(Block block) const {
    if (block.count == 0 || view.mask.is(MaskKind::bidirectional)) {
      return {0, block.count == 0 ? 0 : keys};
    }
    std::int64_t const last = position_of_query(block.end() - 1);
    Block visible = view.mask.is_local() ? local_keys(block) : Block{0, first_key_at(last + 1)};
    if (view.mask.is_local() && view.mask.global_tokens > 0) {
      bool const sees_all = position_of_query(block.begin) < view.mask.global_tokens;
      std::int64_t const hidden = hides_later_keys() ? first_key_at(last + 1) : keys;
      std::int64_t const global = first_key_at(view.mask.global_tokens);
      std::int64_t const also = sees_all ? hidden : (global < hidden ? global : hidden);
      visible = also == 0 ? visible : Block{0, also > visible.end() ? also : visible.end()};
    } else if (view.mask.is(MaskKind::prefix) && prefix > last) {
      visible = {0, first_key_at(prefix)};
    }
    return visible;
  }
  /// Whether any query of the block of queries sees any key of the block of keys.
  KOKKOS_INLINE_FUNCTION bool see(Block queries_of_block, Block keys_of_block) const {
    if (!visible_keys(queries_of_block).overlaps(keys_of_block)) {
      return false;
    }
    // Between the global tokens and the window there are keys that no query sees.
    return !view.mask.is_local() || view.mask.global_tokens == 0 ||
           local_keys(queries_of_block).overlaps(keys_of_block) ||
           position_of(keys_of_block.begin) < view.mask.global_tokens ||
           position_of_query(queries_of_block.begin) < view.mask.global_tokens;
  }
  KOKKOS_INLINE_FUNCTION std::int64_t position_of_query(std::int64_t query) const {
    return view.query_position == nullptr ? query + (keys - queries) : view.query_position[query_row + query];
  }
  KOKKOS_INLINE_FUNCTION std::int64_t position_of(std::int64_t key) const {
    return view.key_position == nullptr ? key : view.key_position[key_row + key];
  }

  /// Scores [keys, queries] = `hidden` where the query does not see the key.
  KOKKOS_INLINE_FUNCTION void hide_unseen(Block query_block, Block key_block, Tile<Real> scores,
                                          Real hidden = -std::numeric_limits<Real>::infinity()) const {
    for (std::int64_t j = 0; !view.mask.is(MaskKind::bidirectional) && j < key_block.count; ++j) {
      Seeing const visible = seeing(key_block.begin + j, query_block);
      for (std::int64_t i = visible.global; i < visible.range.begin; ++i) {
        scores[j][i] = hidden;
      }
      std::int64_t const end = visible.range.end();
      for (std::int64_t i = end > visible.global ? end : visible.global; i < query_block.count; ++i) {
        scores[j][i] = hidden;
      }
    }
  }

  /// kept [keys, queries] = dropout's multipliers of the weights; rows up to the next multiple of eight are written.
  KOKKOS_INLINE_FUNCTION void fill_kept(Tile<Real> kept, Block query_block, Block key_block) const {
    for (std::int64_t j = 0; j < key_block.count;) {
      std::int64_t const group = position_of(key_block.begin + j) / 8;
      std::int64_t end = view.key_position == nullptr ? j + 8 : j + 1;  // of the keys that share the group's words
      while (view.key_position != nullptr && end < key_block.count && position_of(key_block.begin + end) / 8 == group) {
        ++end;
      }
      for (std::int64_t i = 0; i < query_block.count; i += philox_lanes) {
        std::uint32_t words[4][philox_lanes];
        random_words(words, query_block, i, group);
        if (end - j == 8) {
          for (std::int64_t word = 0; word < 4; ++word) {
            keep(words[word], 0, kept[j + 2 * word] + i);
            keep(words[word], 16, kept[j + 2 * word + 1] + i);
          }
        } else {
          for (std::int64_t key = j; key < end; ++key) {
            std::int64_t const half = position_of(key_block.begin + key) % 8;
            keep(words[half / 2], half % 2 == 0 ? 0 : 16, kept[key] + i);
          }
        }
      }
      j = end;
    }
  }

 private:
  KOKKOS_INLINE_FUNCTION bool hides_later_keys() const { return view.mask.hides_later; }
  /// The keys that the block's queries see by a local mask without its global tokens.
  KOKKOS_INLINE_FUNCTION Block local_keys(Block block) const {
    std::int64_t const begin = first_key_at(view.mask.first_key(position_of_query(block.begin)));
    std::int64_t const end = first_key_at(view.mask.end_key(position_of_query(block.end() - 1)));
    return begin < end ? Block{begin, end - begin} : Block{0, 0};
  }
  /// The first of `count` ascending positions that is at least `position`; `count` if none is.
  KOKKOS_INLINE_FUNCTION static std::int64_t lower_bound(std::int32_t const* positions, std::int64_t count,
                                                         std::int64_t position) {
    std::int64_t first = 0;
    while (count > 0) {
      std::int64_t const half = count / 2;
      if (positions[first + half] < position) {
        first += half + 1;
        count -= half + 1;
      } else {
        count = half;
      }
    }
    return first;
  }
  /// The block's first query at the position or after it, counted from the block's first; its count if none is.
  KOKKOS_INLINE_FUNCTION std::int64_t first_query_at(std::int64_t position, Block block) const {
    if (view.query_position != nullptr) {
      return lower_bound(view.query_position + query_row + block.begin, block.count, position);
    }
    std::int64_t const first = position - (keys - queries) - block.begin;
    return first < 0 ? 0 : (first > block.count ? block.count : first);
  }
  /// The first key at the position or after it; the number of keys if none is.
  KOKKOS_INLINE_FUNCTION std::int64_t first_key_at(std::int64_t position) const {
    if (view.key_position != nullptr) {
      return lower_bound(view.key_position + key_row, keys, position);
    }
    return position < 0 ? 0 : (position > keys ? keys : position);
  }

  /// The words of 16 queries, starting at `first` of the block, for the eight key positions that start at 8 * group.
  KOKKOS_INLINE_FUNCTION void random_words(std::uint32_t (&words)[4][philox_lanes], Block query_block,
                                           std::int64_t first, std::int64_t group) const {
    DropoutRule const& rule = view.dropout;
    for (std::int64_t lane = 0; lane < philox_lanes; ++lane) {
      std::int64_t const query = first + lane < query_block.count ? first + lane : first;
      std::int64_t const row = query_row + query_block.begin + query;
      words[0][lane] = static_cast<std::uint32_t>(rule.sample[row]);
      words[1][lane] = static_cast<std::uint32_t>(rule.position[row]);
      words[2][lane] = static_cast<std::uint32_t>(((rule.first_column + head) << 20) + group);
      words[3][lane] = rule.step;
    }
    philox_words(rule.key, words);
  }

  /// Computes the multipliers that one half of each of 16 words decides.
  KOKKOS_INLINE_FUNCTION void keep(std::uint32_t const (&words)[philox_lanes], std::uint32_t shift, Real* to) const {
    auto const factor = static_cast<Real>(view.dropout.scale);
    for (std::int64_t lane = 0; lane < philox_lanes; ++lane) {
      to[lane] = ((words[lane] >> shift) & 0xffffU) < view.dropout.threshold ? factor : Real{0};
    }
  }
};

/// The tensors of Attention::backward that the call does not have, except gradients of parameters: SharedGradients.
template <class Element>
struct BackwardRows {
  Rows<Element> output, grad_output, grad_q, grad_k, grad_v;
  Rows<ArithmeticType<Element>> log_sum_exp;

  BackwardRows(Tensor const& of_output, Tensor const& of_log_sum_exp, Tensor const& of_grad_output,
               AttentionGradients const& gradients)
      : output(rows_of<Element>(of_output)),
        grad_output(rows_of<Element>(of_grad_output)),
        grad_q(rows_of<Element>(gradients.q)),
        grad_k(rows_of<Element>(gradients.k)),
        grad_v(rows_of<Element>(gradients.v)),
        log_sum_exp(rows_of<ArithmeticType<Element>>(of_log_sum_exp)) {}
};

/// Divides a work item's scratch into parts, in multiples of 16 elements.
template <class Real>
struct Scratch {
  Real* next;

  KOKKOS_INLINE_FUNCTION Tile<Real> tile(std::int64_t rows, std::int64_t stride) {
    Tile<Real> const result{next, stride};
    next += round_up(rows * stride, tile_columns);
    return result;
  }
};

/// Calls `body(item, scratch)` for each item, with its own scratch of `elements` elements.
template <class Real, class Body>
void for_each_with_scratch(Execution& execution, char const* name, std::int64_t items, std::int64_t elements,
                           Body const& body) {
  using Policy = Kokkos::TeamPolicy<Kokkos::DefaultExecutionSpace>;
  using ScratchBytes = decltype(decltype(Kokkos::PerTeam(0))::value);  // int or std::size_t, by the version of Kokkos
  auto const bytes = static_cast<std::size_t>(elements) * sizeof(Real);
  constexpr std::size_t alignment = 64;
  auto const policy = Policy(execution.space, static_cast<int>(items), 1)
                          .set_scratch_size(1, Kokkos::PerTeam(static_cast<ScratchBytes>(bytes + alignment)));
  if (items > 0) {
    Kokkos::parallel_for(
        loop_name(name), policy, KOKKOS_LAMBDA(typename Policy::member_type const& member) {
          void* const memory = member.team_scratch(1).get_shmem_aligned(static_cast<std::ptrdiff_t>(bytes), alignment);
          body(member.league_rank(), Scratch<Real>{static_cast<Real*>(memory)});
        });
  }
}

}  // namespace heddle::kernels
