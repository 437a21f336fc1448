#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/core/operations/attention.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <numeric>

#include "kernel_fixture.hpp"

// Attention whose queries and keys are parts of longer sequences, as on the ranks of a context group: every
// implementation must combine the parts to the reference's result for the whole.

namespace heddle {
namespace {

using Integers = std::vector<std::int32_t>;

/// Some rows of a whole side: every sequence's, in order.
struct Part {
  Integers lengths;
  Integers rows;       ///< of the whole
  Integers positions;  ///< in their sequences
};

/// Part `part` of `parts` of each sequence: two chunks, one from each end, so that positions have a gap.
Part part_of(Integers const& lengths, int part, int parts) {
  Part result;
  std::int32_t begin = 0;
  for (std::int32_t const length : lengths) {
    std::int32_t count = 0;
    for (int const chunk : {part, 2 * parts - 1 - part}) {
      for (std::int32_t i = length * chunk / (2 * parts); i < length * (chunk + 1) / (2 * parts); ++i) {
        result.rows.push_back(begin + i);
        result.positions.push_back(i);
        ++count;
      }
    }
    result.lengths.push_back(count);
    begin += length;
  }
  return result;
}

struct Activations {
  Tensor q, k, v, grad_output, output, log_sum_exp, grad_q, grad_k, grad_v;
};

struct Case {
  char const* name;
  Integers queries, keys;
  bool causal;
  float dropout;
};

class AttentionBlocksTest : public BuiltInKernelsTest, public testing::WithParamInterface<Case> {
 protected:
  static constexpr std::int64_t heads = 2;
  static constexpr std::int64_t width = heads * 56;

  /// `results`: the dtype of the output and of gradients.
  static Activations activations(DType dtype, DType results) {
    auto const count = [](Integers const& lengths) { return std::accumulate(lengths.begin(), lengths.end(), 0L); };
    Shape const queries{count(GetParam().queries), width};
    Shape const keys{count(GetParam().keys), width};
    return {.q = random_tensor(dtype, queries, 5),
            .k = random_tensor(dtype, keys, 6),
            .v = random_tensor(dtype, keys, 7),
            .grad_output = random_tensor(dtype, queries, 8),
            .output = Tensor::allocate(results, queries),
            .log_sum_exp = Tensor::allocate(statistics_dtype(dtype), {queries[0], heads}),
            .grad_q = Tensor::allocate(results, queries),
            .grad_k = Tensor::allocate(results, keys),
            .grad_v = Tensor::allocate(results, keys)};
  }

  AttentionCall call_of(Activations const& all, Integers const& queries, Integers const& keys) const {
    AttentionCall call{.q = all.q,
                       .k = all.k,
                       .v = all.v,
                       .queries = sequences_of(queries),
                       .keys = sequences_of(keys),
                       .heads = heads,
                       .scale = 0.7,
                       .mask = GetParam().causal ? AttentionMask::causal() : AttentionMask::bidirectional()};
    if (GetParam().dropout > 0) {
      call.dropout = dropout_of(GetParam().dropout, all.q.dim(0));
    }
    return call;
  }

  Tensor taken(Tensor const& from, Integers const& rows) {
    Tensor const to = Tensor::allocate(from.dtype(), {static_cast<std::int64_t>(rows.size()), from.dim(1)});
    registries_.of<TensorOps>().select("reference", {})->gather_rows(execution_, from, int_tensor(rows), to);
    return to;
  }
  static void put(Tensor const& from, Integers const& rows, Tensor const& to) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::vector<unsigned char> bytes(static_cast<std::size_t>(to.rows(0, 1).bytes()));
      copy_to_host(bytes.data(), from.rows(static_cast<std::int64_t>(i), 1));
      copy_from_host(to.rows(rows[i], 1), bytes.data());
    }
  }

