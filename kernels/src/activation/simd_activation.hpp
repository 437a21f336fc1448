#pragma once

#include <heddle/core/base/index_range.hpp>

#include "simd_functions.hpp"
#include "support/factories.hpp"
#include "support/shares.hpp"
#include "vector/lanes_random.hpp"

/// Activations on the host's vector units, two vectors of float32 at a time. The kernels are in an unnamed namespace,
/// so that each element type's file has its own copy, which the compiler may inline.
namespace heddle::simd_activation {
namespace {

using kernels::ActivationRows;
using kernels::DropoutRule;
using lanes::Pair;
using lanes::pair_width;
using lanes::Words;

/// A thread's share is at least this many elements: a few times as long as it takes to start and to wait for the
/// threads.
inline constexpr std::int64_t min_share = 1 << 13;

/// The random bits of 32 elements, 16 each, in the vectors in which `load_block` puts the elements.
struct Bits {
  Words even, odd;
};
inline Bits bits_of(std::uint32_t const* words, BFloat16 const*) {
  Words const both = lanes::load_words(words);
  return {both & 0xffffU, both >> 16};
}
inline Bits bits_of(std::uint32_t const* words, float const*) {
  using Halves = std::uint16_t __attribute__((vector_size(32)));
  Halves halves[2];
  std::memcpy(halves, words, sizeof(halves));
  return {__builtin_convertvector(halves[0], Words), __builtin_convertvector(halves[1], Words)};
}

/// Elements whose random bits are drawn together.
inline constexpr int batches = 4;
inline constexpr std::int64_t chunk = batches * lanes::batch_elements;

/// The factors of dropout, for a chunk of a row at a time.
class Mask {
 public:
  explicit Mask(DropoutRule const& rule)
      : rule_(rule), threshold_(Words{} + rule.threshold), scale_(lanes::all(static_cast<float>(rule.scale))) {}

  /// Draws for the `count` elements of `row`, at most a chunk, that start at `column`.
  void draw(std::int64_t row, std::int64_t column, std::int64_t count) {
    Philox::Counter const counter{static_cast<std::uint32_t>(rule_.sample[row]),
                                  static_cast<std::uint32_t>(rule_.position[row]),
                                  static_cast<std::uint32_t>((rule_.first_column + column) / 8), rule_.step};
    count <= chunk / 2 ? lanes::random_words<batches / 2>(rule_.key, counter, words_)
                       : lanes::random_words<batches>(rule_.key, counter, words_);
  }
  /// The factors of 32 elements, `place` elements after the start of the chunk.
  template <class Element>
  Pair factors(std::int64_t place, Element const* kind) const {
    Bits const bits = bits_of(words_ + place / 2, kind);
    return {bits.even < threshold_ ? scale_ : Floats{}, bits.odd < threshold_ ? scale_ : Floats{}};
  }

 private:
  DropoutRule rule_;
  Words threshold_;
  Floats scale_;
  std::uint32_t words_[chunk / 2];
};

inline Pair product(Pair a, Pair b) {
  return {a.even * b.even, a.odd * b.odd};
}
template <class Function>
Pair value(Pair x) {
  return {Function::value(x.even), Function::value(x.odd)};
}
template <class Function>
Pair derivative(Pair x) {
  return {Function::derivative(x.even), Function::derivative(x.odd)};
}

/// A row of each tensor that a pass reads or writes; null where the call has none.
template <class Element>
struct Row {
  Element const* input;
  Element const* gate;
  Element const* output;  ///< read by a backward pass
  Element const* grad_output;
  Element* result;  ///< the output, or the input's gradient
  Element* grad_gate;

  Row(ActivationRows<Element> const& of, std::int64_t row)
      : input(of.input[row]),
        gate(of.gate ? of.gate[row] : nullptr),
        output(of.output ? of.output[row] : nullptr),
        grad_output(of.grad_output ? of.grad_output[row] : nullptr),
        result(of.grad_input ? of.grad_input[row] : of.output[row]),
        grad_gate(of.grad_gate ? of.grad_gate[row] : nullptr) {}
};

template <class Function, bool gated>
struct Forward {
  static constexpr bool draws = true;

  /// 32 elements from `column` on.
  template <class Element>
  static void compute(Row<Element> const& row, std::int64_t column, Pair kept, float) {
    Pair y = product(value<Function>(lanes::load_block(row.input + column)), kept);
    if constexpr (gated) {
      y = product(y, lanes::load_block(row.gate + column));
    }
    lanes::store_block(y, row.result + column);
  }
};

template <class Function, bool gated>
struct Backward {
  static constexpr bool draws = true;

  template <class Element>
  static void compute(Row<Element> const& row, std::int64_t column, Pair kept, float) {
    Pair const x = lanes::load_block(row.input + column);
    Pair grad = product(lanes::load_block(row.grad_output + column), kept);
    if constexpr (gated) {
      Pair const gate = lanes::load_block(row.gate + column);
      lanes::store_block(product(grad, value<Function>(x)), row.grad_gate + column);
      grad = product(grad, gate);
    }
    lanes::store_block(product(grad, derivative<Function>(x)), row.result + column);
  }
};

/// relu's gradient if forward's output is available: an element that is zero there was below zero or dropped.
struct BackwardOfRelu {
  static constexpr bool draws = false;

