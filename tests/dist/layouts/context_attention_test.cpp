#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <heddle/core/attention/context_attention.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/registry.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/kernels/register.hpp>
#include <string>
#include <utility>

#include "dist_fixture.hpp"
#include "kernel_test_support.hpp"
#include "test_ids.hpp"

namespace heddle {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using testing_support::random_tensor;
using testing_support::values;

struct Lengths {
  std::size_t source, target;  ///< without the end token
};

std::vector<SentencePair> pairs_of(std::vector<Lengths> const& lengths) {
  std::vector<SentencePair> pairs;
  for (auto const [source, target] : lengths) {
    auto const sample = static_cast<std::int32_t>(3 * pairs.size() + 2);
    pairs.push_back({sample, std::vector<std::int32_t>(source, 7), std::vector<std::int32_t>(target, 8)});
  }
  return pairs;
}

Pack pack_of(std::vector<Lengths> const& lengths, GroupMember split) {
  return make_pack(pairs_of(lengths), test_ids, split);
}

/// Lengths above and below those of a kernel's block, a group's ranks, and its chunks.
std::vector<Lengths> const uneven{{40, 3}, {0, 170}, {2, 0}, {150, 66}, {6, 1}, {0, 0}, {17, 12}};

struct Attended {
  AttentionMask mask;
  Side queries, keys;
  float dropout;
  ScoreKind score = ScoreKind::dot_product;
  std::int64_t kv_heads = 8;
  bool bias = false;
};

std::string describe(Attended const& attended) {
  return fmt::format("{}{} {}{}, {} heads of keys{}", attended.queries != attended.keys ? "cross " : "",
                     describe(attended.mask), name_of(attended.score), attended.dropout > 0 ? " with dropout" : "",
                     attended.kv_heads, attended.bias ? ", biases" : "");
}

/// A call's inputs.
struct Inputs {
  Tensor q, k, v, grad_output;
};

/// A call's tensors: the whole's, which every rank makes with the same values, or a rank's rows of them.
struct Rows : Inputs {
  Tensor output, log_sum_exp;
  AttentionGradients gradients;

  /// Gradients of keys and values are side by side, as a projection takes them: their rows are strided.
  Rows(Inputs const& inputs, std::int64_t heads)
      : Inputs(inputs),
        output(Tensor::allocate(q.dtype(), q.shape())),
        log_sum_exp(Tensor::allocate(statistics_dtype(q.dtype()), {q.dim(0), heads})) {
    std::int64_t const width = k.dim(1);
    Tensor const grad = Tensor::allocate(q.dtype(), {k.dim(0), 2 * width});
    gradients = {Tensor::allocate(q.dtype(), q.shape()), grad.columns(0, width), grad.columns(width, width)};
  }
};

Inputs random_inputs(DType dtype, Shape const& queries, Shape const& keys) {
  return {random_tensor(dtype, queries, 1), random_tensor(dtype, keys, 2), random_tensor(dtype, keys, 3),
          random_tensor(dtype, queries, 4)};
}

class ContextAttentionTest : public DistTest {
 protected:
  static constexpr std::int64_t heads = 8;
  static constexpr std::int64_t width = heads * 4;

  ContextAttentionTest() { register_built_in_kernels(registries_); }

  /// Calls `check` in groups of each size that divides the world's. One rank has nothing to split.
  template <class Check>
  void for_each_group(Check const& check) {
    for (int ranks = 2; ranks <= world_.size(); ranks *= 2) {
      SCOPED_TRACE("a context group of " + std::to_string(ranks));
      check(world_.split(world_.rank() / ranks, world_.rank()));
    }
  }

  std::shared_ptr<Attention> kernel(char const* name) { return registries_.of<Attention>().select(name, {}); }
  /// The values that are compared with the whole pack on one rank.
  struct Tested {
    char const* kernel;
    DType dtype;
    ContextMode mode;
  };
  ContextAttention context_attention(Communicator const& group, ContextMode mode, char const* name = "kokkos") {
    return {group, mode, kernel(name), tensor_ops_};
  }

