
#include "context_attention_fixture.hpp"

namespace heddle {
namespace {

/// Memory and traffic of a call in float32 on one sentence pair.
struct Measured {
  std::int64_t forward_bytes, backward_bytes;
  std::size_t kept, peak;
};

class ContextAttentionCost : public ContextAttentionTest {
 protected:
  static constexpr std::int64_t few_heads = 8;
  static constexpr std::int64_t few_columns = 8;

  Measured measure(Communicator const& group, ContextMode mode, Pack const& pack, Attended const& attended) {
    ContextRows const& queries = pack.context(attended.queries);
    ContextRows const& keys = pack.context(attended.keys);
    Shape const query_shape{pack.rows(attended.queries).tokens, few_columns};
    Shape const key_shape{pack.rows(attended.keys).tokens, few_columns};
    Rows const rows(random_inputs(DType::float32, query_shape, key_shape), few_heads);
    Arena arena;
    ContextAttention const attention = context_attention(group, mode);
    ContextAttention::Task const task{execution_, arena, queries, keys, attended.queries == attended.keys};
    std::int64_t const before = bytes(group);
    auto const kept = attention.forward(task, call_of(rows, pack, attended), rows.output);
    std::int64_t const between = bytes(group);
    std::size_t const mark = arena.mark();
    attention.backward(task, kept, rows.grad_output, rows.gradients);
    return {between - before, bytes(group) - between, mark, arena.peak()};
  }

  static std::int64_t bytes(Communicator const& group) {
    return group.ledger()[static_cast<std::size_t>(CollectiveOp::send)].bytes +
           group.ledger()[static_cast<std::size_t>(CollectiveOp::all_to_all)].bytes;
  }
};

TEST_F(ContextAttentionCost, BytesAreTheFormulas) {
  Communicator const& group = world_;
  std::int64_t const ranks = group.size();
  Pack const pack = pack_of({{37, 90}, {3, 0}, {64, 5}}, {group.rank(), group.size()});
  auto const held = [&](Side side, int rank) {
    return pack.context(side).shards[static_cast<std::size_t>(rank % group.size())].tokens;
  };
  constexpr std::int64_t we = few_columns * 4;
  for (Attended const& attended : {Attended{AttentionMask::causal(), Side::target, Side::target, 0},
                                   Attended{AttentionMask::bidirectional(), Side::target, Side::source, 0}}) {
    std::int64_t const n = pack.context(attended.queries).whole.tokens;
    std::int64_t const m = pack.context(attended.keys).whole.tokens;
    std::int64_t const n_r = held(attended.queries, group.rank());
    std::int64_t const m_r = held(attended.keys, group.rank());
    std::int64_t const m_next = held(attended.keys, group.rank() + 1);
    Measured const ring = measure(group, ContextMode::ring, pack, attended);
    EXPECT_EQ(ring.forward_bytes, 2 * we * (m - m_next));
    EXPECT_EQ(ring.backward_bytes, 2 * we * (2 * m - m_next));
    Measured const ulysses = measure(group, ContextMode::ulysses, pack, attended);
    EXPECT_EQ(ulysses.forward_bytes, we * (n_r + 2 * m_r) + we * n / ranks);
    EXPECT_EQ(ulysses.backward_bytes, we * n_r + we * (n + 2 * m) / ranks);
  }
}

// With a window only the rows at the ends of the chunks travel, however long the sequences are.
TEST_F(ContextAttentionCost, AWindowAsksOnlyTheNeighbours) {
  constexpr std::int64_t window = 6;
  Communicator const& group = world_;
  Attended const attended{AttentionMask::window(window, window), Side::target, Side::target, 0};
  std::int64_t const row = 2 * few_columns * 4;  // of keys and values, or of their gradients
  for (std::size_t const tokens : {640U, 1280U}) {
    Pack const pack = pack_of({{0, tokens - 1}}, {group.rank(), group.size()});
    Measured const measured = measure(group, ContextMode::ring, pack, attended);
    std::int64_t const own = pack.target_rows.tokens;  // all_to_all counts the part that stays
    // Both chunks of a rank have two neighbours; the first chunk, and the last, one. The middle two are one rank's.
    bool const outer = group.rank() == 0;
    bool const middle = group.rank() == group.size() - 1;
    std::int64_t const ends = 4 - (outer ? 2 : 0) - (middle ? 2 : 0);
    EXPECT_EQ(measured.forward_bytes, row * (own + ends * window));
    EXPECT_EQ(measured.backward_bytes, measured.forward_bytes);
  }
}

// 32 chunks of equal length for every group: each rank holds exactly 1/c of the tokens, and needs 1/c of the memory.
TEST_F(ContextAttentionCost, MemoryOfALongSequenceFallsWithTheRanks) {
  constexpr std::int64_t tokens = 2048;
  Communicator const& group = world_;
  Pack const pack = pack_of({{0, tokens - 1}}, {group.rank(), group.size()});
  std::int64_t const local = tokens / group.size();
  Attended const causal{AttentionMask::causal(), Side::target, Side::target, 0};
  Measured const ring = measure(group, ContextMode::ring, pack, causal);
  EXPECT_EQ(ring.kept, static_cast<std::size_t>(local * few_heads * 4));
  // Two blocks of keys and values and two of their gradients.
  EXPECT_EQ(ring.peak, ring.kept + static_cast<std::size_t>(4 * local * 2 * few_columns * 4));
  Measured const ulysses = measure(group, ContextMode::ulysses, pack, causal);
  EXPECT_EQ(ulysses.kept, static_cast<std::size_t>(local * (4 * few_columns + few_heads) * 4));
  EXPECT_LE(ulysses.peak, ulysses.kept + static_cast<std::size_t>(10 * local * few_columns * 4));
}

}  // namespace
}  // namespace heddle