  template <class Element>
  static void compute(Row<Element> const& row, std::int64_t column, Pair, float scale) {
    Pair const y = lanes::load_block(row.output + column);
    Floats const factor = lanes::all(scale);
    Pair const kept{y.even > 0.0F ? factor : Floats{}, y.odd > 0.0F ? factor : Floats{}};
    lanes::store_block(product(lanes::load_block(row.grad_output + column), kept), row.result + column);
  }
};

/// The last elements of a row, fewer than 32, in memory of their own that is as long as a pair.
template <class Element>
class Rest {
 public:
  Rest(Row<Element> const& row, std::int64_t column, std::int64_t count) : row_(row), column_(column), count_(count) {}

  template <class Pass>
  void compute(Pair kept, float scale) {
    Row<Element> part = row_;
    part.input = copied(row_.input, 0);
    part.gate = copied(row_.gate, 1);
    part.output = copied(row_.output, 2);
    part.grad_output = copied(row_.grad_output, 3);
    part.result = parts_[4];
    part.grad_gate = parts_[5];
    Pass::compute(part, 0, kept, scale);
    std::copy_n(parts_[4], count_, row_.result + column_);
    if (row_.grad_gate != nullptr) {
      std::copy_n(parts_[5], count_, row_.grad_gate + column_);
    }
  }

 private:
  Element const* copied(Element const* from, int part) {
    if (from != nullptr) {
      std::copy_n(from + column_, count_, parts_[part]);
    }
    return parts_[part];
  }

  Row<Element> const& row_;
  std::int64_t column_, count_;
  Element parts_[6][pair_width] = {};
};

/// Computes rows [begin, end). Not inlined, so that the same instructions, and roundings, compute any share of a call.
template <class Pass, class Element>
[[gnu::noinline]] void run_rows(ActivationRows<Element> const& of, std::int64_t begin, std::int64_t end) {
  bool const drawn = Pass::draws && of.dropout.active;
  auto const scale = static_cast<float>(of.dropout.scale);
  Pair const ones{lanes::all(1), lanes::all(1)};
  Element const* const kind = nullptr;
  Mask mask(of.dropout);
  for (std::int64_t r = begin; r < end; ++r) {
    Row<Element> const row(of, r);
    for (std::int64_t start = 0; start < of.columns; start += chunk) {
      std::int64_t const stop = std::min(of.columns, start + chunk);
      if (drawn) {
        mask.draw(r, start, stop - start);
      }
      std::int64_t column = start;
      for (; column + pair_width <= stop; column += pair_width) {
        Pass::compute(row, column, drawn ? mask.factors(column - start, kind) : ones, scale);
      }
      if (column < stop) {
        Pair const kept = drawn ? mask.factors(column - start, kind) : ones;
        Rest<Element>(row, column, stop - column).template compute<Pass>(kept, scale);
      }
    }
  }
}

template <class Pass, class Element>
void run(Execution& execution, ActivationRows<Element> const& of) {
  execution.space.fence();  // earlier kernels must have finished
  std::int64_t const parts = kernels::shares(of.rows * of.columns, min_share, execution.space.concurrency());
  if (parts == 1) {
    run_rows<Pass>(of, 0, of.rows);
    return;
  }
  kernels::for_each(execution, "heddle::activation", parts, [&](std::int64_t part) {
    IndexRange const own = share(of.rows, part, parts);
    run_rows<Pass>(of, own.begin, own.end);
  });
  execution.space.fence();
}

/// Whole groups of random counters in each row: always true except for a plug-in's own split of the columns.
inline bool whole_groups(Dropout const& dropout) {
  return !dropout.active() || dropout.first_column % 8 == 0;
}

template <class Element>
class SimdActivation final : public Activation {
 public:
  explicit SimdActivation(std::shared_ptr<Activation> portable) : portable_(std::move(portable)) {}

  bool supports(ActivationProblem const& problem) const override {
    return problem.dtype == DTypeOf<Element>::value && is_built_in_activation(problem.function);
  }
  void forward(Execution& execution, ActivationCall const& call, Tensor const& output) override {
    if (!whole_groups(call.dropout)) {
      return portable_->forward(execution, call, output);
    }
    output.require(call.input.dtype(), call.input.shape(), "an activation's output");
    ActivationRows<Element> const rows(call, output);
    kernels::BuiltInFunctions::with(call.function, [&](auto function) {
      using Function = decltype(vector_form(function));
      rows.gate ? run<Forward<Function, true>>(execution, rows) : run<Forward<Function, false>>(execution, rows);
    });
  }
  void backward(Execution& execution, ActivationCall const& call, Tensor const& grad_output,
                ActivationGradients const& gradients) override {
    if (!whole_groups(call.dropout)) {
      return portable_->backward(execution, call, grad_output, gradients);
    }
    require_gradients(call, grad_output, gradients);
    ActivationRows<Element> const rows(call, grad_output, gradients);
    kernels::BuiltInFunctions::with(call.function, [&](auto function) {
      using Function = decltype(vector_form(function));
      if (rows.gate) {
        run<Backward<Function, true>>(execution, rows);
      } else if (std::is_same_v<Function, Relu> && rows.output) {
        run<BackwardOfRelu>(execution, rows);
      } else {
        run<Backward<Function, false>>(execution, rows);
      }
    });
  }

 private:
  std::shared_ptr<Activation> portable_;
};

template <class Element>
void add_simd_activation(KernelRegistries& registries) {
  auto& registry = registries.of<Activation>();
  auto const portable = registry.select("kokkos", {.dtype = DTypeOf<Element>::value, .function = "relu"});
  registry.add_part("simd", priorities::simd, std::make_shared<SimdActivation<Element>>(portable));
}

}  // namespace
}  // namespace heddle::simd_activation