  /// The call of one part of the queries with one part of the keys, the first or a later one.
  AttentionCall part_call(AttentionCall const& whole, Part const& queries, Part const& keys, bool first) {
    AttentionCall call = whole;
    call.q = taken(whole.q, queries.rows);
    call.k = taken(whole.k, keys.rows);
    call.v = taken(whole.v, keys.rows);
    call.queries = sequences_of(queries.lengths);
    call.keys = sequences_of(keys.lengths);
    call.query_position = int_tensor(queries.positions);
    call.key_position = int_tensor(keys.positions);
    call.accumulate = !first;
    if (whole.dropout.active()) {
      call.dropout.sample = int_rows(whole.dropout.sample, queries.rows);
      call.dropout.position = int_rows(whole.dropout.position, queries.rows);
    }
    return call;
  }
  static Tensor int_rows(Tensor const& from, Integers const& rows) {
    auto const all = to_host<std::int32_t>(from);
    Integers some;
    for (std::int32_t const row : rows) {
      some.push_back(all[static_cast<std::size_t>(row)]);
    }
    return int_tensor(some);
  }

  /// The results, from `parts` parts of the queries, each with `parts` parts of the keys.
  void run_in_parts(Attention& kernel, Activations const& all, int parts) {
    AttentionCall const whole = call_of(all, GetParam().queries, GetParam().keys);
    for (int i = 0; i < parts; ++i) {
      Part const queries = part_of(GetParam().queries, i, parts);
      Tensor const output = taken(all.output, queries.rows);
      Tensor const log_sum_exp = taken(all.log_sum_exp, queries.rows);
      for (int j = 0; j < parts; ++j) {
        Part const keys = part_of(GetParam().keys, (i + j) % parts, parts);
        kernel.forward(execution_, part_call(whole, queries, keys, j == 0), output, log_sum_exp);
      }
      Tensor const rounded_output = converted(output, all.q.dtype());
      Tensor const grad_output = taken(all.grad_output, queries.rows);
      Tensor const grad_q = taken(all.grad_q, queries.rows);
      for (int j = 0; j < parts; ++j) {
        Part const keys = part_of(GetParam().keys, (i + j) % parts, parts);
        AttentionGradients const gradients{grad_q, taken(all.grad_k, keys.rows), taken(all.grad_v, keys.rows)};
        AttentionCall const call = part_call(whole, queries, keys, j == 0);
        if (j == 0 && i > 0) {
          // This call must not overwrite the contributions of other queries to these keys.
          AttentionGradients const own{grad_q, converted(gradients.k, gradients.k.dtype()),
                                       converted(gradients.v, gradients.v.dtype())};
          kernel.backward(execution_, call, rounded_output, log_sum_exp, grad_output, own);
          auto const tensor_ops = registries_.of<TensorOps>().select("reference", {grad_q.dtype()});
          tensor_ops->add(execution_, gradients.k, own.k);
          tensor_ops->add(execution_, gradients.v, own.v);
        } else {
          kernel.backward(execution_, call, rounded_output, log_sum_exp, grad_output, gradients);
        }
        put(gradients.k, keys.rows, all.grad_k);
        put(gradients.v, keys.rows, all.grad_v);
      }
      put(output, queries.rows, all.output);
      put(log_sum_exp, queries.rows, all.log_sum_exp);
      put(grad_q, queries.rows, all.grad_q);
    }
  }
};