  AttentionCall call_of(Rows const& rows, Pack const& pack, Attended const& attended) const {
    TokenRows const& queries = pack.rows(attended.queries);
    DType const statistics = statistics_dtype(rows.q.dtype());
    bool const prefix = attended.mask.is(MaskKind::prefix);
    return {
        .q = rows.q,
        .k = rows.k,
        .v = rows.v,
        .queries = queries.sequences,
        .keys = pack.rows(attended.keys).sequences,
        .heads = heads,
        .kv_heads = attended.kv_heads,
        .scale = 0.6,
        .score = attended.score,
        .score_weight =
            attended.score == ScoreKind::additive ? random_tensor(statistics, {heads, width / heads}, 8) : Tensor(),
        .mask = attended.mask,
        .prefix_length = prefix ? testing_support::int_tensor(std::vector<std::int32_t>(uneven.size(), 7)) : Tensor(),
        .bias = attended.bias ? random_tensor(statistics, {heads, 41}, 9) : Tensor(),
        .dropout = {.rate = attended.dropout,
                    .key = 99,
                    .step = 5,
                    .first_column = 16,
                    .sample = queries.sample,
                    .position = queries.position}};
  }

  /// Gives the gradients of the call's parameters room, set to 0.
  static void add_parameter_gradients(Rows& rows, AttentionCall const& call) {
    auto const zeros = [](Tensor const& parameter) {
      return parameter.empty() ? Tensor()
                               : testing_support::tensor_of(std::vector<double>(values(parameter).size()),
                                                            parameter.dtype(), parameter.shape());
    };
    rows.gradients.bias = zeros(call.bias);
    rows.gradients.score_weight = zeros(call.score_weight);
  }

  /// The whole pack on one rank, by the reference implementation.
  Rows whole_of(Attended const& attended) {
    Pack const pack = pack_of(uneven, {});
    Shape const queries{pack.rows(attended.queries).tokens, width};
    Shape const keys{pack.rows(attended.keys).tokens, attended.kv_heads * (width / heads)};
    Rows whole(random_inputs(DType::float64, queries, keys), heads);
    AttentionCall const call = call_of(whole, pack, attended);
    add_parameter_gradients(whole, call);
    kernel("reference")->forward(execution_, call, whole.output, whole.log_sum_exp);
    kernel("reference")
        ->backward(execution_, call, whole.output, whole.log_sum_exp, whole.grad_output, whole.gradients);
    return whole;
  }

  /// This rank's rows of a matrix of the whole.
  Tensor local(Tensor const& whole, ContextRows const& rows, int rank) {
    std::int64_t begin = 0;
    for (int i = 0; i < rank; ++i) {
      begin += rows.shards[static_cast<std::size_t>(i)].tokens;
    }
    std::int64_t const count = rows.shards[static_cast<std::size_t>(rank)].tokens;
    Tensor const part = Tensor::allocate(whole.dtype(), {count, whole.dim(1)});
    tensor_ops_->gather_rows(execution_, whole, rows.from_whole.rows(begin, count), part);
    return part;
  }

  void check_against_one_rank(Communicator const& group, Tested const& tested, Attended const& attended,
                              Rows const& whole);

  KernelRegistries registries_;
  Arena scratch_;
  Execution execution_{Kokkos::DefaultExecutionSpace(), scratch_};
  Arena arena_;
  std::shared_ptr<TensorOps> tensor_ops_ = registered_tensor_ops();

 private:
  static std::shared_ptr<TensorOps> registered_tensor_ops() {
    KernelRegistries registries;
    register_built_in_kernels(registries);
    return registries.of<TensorOps>().select("kokkos", {});
  }
};

/// Results of several ranks are added: in bfloat16 they are rounded each time.
double tolerance_of(DType dtype) {
  return dtype == DType::float64 ? 1e-12 : 3 * tolerance(dtype);
}

void expect_near(Tensor const& actual, Tensor const& expected, DType dtype, char const* what) {
  ASSERT_TRUE(actual.shape() == expected.shape()) << what << ": " << actual.shape().to_string();
  auto const found = values(actual);
  auto const wanted = values(expected);
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_TRUE(found[i] == wanted[i] ||
                std::abs(found[i] - wanted[i]) <= tolerance_of(dtype) * (1 + std::abs(wanted[i])))
        << what << ": element " << i << " is " << found[i] << " instead of " << wanted[i];
  }
}

