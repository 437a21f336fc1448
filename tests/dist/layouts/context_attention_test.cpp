#include "context_attention_fixture.hpp"

namespace heddle {
namespace {

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

class ContextAttentionSplit : public ContextAttentionTest {
 protected:
  void check_against_one_rank(Communicator const& group, Tested const& tested, Attended const& attended,
                              Rows const& whole);
};

void ContextAttentionSplit::check_against_one_rank(Communicator const& group, Tested const& tested,
                                                   Attended const& attended, Rows const& whole) {
  Pack const pack = pack_of(uneven, {group.rank(), group.size()});
  ContextRows const& queries = pack.context(attended.queries);
  ContextRows const& keys = pack.context(attended.keys);
  auto const of_queries = [&](Tensor const& tensor) { return local(tensor, queries, group.rank()); };
  auto const of_keys = [&](Tensor const& tensor) { return local(tensor, keys, group.rank()); };
  auto const as_tested = [&](Tensor const& tensor) { return converted(tensor, tested.dtype); };
  Rows mine({as_tested(of_queries(whole.q)), as_tested(of_keys(whole.k)), as_tested(of_keys(whole.v)),
             as_tested(of_queries(whole.grad_output))},
            heads);
  AttentionCall const call = call_of(mine, pack, attended);
  add_parameter_gradients(mine, call);

  ContextAttention const attention = context_attention(group, tested.mode, tested.kernel, call.problem());
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

TEST_F(ContextAttentionSplit, EqualsOneRankOnTheWholePack) {
  for (float const dropout : {0.0F, 0.35F}) {
    for (Attended const& attended : {Attended{AttentionMask::bidirectional(), Side::source, Side::source, dropout},
                                     Attended{AttentionMask::causal(), Side::target, Side::target, dropout},
                                     Attended{AttentionMask::bidirectional(), Side::target, Side::source, dropout}}) {
      Rows const whole = whole_of(attended);
      Communicator const& group = world_;
      for (ContextMode const mode : {ContextMode::ring, ContextMode::ulysses}) {
        for (Tested const& tested : {Tested{"kokkos", DType::float64, mode}, Tested{"auto", DType::float32, mode},
                                     Tested{"kokkos", DType::bfloat16, mode}, Tested{"auto", DType::bfloat16, mode}}) {
          SCOPED_TRACE(
              fmt::format("{}, {}, {} in {}", name_of(mode), describe(attended), tested.kernel, name_of(tested.dtype)));
          check_against_one_rank(group, tested, attended, whole);
        }
      }
    }
  }
}

TEST_F(ContextAttentionSplit, VariantsEqualOneRankOnTheWholePack) {
  constexpr Side side = Side::target;
  constexpr auto dot_product = ScoreKind::dot_product;
  constexpr auto function = ScoreKind::function;
  for (Attended const& attended :
       {Attended{AttentionMask::window(20, 0), side, side, 0.2F},
        Attended{AttentionMask::window(9, 9, 2), side, side, 0, dot_product, 8, true},
        Attended{AttentionMask::blocks(16, 1, 0, 3), side, side, 0.2F, dot_product, 4},
        Attended{AttentionMask::prefix(), side, side, 0, ScoreKind::additive},
        Attended{AttentionMask::causal(), side, side, 0.2F, dot_product, 4, true},
        Attended{AttentionMask::bidirectional(), side, Side::source, 0, ScoreKind::additive, 4},
        Attended{AttentionMask::causal(), side, side, 0, ScoreKind::linear, 4},
        Attended{AttentionMask::bidirectional(), side, Side::source, 0, ScoreKind::linear},
        Attended{AttentionMask::causal(), side, side, 0.2F, function, 4, true, logistic_score()},
        Attended{AttentionMask::bidirectional(), side, Side::source, 0.2F, function, 8, false, logistic_score()},
        Attended{AttentionMask::window(20, 0), side, side, 0.2F, function, 8, true, logistic_score()},
        Attended{AttentionMask::causal(), side, side, 0.2F, function, 4, true, cubic_score()}}) {
    if (attended.function != nullptr && !scores_run) {
      continue;
    }
    Rows const whole = whole_of(attended);
    Communicator const& group = world_;
    for (ContextMode const mode : {ContextMode::ring, ContextMode::ulysses}) {
      for (Tested const& tested : {Tested{"kokkos", DType::float64, mode}, Tested{"auto", DType::float32, mode},
                                   Tested{"auto", DType::bfloat16, mode}}) {
        SCOPED_TRACE(
            fmt::format("{}, {}, {} in {}", name_of(mode), describe(attended), tested.kernel, name_of(tested.dtype)));
        if (mode == ContextMode::ring || attended.kv_heads % group.size() == 0) {
          check_against_one_rank(group, tested, attended, whole);
        }
      }
    }
  }
}

// Computed in float32 and rounded once: on any number of ranks the same bits as the rounded float32 result.
TEST_F(ContextAttentionTest, TheRingRoundsItsSumsOnce) {
  Communicator const& group = world_;
  Pack const pack = pack_of(uneven, {group.rank(), group.size()});
  Attended const self{AttentionMask::causal(), Side::target, Side::target, 0};
  std::int64_t const tokens = pack.target_rows.tokens;
  Inputs const given = random_inputs(DType::bfloat16, {tokens, width}, {tokens, width});
  auto const widened = [](Tensor const& tensor) { return converted(tensor, DType::float32); };
  Rows const narrow(given, heads);
  Rows const wide({widened(given.q), widened(given.k), widened(given.v), widened(given.grad_output)}, heads);
  ContextAttention const ring = context_attention(group, ContextMode::ring);
  ContextAttention::Task const task{execution_, arena_, pack.target_context, pack.target_context, true};
  auto const kept = ring.forward(task, call_of(narrow, pack, self), narrow.output);
  auto const kept_wide = ring.forward(task, call_of(wide, pack, self), wide.output);
  EXPECT_EQ(values(narrow.output), values(converted(wide.output, DType::bfloat16)));
  EXPECT_EQ(values(kept.log_sum_exp), values(kept_wide.log_sum_exp));
  // Backward reads the rounded output; with the same one its gradients, too, are those of float32 rounded once.
  ContextAttention::Activations same = kept_wide;
  same.output = widened(narrow.output);
  ring.backward(task, kept, narrow.grad_output, narrow.gradients);
  ring.backward(task, same, wide.grad_output, wide.gradients);
  auto const rounded = [](Tensor const& tensor) { return values(converted(tensor, DType::bfloat16)); };
  EXPECT_EQ(values(narrow.gradients.q), rounded(wide.gradients.q));
  EXPECT_EQ(values(narrow.gradients.k), rounded(wide.gradients.k));
  EXPECT_EQ(values(narrow.gradients.v), rounded(wide.gradients.v));
  arena_.release(0);
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
  std::int64_t sent() const { return group_.ledger()[static_cast<std::size_t>(CollectiveOp::send)].operations; }
  void note() { notes_.push_back(sent() - first_); }

  std::shared_ptr<Attention> attention_;
  Communicator group_;
  std::int64_t first_ = 0;
  std::vector<std::int64_t> notes_;
};

// A block is in flight before the first head uses the one before it, and so are the gradients of finished heads.
TEST_F(ContextAttentionTest, TheRingSendsBeforeItComputes) {
  Communicator const& group = world_;
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
  expect_error(
      [&] {
        forward(Communicator::self(), pack_of({{3, 4}}, {}), self, rows_of(5, 5));
      },
      "split over 0 ranks, but the group has 1");
  Communicator const& group = world_;
  Pack const pack = pack_of({{30, 40}}, {group.rank(), group.size()});
  std::int64_t const targets = pack.target_rows.tokens;
  std::int64_t const sources = pack.source_rows.tokens;
  expect_config_error([&] { forward(group, pack, self, rows_of(targets, targets)); }, "heads, 9 (8 of keys)");
  expect_error([&] { forward(group, pack, self, rows_of(targets, targets + 1)); }, "rows of keys");
  Attended const causal_cross{AttentionMask::causal(), Side::target, Side::source, 0};
  expect_error([&] { forward(group, pack, causal_cross, rows_of(targets, sources)); }, "self-attention");
}

}  // namespace
}  // namespace heddle