TEST_P(AttentionBlocksTest, PartsJoinToTheWhole) {
  Activations const expected = activations(DType::float64, DType::float64);
  auto const reference = registries_.of<Attention>().select("reference", {});
  AttentionCall const whole = call_of(expected, GetParam().queries, GetParam().keys);
  reference->forward(execution_, whole, expected.output, expected.log_sum_exp);
  reference->backward(execution_, whole, expected.output, expected.log_sum_exp, expected.grad_output,
                      {expected.grad_q, expected.grad_k, expected.grad_v});
  for (auto const& entry : registries_.of<Attention>().entries()) {
    for (auto const& [dtype, results] : {std::pair{DType::float32, DType::float32},
                                         {DType::float64, DType::float64},
                                         {DType::bfloat16, DType::bfloat16},
                                         {DType::bfloat16, DType::float32}}) {
      for (int const parts : {1, 2, 3}) {
        SCOPED_TRACE(entry.name + " " + std::string(name_of(dtype)) + " to " + std::string(name_of(results)) +
                     ", parts: " + std::to_string(parts));
        Activations const actual = activations(dtype, results);
        if (!entry.kernel->supports(call_of(actual, GetParam().queries, GetParam().keys).problem()) ||
            (dtype != results && !entry.kernel->wide_results())) {
          continue;
        }
        registries_.of<TensorOps>().select("reference", {})->fill(execution_, actual.log_sum_exp, -INFINITY);
        run_in_parts(*entry.kernel, actual, parts);
        expect_close(actual.output, expected.output, dtype, "output");
        expect_close(actual.log_sum_exp, expected.log_sum_exp, dtype, "log_sum_exp");
        expect_close(actual.grad_q, expected.grad_q, dtype, "grad q");
        expect_close(actual.grad_k, expected.grad_k, dtype, "grad k");
        expect_close(actual.grad_v, expected.grad_v, dtype, "grad v");
      }
    }
  }
}

// In the case "causal" a query sees the keys up to its position by either rule only if both sides are equally
// long.
INSTANTIATE_TEST_SUITE_P(Cases, AttentionBlocksTest,
                         testing::Values(Case{"full", {5, 0, 1, 150}, {7, 3, 200, 140}, false, 0},
                                         Case{"full_dropout", {5, 0, 1, 150}, {70, 3, 20, 290}, false, 0.3F},
                                         Case{"causal", {400, 0, 1, 2, 77}, {400, 0, 1, 2, 77}, true, 0},
                                         Case{"causal_dropout", {2, 150, 9}, {2, 150, 9}, true, 0.3F},
                                         Case{"no_keys", {5, 3}, {0, 4}, false, 0.3F}),
                         [](auto const& tested) { return std::string(tested.param.name); });

class AttentionVisibility : public BuiltInKernelsTest {
 protected:
  /// A call of 70 queries from position `query_begin` on, and as many keys from 0 on.
  AttentionCall call(std::int32_t query_begin) {
    Integers positions(70);
    std::iota(positions.begin(), positions.end(), query_begin);
    AttentionCall call{.q = random_tensor(DType::float32, {70, 8}, 1),
                       .k = random_tensor(DType::float32, {70, 8}, 2),
                       .v = random_tensor(DType::float32, {70, 8}, 3),
                       .queries = sequences_of({70}),
                       .keys = sequences_of({70}),
                       .heads = 1,
                       .mask = AttentionMask::causal(),
                       .query_position = int_tensor(positions)};
    std::iota(positions.begin(), positions.end(), 0);
    call.key_position = int_tensor(positions);
    return call;
  }
  Tensor output_ = random_tensor(DType::float32, {70, 8}, 4);
  Tensor log_sum_exp_ = random_tensor(DType::float32, {70, 1}, 5);
  Tensor grad_output_ = random_tensor(DType::float32, {70, 8}, 6);
};

TEST_F(AttentionVisibility, KeysThatNoQuerySeesChangeNothing) {
  for (DType const dtype : {DType::float32, DType::bfloat16}) {
    Tensor const before = converted(output_, dtype);
    AttentionCall unseen = call(-70);
    unseen.q = converted(unseen.q, dtype);
    unseen.k = converted(unseen.k, dtype);
    unseen.v = converted(unseen.v, dtype);
    unseen.accumulate = true;
    for (std::string const& name : names_for<Attention>(unseen.problem())) {
      SCOPED_TRACE(name + " " + std::string(name_of(dtype)));
      Tensor const output = converted(output_, dtype);
      Tensor const log_sum_exp = converted(log_sum_exp_, DType::float32);
      AttentionGradients const gradients{converted(output_, dtype), converted(output_, dtype),
                                         converted(output_, dtype)};
      auto const kernel = registries_.of<Attention>().select(name, unseen.problem());
      kernel->forward(execution_, unseen, output, log_sum_exp);
      kernel->backward(execution_, unseen, output, log_sum_exp, converted(grad_output_, dtype), gradients);
      expect_same_bits(output, before, "output");
      expect_same_bits(log_sum_exp, log_sum_exp_, "log_sum_exp");
      expect_same_bits(gradients.q, before, "grad q");
      expect_same_bits(gradients.k, before, "grad k");
      expect_same_bits(gradients.v, before, "grad v");
    }
  }
}