void ContextAttentionTest::check_against_one_rank(Communicator const& group, Tested const& tested,
                                                  Attended const& attended, Rows const& whole) {
  Pack const pack = pack_of(uneven, {group.rank(), group.size()});
  ContextRows const& queries = pack.context(attended.queries);
  ContextRows const& keys = pack.context(attended.keys);
  auto const of_queries = [&](Tensor const& tensor) { return local(tensor, queries, group.rank()); };
  auto const of_keys = [&](Tensor const& tensor) { return local(tensor, keys, group.rank()); };
  auto const as_tested = [&](Tensor const& tensor) { return testing_support::converted(tensor, tested.dtype); };
  Rows mine({as_tested(of_queries(whole.q)), as_tested(of_keys(whole.k)), as_tested(of_keys(whole.v)),
             as_tested(of_queries(whole.grad_output))},
            heads);
  AttentionCall const call = call_of(mine, pack, attended);
  add_parameter_gradients(mine, call);

  ContextAttention const attention = context_attention(group, tested.mode, tested.kernel);
  ContextAttention::Task const task{execution_, arena_, queries, keys, attended.queries == attended.keys};
  auto const kept = attention.forward(task, call, mine.output);
  std::size_t const after_forward = arena_.mark();
  attention.backward(task, kept, mine.grad_output, mine.gradients);
  EXPECT_EQ(arena_.mark(), after_forward);

  expect_near(mine.output, of_queries(whole.output), tested.dtype, "output");
  bool const ring = tested.mode == ContextMode::ring;
  std::int64_t const heads_here = heads / group.size();
  expect_near(kept.log_sum_exp,
              ring ? of_queries(whole.log_sum_exp) : whole.log_sum_exp.columns(group.rank() * heads_here, heads_here),
              tested.dtype, "log_sum_exp");
  expect_near(mine.gradients.q, of_queries(whole.gradients.q), tested.dtype, "grad q");
  expect_near(mine.gradients.k, of_keys(whole.gradients.k), tested.dtype, "grad k");
  expect_near(mine.gradients.v, of_keys(whole.gradients.v), tested.dtype, "grad v");
  for (auto const& [own, expected] : {std::pair{mine.gradients.bias, whole.gradients.bias},
                                      std::pair{mine.gradients.score_weight, whole.gradients.score_weight}}) {
    if (!own.empty()) {
      group.all_reduce(own);
      expect_near(own, expected, tested.dtype, "gradient of a parameter");
    }
  }
  arena_.release(0);
}

TEST_F(ContextAttentionTest, EqualsOneRankOnTheWholePack) {
  for (float const dropout : {0.0F, 0.35F}) {
    for (Attended const& attended : {Attended{AttentionMask::bidirectional(), Side::source, Side::source, dropout},
                                     Attended{AttentionMask::causal(), Side::target, Side::target, dropout},
                                     Attended{AttentionMask::bidirectional(), Side::target, Side::source, dropout}}) {
      Rows const whole = whole_of(attended);
      for_each_group([&](Communicator const& group) {
        for (ContextMode const mode : {ContextMode::ring, ContextMode::ulysses}) {
          for (Tested const& tested :
               {Tested{"kokkos", DType::float64, mode}, Tested{"auto", DType::float32, mode},
                Tested{"kokkos", DType::bfloat16, mode}, Tested{"auto", DType::bfloat16, mode}}) {
            SCOPED_TRACE(fmt::format("{}, {}, {} in {}", name_of(mode), describe(attended), tested.kernel,
                                     name_of(tested.dtype)));
            check_against_one_rank(group, tested, attended, whole);
          }
        }
      });
    }
  }
}

TEST_F(ContextAttentionTest, VariantsEqualOneRankOnTheWholePack) {
  constexpr Side side = Side::target;
  constexpr auto dot_product = ScoreKind::dot_product;
  for (Attended const& attended :
       {Attended{AttentionMask::window(20, 0), side, side, 0.2F},
        Attended{AttentionMask::window(9, 9, 2), side, side, 0, dot_product, 8, true},
        Attended{AttentionMask::blocks(16, 1, 0, 3), side, side, 0.2F, dot_product, 4},
        Attended{AttentionMask::prefix(), side, side, 0, ScoreKind::additive},
        Attended{AttentionMask::causal(), side, side, 0.2F, dot_product, 4, true},
        Attended{AttentionMask::bidirectional(), side, Side::source, 0, ScoreKind::additive, 4},
        Attended{AttentionMask::causal(), side, side, 0, ScoreKind::linear, 4},
        Attended{AttentionMask::bidirectional(), side, Side::source, 0, ScoreKind::linear}}) {
    Rows const whole = whole_of(attended);
    for_each_group([&](Communicator const& group) {
      for (ContextMode const mode : {ContextMode::ring, ContextMode::ulysses}) {
        for (Tested const& tested : {Tested{"kokkos", DType::float64, mode}, Tested{"auto", DType::float32, mode}}) {
          SCOPED_TRACE(
              fmt::format("{}, {}, {} in {}", name_of(mode), describe(attended), tested.kernel, name_of(tested.dtype)));
          if (mode == ContextMode::ring || attended.kv_heads % group.size() == 0) {
            check_against_one_rank(group, tested, attended, whole);
          }
        }
      }
    });
  }
}

