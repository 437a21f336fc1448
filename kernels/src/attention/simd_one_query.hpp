#pragma once

#include "simd.hpp"

/// Attention of one query to all keys of its sequence, as a step of generation has it: nothing is transposed or widened
/// in memory, and scores are computed for 16 keys at a time.
namespace heddle::simd_attention {
namespace {

/// Computes `Element` heads of `groups` whole groups of columns.
template <class Element, int groups>
class OneQuery {
 public:
  /// `scores` has room for the sequence's keys, rounded up to whole vectors.
  OneQuery(Head<Element> const& head, float* scores) : head_(head), keys_(head.keys), scores_(scores) {}

  /// Writes the output's row and returns the logarithm of the sum of exponentials.
  float run(Rows<Element> const& output) {
    float const maximum = score();
    Floats total{};
    for (std::int64_t begin = 0; begin < keys_; begin += lanes::width) {
      Floats const weights = lanes::exp2_of_negative(lanes::load(scores_ + begin) - maximum);
      total += weights;
      lanes::store(weights, scores_ + begin);
    }
    float const sum = lanes::sum(total);
    write(output, keys_ > 0 ? 1.0F / sum : 0.0F);
    return keys_ > 0 ? ln_2 * maximum + lanes::log_of_positive(lanes::all(sum))[0] : -infinity;
  }

 private:
  using Vector = typename Unit<Element>::Vector;
  static constexpr std::int64_t vectors = groups * group_vectors<Element>;

  static Vector load(Element const* from) {
    Vector bits;
    std::memcpy(&bits, from, sizeof(bits));
    return bits;
  }

  /// Writes the keys' scores, in units of ln 2, and -infinity beyond them; returns the highest.
  float score() {
    Vector query[groups];
    for (int g = 0; g < groups; ++g) {
      query[g] = load(head_.at(head_.view.q, head_.query_row) + g * group<Element>);
    }
    Rows<Element> const rows = head_.of_keys(head_.view.k);
    Element const* key = head_.at(rows, head_.key_row);
    float const scale = head_.view.scale * log2_e;
    Floats highest = lanes::all(-infinity);
    for (std::int64_t begin = 0; begin < keys_; begin += lanes::width) {
      std::int64_t const count = keys_ - begin < lanes::width ? keys_ - begin : lanes::width;
      Floats products[lanes::width] = {};
      for (std::int64_t i = 0; i < count; ++i, key += rows.stride) {
        for (int g = 0; g < groups; ++g) {
          products[i] = Unit<Element>::multiply_add(products[i], query[g], load(key + g * group<Element>));
        }
      }
      Floats const all = scale * lanes::sums(products);
      Floats const some = lanes::indices() < static_cast<std::int32_t>(count) ? all : lanes::all(-infinity);
      lanes::store(some, scores_ + begin);
      highest = lanes::maximum(some, highest);
    }
    return lanes::largest(highest);
  }

  /// output = factor * (the weights times the values).
  void write(Rows<Element> const& output, float factor) const {
    Floats sums[vectors] = {};
    Rows<Element> const rows = head_.of_keys(head_.view.v);
    Element const* value = head_.at(rows, head_.key_row);
    for (std::int64_t j = 0; j < keys_; ++j, value += rows.stride) {
      float const weight = scores_[j];
      for (int g = 0; g < groups; ++g) {
        add(weight, load(value + g * group<Element>), sums + g * group_vectors<Element>);
      }
    }
    for (Floats& sum : sums) {
      sum *= factor;
    }
    Element* const to = head_.at(output, head_.query_row);
    for (int g = 0; g < groups; ++g) {
      store_group(sums + g * group_vectors<Element>, to + g * group<Element>, group<Element>, false);
    }
  }

  static void add(float weight, Floats values, Floats* sums) { *sums += weight * values; }
  static void add(float weight, lanes::Words values, Floats* sums) {
    lanes::Pair const pair = lanes::pair_of(values);
    sums[0] += weight * pair.even;
    sums[1] += weight * pair.odd;
  }

  Head<Element> const& head_;
  std::int64_t keys_;
  float* scores_;
};

/// The groups of columns for which there is code; 0: none for this call.
template <class Element>
int one_query_groups(AttentionCall const& call) {
  std::int64_t const head_dim = call.q.dim(1) / call.heads;
  bool const plain = call.queries.max_length == 1 && call.mask.is(MaskKind::bidirectional) &&
                     call.score == ScoreKind::dot_product && call.soft_cap == 0 && call.bias.empty() &&
                     !call.dropout.active() && !call.accumulate;
  for (int const groups : {1, 2, 4, 8}) {
    if (plain && head_dim == groups * group<Element>) {
      return groups;
    }
  }
  return 0;
}

template <class Element, int groups>
void forward_one_query(Execution& execution, AttentionCall const& call, Rows<Element> const& output,
                       Rows<float> const& log_sum_exp) {
  constexpr std::int64_t ahead = 2;  // heads: the time in which memory answers
  kernels::AttentionView<Element> const view(call);
  auto const work = [=](std::int64_t item, Scratch scratch) {
    Head<Element> const head = head_at(view, item);
    Head<Element> const next = head_at(view, item + ahead);
    prefetch(next, next.of_keys(view.k), next.key_row, next.keys);
    prefetch(next, next.of_keys(view.v), next.key_row, next.keys);
    if (head.queries > 0) {
      OneQuery<Element, groups> query(head, scratch.tile(1, round_up(head.keys, lanes::width)).data);
      log_sum_exp[head.query_row][head.head] = query.run(output);
    }
  };
  kernels::for_each_with_scratch<float>(execution, "simd attention of one query", view.count * view.heads,
                                        round_up(call.keys.max_length, lanes::width), work);
}

/// Returns false where the call is another one.
template <class Element>
bool forward_one_query(Execution& execution, AttentionCall const& call, Rows<Element> const& output,
                       Rows<float> const& log_sum_exp) {
  switch (one_query_groups<Element>(call)) {
    case 1:
      forward_one_query<Element, 1>(execution, call, output, log_sum_exp);
      return true;
    case 2:
      forward_one_query<Element, 2>(execution, call, output, log_sum_exp);
      return true;
    case 4:
      forward_one_query<Element, 4>(execution, call, output, log_sum_exp);
      return true;
    case 8:
      forward_one_query<Element, 8>(execution, call, output, log_sum_exp);
      return true;
    default:
      return false;
  }
}

}  // namespace
}  // namespace heddle::simd_attention