// The equal work of a context group's ranks relies on it. NaN values show whether they were read: not even the weight
// 0 would hide them.
TEST_F(AttentionVisibility, BlocksOfKeysThatNoQueryOfABlockSeesAreSkipped) {
  AttentionCall partly = call(-6);  // the first 64 queries see at most the key at 57
  registries_.of<TensorOps>().select("reference", {})->fill(execution_, partly.v.rows(64, 6), NAN);
  registries_.of<TensorOps>().select("reference", {})->fill(execution_, partly.k.rows(64, 6), NAN);
  partly.q = partly.q.rows(0, 64), partly.query_position = partly.query_position.rows(0, 64);
  partly.queries = sequences_of({64});
  auto const kernel = registries_.of<Attention>().select("kokkos", {});
  kernel->forward(execution_, partly, output_.rows(0, 64), log_sum_exp_.rows(0, 64));
  Tensor const grad_q = Tensor::allocate(DType::float32, {64, 8});
  kernel->backward(execution_, partly, output_.rows(0, 64), log_sum_exp_.rows(0, 64), grad_output_.rows(0, 64),
                   {grad_q, Tensor::allocate(DType::float32, {70, 8}), Tensor::allocate(DType::float32, {70, 8})});
  for (double const value : values(output_)) {
    ASSERT_TRUE(std::isfinite(value));
  }
  for (double const value : values(grad_q)) {
    ASSERT_TRUE(std::isfinite(value));
  }
}

/// Costs of a window are in proportion to it only where blocks of keys before it are skipped, too.
TEST_F(AttentionVisibility, BlocksOfKeysBeforeAWindowAreSkipped) {
  for (auto const& [dtype, columns] : {std::pair{DType::float32, 8}, {DType::bfloat16, 8}, {DType::bfloat16, 64}}) {
    AttentionCall last{.q = random_tensor(dtype, {8, columns}, 1),
                       .k = random_tensor(dtype, {200, columns}, 2),
                       .v = random_tensor(dtype, {200, columns}, 3),
                       .queries = sequences_of({8}),
                       .keys = sequences_of({200}),
                       .heads = 2,
                       .mask = AttentionMask::window(10, 0)};
    auto const tensor_ops = registries_.of<TensorOps>().select("reference", {dtype});
    tensor_ops->fill(execution_, last.k.rows(0, 128), NAN);
    tensor_ops->fill(execution_, last.v.rows(0, 128), NAN);
    for (std::string const& name : names_for<Attention>(last.problem())) {
      SCOPED_TRACE(name + " " + std::string(name_of(dtype)));
      auto const kernel = registries_.of<Attention>().select(name, last.problem());
      Tensor const output = Tensor::allocate(dtype, {8, columns});
      Tensor const log_sum_exp = Tensor::allocate(DType::float32, {8, 2});
      AttentionGradients const gradients{Tensor::allocate(dtype, {8, columns}), Tensor::allocate(dtype, {200, columns}),
                                         Tensor::allocate(dtype, {200, columns})};
      kernel->forward(execution_, last, output, log_sum_exp);
      kernel->backward(execution_, last, output, log_sum_exp, output, gradients);
      for (Tensor const& result : {output, gradients.q, gradients.k, gradients.v}) {
        for (double const value : values(result)) {
          ASSERT_TRUE(std::isfinite(value));
        }
      }
    }
  }
}

TEST_F(AttentionVisibility, PositionsMustBeOnePerRow) {
  AttentionCall wrong = call(0);
  wrong.key_position = Tensor();
  EXPECT_THROW(wrong.problem(), Error);
  wrong.key_position = int_tensor({1, 2, 3});
  EXPECT_THROW(wrong.problem(), Error);
}

}  // namespace
}  // namespace heddle