// Computed in float32 and rounded once: on any number of ranks the same bits as the rounded float32 result.
TEST_F(ContextAttentionTest, TheRingRoundsItsSumsOnce) {
  for_each_group([&](Communicator const& group) {
    Pack const pack = pack_of(uneven, {group.rank(), group.size()});
    Attended const self{AttentionMask::causal(), Side::target, Side::target, 0};
    std::int64_t const tokens = pack.target_rows.tokens;
    Inputs const given = random_inputs(DType::bfloat16, {tokens, width}, {tokens, width});
    auto const widened = [](Tensor const& tensor) { return testing_support::converted(tensor, DType::float32); };
    Rows const narrow(given, heads);
    Rows const wide({widened(given.q), widened(given.k), widened(given.v), widened(given.grad_output)}, heads);
    ContextAttention const ring = context_attention(group, ContextMode::ring);
    ContextAttention::Task const task{execution_, arena_, pack.target_context, pack.target_context, true};
    auto const kept = ring.forward(task, call_of(narrow, pack, self), narrow.output);
    auto const kept_wide = ring.forward(task, call_of(wide, pack, self), wide.output);
    EXPECT_EQ(values(narrow.output), values(testing_support::converted(wide.output, DType::bfloat16)));
    EXPECT_EQ(values(kept.log_sum_exp), values(kept_wide.log_sum_exp));
    // Backward reads the rounded output; with the same one its gradients, too, are those of float32 rounded once.
    ContextAttention::Activations same = kept_wide;
    same.output = widened(narrow.output);
    ring.backward(task, kept, narrow.grad_output, narrow.gradients);
    ring.backward(task, same, wide.grad_output, wide.gradients);
    auto const rounded = [](Tensor const& tensor) {
      return values(testing_support::converted(tensor, DType::bfloat16));
    };
    EXPECT_EQ(values(narrow.gradients.q), rounded(wide.gradients.q));
    EXPECT_EQ(values(narrow.gradients.k), rounded(wide.gradients.k));
    EXPECT_EQ(values(narrow.gradients.v), rounded(wide.gradients.v));
    arena_.release(0);
  });
}

/// An implementation that records how many messages its group had begun to send at each call.
class WatchedAttention : public Attention {
 public:
  WatchedAttention(std::shared_ptr<Attention> attention, Communicator group)
      : attention_(std::move(attention)), group_(std::move(group)) {}

  bool supports(AttentionProblem const& problem) const override { return attention_->supports(problem); }
  void forward(Execution& execution, AttentionCall const& call, Tensor const& output,
               Tensor const& log_sum_exp) override {
    note();
    attention_->forward(execution, call, output, log_sum_exp);
  }
  void backward(Execution& execution, AttentionCall const& call, Tensor const& output, Tensor const& log_sum_exp,
                Tensor const& grad_output, AttentionGradients const& gradients) override {
    note();
    attention_->backward(execution, call, output, log_sum_exp, grad_output, gradients);
  }
  /// The number since the last call of this function.
  std::vector<std::int64_t> take_notes() {
    first_ = sent();
    return std::exchange(notes_, {});
  }

 private:
  std::int64_t sent() const { return group_.ledger()[static_cast<std::size_t>(Verb::send)].operations; }
  void note() { notes_.push_back(sent() - first_); }

  std::shared_ptr<Attention> attention_;
  Communicator group_;
  std::int64_t first_ = 0;
  std::vector<std::int64_t> notes_;
};

// A block is in flight before the first head uses the one before it, and so are the gradients of finished heads.
TEST_F(ContextAttentionTest, TheRingSendsBeforeItComputes) {
  for_each_group([&](Communicator const& group) {
    Pack const pack = pack_of(uneven, {group.rank(), group.size()});
    Attended const self{AttentionMask::causal(), Side::target, Side::target, 0};
    std::int64_t const tokens = pack.target_rows.tokens;
    Rows const rows(random_inputs(DType::float32, {tokens, width}, {tokens, width}), heads);
    auto const watched = std::make_shared<WatchedAttention>(kernel("kokkos"), group);
    ContextAttention const ring(group, ContextMode::ring, watched, tensor_ops_);
    ContextAttention::Task const task{execution_, arena_, pack.target_context, pack.target_context, true};
    std::vector<std::int64_t> forward;
    std::vector<std::int64_t> backward;
    for (std::int64_t step = 0; step < group.size(); ++step) {
      std::int64_t const blocks = std::min<std::int64_t>(step + 1, group.size() - 1);
      for (std::int64_t head = 0; head < heads; ++head) {
        forward.push_back(blocks);
        backward.push_back(blocks + step * heads + head);
      }
    }
    auto const kept = ring.forward(task, call_of(rows, pack, self), rows.output);
    EXPECT_EQ(watched->take_notes(), forward);
    ring.backward(task, kept, rows.grad_output, rows.gradients);
    EXPECT_EQ(watched->take_notes(), backward);
    arena_.release(0);
  });
}

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
    return group.ledger()[static_cast<std::size_t>(Verb::send)].bytes +
           group.ledger()[static_cast<std::size_t>(Verb::all_to_all)].bytes;
  }
};

TEST_F(ContextAttentionCost, BytesAreTheFormulas) {
  for_each_group([&](Communicator const& group) {
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
  });
}

// With a window only the rows at the ends of the chunks travel, however long the sequences are.
TEST_F(ContextAttentionCost, AWindowAsksOnlyTheNeighbours) {
  constexpr std::int64_t window = 6;
  for_each_group([&](Communicator const& group) {
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
  });
}

// 32 chunks of equal length for every group: each rank holds exactly 1/c of the tokens, and needs 1/c of the memory.
TEST_F(ContextAttentionCost, MemoryOfALongSequenceFallsWithTheRanks) {
  constexpr std::int64_t tokens = 2048;
  for_each_group([&](Communicator const& group) {
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
  });
}

TEST_F(ContextAttentionTest, RefusesLayoutsThatCannotWork) {
  auto const rows_of = [](std::int64_t queries, std::int64_t keys) {
    return Rows(random_inputs(DType::float32, {queries, 36}, {keys, 36}), heads + 1);
  };
  auto const forward = [&](Communicator const& group, Pack const& pack, Attended const& attended, Rows const& rows) {
    AttentionCall call = call_of(rows, pack, attended);
    call.heads = heads + 1;
    ContextAttention::Task const task{execution_, arena_, pack.context(attended.queries), pack.context(attended.keys),
                                      attended.queries == attended.keys};
    context_attention(group, ContextMode::ulysses).forward(task, call, rows.output);
  };
  Attended const self{AttentionMask::bidirectional(), Side::target, Side::target, 0};
  EXPECT_THAT(
      [&] {
        forward(Communicator::self(), pack_of({{3, 4}}, {}), self, rows_of(5, 5));
      },
      ThrowsMessage<Error>(HasSubstr("split over 0 ranks, but the group has 1")));
  for_each_group([&](Communicator const& group) {
    Pack const pack = pack_of({{30, 40}}, {group.rank(), group.size()});
    std::int64_t const targets = pack.target_rows.tokens;
    std::int64_t const sources = pack.source_rows.tokens;
    EXPECT_THAT([&] { forward(group, pack, self, rows_of(targets, targets)); },
                ThrowsMessage<ConfigError>(HasSubstr("heads, 9 (8 of keys)")));
    EXPECT_THAT([&] { forward(group, pack, self, rows_of(targets, targets + 1)); },
                ThrowsMessage<Error>(HasSubstr("rows of keys")));
    Attended const causal_cross{AttentionMask::causal(), Side::target, Side::source, 0};
    EXPECT_THAT([&] { forward(group, pack, causal_cross, rows_of(targets, sources)); },
                ThrowsMessage<Error>(HasSubstr("self-attention")));
  });
}

}  // namespace
}  // namespace heddle
