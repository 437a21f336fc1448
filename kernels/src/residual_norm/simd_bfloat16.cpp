#include <heddle/core/base/index_range.hpp>

#include "support/factories.hpp"
#include "support/shares.hpp"
#include "vector/lanes_random.hpp"
#include "view.hpp"

// Residual norms in bfloat16 on the host's vector units: in pairs of vectors, and a group of rows in the first-level
// cache as float32 from the sum to the normalized output.

namespace heddle {
namespace {

using lanes::Floats;
using lanes::Pair;
using lanes::pair_width;
using lanes::Words;

/// The number of rows that take each step together: this hides the latency of each row's sums.
constexpr std::int64_t rows_at_once = 4;
/// The length of the longest rows: a group must fit the first-level cache as float32.
constexpr std::int64_t longest = 2048;
/// A thread's share is at least this many elements: a few times as long as it takes to start and to wait for the
/// threads.
constexpr std::int64_t min_share = 1 << 13;
/// The number of rows whose weight gradients are summed together if there are several threads, however many.
constexpr std::int64_t rows_per_block = 64;

template <class Element>
Element* data_of(Tensor const& tensor) {
  return kernels::rows_of<Element>(tensor).data;
}

/// Selects the row's elements that are kept: the halves of word i of `words` decide elements 2 i and 2 i + 1.
struct Mask {
  Words threshold;
  Floats scale;
  std::uint32_t words[longest / 2];

  explicit Mask(kernels::DropoutRule const& rule)
      : threshold(Words{} + rule.threshold), scale(lanes::all(static_cast<float>(rule.scale))) {}

  void draw(kernels::DropoutRule const& rule, std::int64_t row, std::int64_t columns) {
    constexpr int batches = 4;
    constexpr std::int64_t step = batches * lanes::batch_elements;
    Philox::Counter counter{static_cast<std::uint32_t>(rule.sample[row]),
                            static_cast<std::uint32_t>(rule.position[row]),
                            static_cast<std::uint32_t>(rule.first_column / 8), rule.step};
    std::int64_t begin = 0;
    for (; begin + step <= columns; begin += step) {
      lanes::random_words<batches>(rule.key, counter, words + begin / 2);
      counter[2] += step / 8;
    }
    for (; begin < columns; begin += 2 * lanes::batch_elements) {
      lanes::random_words<2>(rule.key, counter, words + begin / 2);
      counter[2] += 2 * lanes::batch_elements / 8;
    }
  }

  Pair multipliers(std::int64_t begin) const {
    Words const both = lanes::load_words(words + begin / 2);
    return {(both & 0xffffU) < threshold ? scale : Floats{}, (both >> 16) < threshold ? scale : Floats{}};
  }
};

/// The weights of a norm in pairs, the form in which they are read most often; 0 where there are none.
struct PairedVector {
  Pair pairs[longest / pair_width];

  PairedVector(Tensor const& vector, std::int64_t columns) {
    for (std::int64_t c = 0; c < columns; c += pair_width) {
      pairs[c / pair_width] = vector.empty() ? Pair{} : lanes::load_pair(vector.data<float>() + c);
    }
  }
  Pair operator[](std::int64_t c) const { return pairs[c / pair_width]; }
};

class Forward {
 public:
  Forward(ResidualNormCall const& call, ResidualNormOutput const& output)
      : of_(call, output), weight_(call.weight, of_.columns), bias_(call.bias, of_.columns), mask_(of_.dropout) {}

  /// Computes rows [begin, end).
  void run(std::int64_t begin, std::int64_t end) {
    for (std::int64_t first = begin; first < end; first += rows_at_once) {
      std::int64_t const count = end - first < rows_at_once ? end - first : rows_at_once;
      for (std::int64_t i = 0; i < count; ++i) {
        add(first + i, x_[i]);
      }
      if (!of_.normalized) {
        continue;
      }
      for (std::int64_t i = 0; i < count; ++i) {
        of_.mean[first + i] = of_.rule.centred ? mean(x_[i]) : 0.0F;
      }
      for (std::int64_t i = 0; i < count; ++i) {
        of_.reciprocal[first + i] = reciprocal_deviation(x_[i], of_.mean[first + i]);
      }
      for (std::int64_t i = 0; i < count; ++i) {
        normalize(first + i, x_[i]);
      }
    }
  }

 private:
  /// x = the sum in the form in which it is stored.
  void add(std::int64_t row, Pair* x) {
    bool const dropped = of_.branch && of_.dropout.active;
    if (dropped) {
      mask_.draw(of_.dropout, row, of_.columns);
    }
    for (std::int64_t c = 0; c < of_.columns; c += pair_width) {
      Words words = lanes::load_words(of_.residual[row] + c);
      if (of_.branch) {
        Pair const residual = lanes::pair_of(words);
        Pair branch = lanes::load_pair(of_.branch[row] + c);
        if (dropped) {
          Pair const kept = mask_.multipliers(c);
          branch = {branch.even * kept.even, branch.odd * kept.odd};
        }
        words = lanes::rounded({residual.even + branch.even, residual.odd + branch.odd});
      }
      if (of_.sum) {
        lanes::store_words(words, of_.sum[row] + c);
      }
      x[c / pair_width] = lanes::pair_of(words);
    }
  }

  float mean(Pair const* x) const {
    Floats total = {};
    for (std::int64_t p = 0; p < of_.columns / pair_width; ++p) {
      total += x[p].even + x[p].odd;
    }
    return lanes::sum(total) / static_cast<float>(of_.columns);
  }

  float reciprocal_deviation(Pair const* x, float average) const {
    Floats even = {};
    Floats odd = {};
    for (std::int64_t p = 0; p < of_.columns / pair_width; ++p) {
      even += (x[p].even - average) * (x[p].even - average);
      odd += (x[p].odd - average) * (x[p].odd - average);
    }
    return of_.rule.reciprocal(lanes::sum(even + odd));
  }

  void normalize(std::int64_t row, Pair const* x) const {
    float const average = of_.mean[row];
    float const reciprocal = of_.reciprocal[row];
    for (std::int64_t c = 0; c < of_.columns; c += pair_width) {
      Pair const value = x[c / pair_width];
      lanes::store_pair({(value.even - average) * reciprocal * weight_[c].even + bias_[c].even,
                         (value.odd - average) * reciprocal * weight_[c].odd + bias_[c].odd},
                        of_.normalized[row] + c);
    }
  }

  kernels::NormView<BFloat16> of_;
  PairedVector weight_, bias_;
  Mask mask_;
  Pair x_[rows_at_once][longest / pair_width];
};

class Backward {
 public:
  Backward(ResidualNormCall const& call, ResidualNormOutput const& output, Tensor const& grad_normalized,
           Tensor const& grad_sum, ResidualNormGradients const& gradients)
      : of_(call, output),
        rows_(grad_normalized, grad_sum, gradients),
        weight_(call.weight, of_.columns),
        mask_(of_.dropout) {}

  /// Computes the gradients of rows [begin, end), and sums their contributions to the gradients of weight and bias.
  void run(std::int64_t begin, std::int64_t end) {
    for (std::int64_t first = begin; first < end; first += rows_at_once) {
      std::int64_t const count = end - first < rows_at_once ? end - first : rows_at_once;
      if (rows_.grad_normalized) {
        reduce(first, count);
      }
      for (std::int64_t i = 0; i < count; ++i) {
        write(first + i, means_[i]);
      }
    }
  }

  /// Adds the sums of the rows so far to `weight` and, unless it is null, `bias`.
  void add_sums(float* weight, float* bias) const {
    for (std::int64_t c = 0; c < of_.columns; c += pair_width) {
      lanes::add_pair(weight_sums_[c / pair_width], weight + c);
      if (bias != nullptr) {
        lanes::add_pair(bias_sums_[c / pair_width], bias + c);
      }
    }
  }

  /// Continues with sums of 0.
  void clear_sums() {
    std::fill_n(weight_sums_, of_.columns / pair_width, Pair{});
    std::fill_n(bias_sums_, of_.columns / pair_width, Pair{});
  }

 private:
  /// mean(g), 0 where no mean was subtracted, and mean(g * standardised x) of a row, with g = grad_normalized * weight.
  struct Means {
    float grad = 0;
    float grad_standard = 0;
  };

  /// The means of `count` rows, and their contributions to the gradients of weight and bias. Rows missing from the
  /// last group have gradients of 0, so that all rows are summed by the same instructions.
  void reduce(std::int64_t first, std::int64_t count) {
    BFloat16 const* x[rows_at_once];
    BFloat16 const* grad[rows_at_once];
    float average[rows_at_once];
    float reciprocal[rows_at_once];
    Floats sums[rows_at_once] = {};
    Floats sums_standard[rows_at_once] = {};
    for (std::int64_t i = 0; i < rows_at_once; ++i) {
      std::int64_t const row = i < count ? first + i : first;
      x[i] = of_.sum[row];
      grad[i] = i < count ? rows_.grad_normalized[row] : zeros_;
      average[i] = of_.mean[row];
      reciprocal[i] = of_.reciprocal[row];
    }
    for (std::int64_t c = 0; c < of_.columns; c += pair_width) {
      Pair const weight = weight_[c];
      Pair of_weight = weight_sums_[c / pair_width];
      Pair of_bias = bias_sums_[c / pair_width];
      for (std::int64_t i = 0; i < rows_at_once; ++i) {
        Pair const g = lanes::load_pair(grad[i] + c);
        Pair const value = lanes::load_pair(x[i] + c);
        Floats const even = g.even * ((value.even - average[i]) * reciprocal[i]);
        Floats const odd = g.odd * ((value.odd - average[i]) * reciprocal[i]);
        of_weight = {of_weight.even + even, of_weight.odd + odd};
        of_bias = {of_bias.even + g.even, of_bias.odd + g.odd};
        sums[i] += g.even * weight.even + g.odd * weight.odd;
        sums_standard[i] += even * weight.even + odd * weight.odd;
      }
      weight_sums_[c / pair_width] = of_weight;
      bias_sums_[c / pair_width] = of_bias;
    }
    for (std::int64_t i = 0; i < rows_at_once; ++i) {
      means_[i] = {of_.rule.centred ? lanes::sum(sums[i]) / static_cast<float>(of_.columns) : 0.0F,
                   lanes::sum(sums_standard[i]) / static_cast<float>(of_.columns)};
    }
  }

  void write(std::int64_t row, Means means) {
    float const average = rows_.grad_normalized ? of_.mean[row] : 0.0F;
    float const reciprocal = rows_.grad_normalized ? of_.reciprocal[row] : 0.0F;
    float const slope = reciprocal * means.grad_standard;
    bool const dropped = rows_.grad_branch && of_.dropout.active;
    if (dropped) {
      mask_.draw(of_.dropout, row, of_.columns);
    }
    for (std::int64_t c = 0; c < of_.columns; c += pair_width) {
      Pair value = {};
      if (rows_.grad_normalized) {
        Pair const g = lanes::load_pair(rows_.grad_normalized[row] + c);
        Pair const x = lanes::load_pair(of_.sum[row] + c);
        Pair const weight = weight_[c];
        value = {reciprocal * (g.even * weight.even - means.grad - (x.even - average) * slope),
                 reciprocal * (g.odd * weight.odd - means.grad - (x.odd - average) * slope)};
      }
      if (rows_.grad_sum) {
        Pair const stream = lanes::load_pair(rows_.grad_sum[row] + c);
        value = {value.even + stream.even, value.odd + stream.odd};
      }
      lanes::store_pair(value, rows_.grad_residual[row] + c);
      if (rows_.grad_branch) {
        Pair const kept = dropped ? mask_.multipliers(c) : Pair{lanes::all(1), lanes::all(1)};
        lanes::store_pair({value.even * kept.even, value.odd * kept.odd}, rows_.grad_branch[row] + c);
      }
    }
  }

  kernels::NormView<BFloat16> of_;
  kernels::NormGradientRows<BFloat16> rows_;
  PairedVector weight_;
  Mask mask_;
  Means means_[rows_at_once];
  BFloat16 zeros_[longest] = {};
  Pair weight_sums_[longest / pair_width] = {};
  Pair bias_sums_[longest / pair_width] = {};
};

// These two are not inlined, so that the same instructions, and roundings, compute any share of a call.

/// Computes rows [begin, end) of a forward call.
[[gnu::noinline]] void run_forward(ResidualNormCall const& call, ResidualNormOutput const& output, std::int64_t begin,
                                   std::int64_t end) {
  Forward(call, output).run(begin, end);
}

/// A backward call, whose weight gradients are summed over blocks of rows.
struct BackwardCall {
  ResidualNormCall const& call;
  ResidualNormOutput const& output;
  Tensor const& grad_normalized;
  Tensor const& grad_sum;
  ResidualNormGradients const& gradients;
  std::int64_t rows;                                      ///< rows of a block
  float* grad_weight = data_of<float>(gradients.weight);  ///< of the first block, to which its sums are added; or null
  float* grad_bias = data_of<float>(gradients.bias);
  std::int64_t stride = 0;  ///< from a block's weight gradients to the next one's
};

/// Computes blocks [begin, end) of a backward call.
[[gnu::noinline]] void run_backward(BackwardCall const& of, std::int64_t begin, std::int64_t end) {
  Backward backward(of.call, of.output, of.grad_normalized, of.grad_sum, of.gradients);
  std::int64_t const rows = of.call.residual.dim(0);
  for (std::int64_t block = begin; block < end; ++block) {
    if (block > begin) {
      backward.clear_sums();
    }
    backward.run(block * of.rows, std::min(rows, (block + 1) * of.rows));
    if (!of.grad_normalized.empty()) {
      backward.add_sums(of.grad_weight + block * of.stride,
                        of.grad_bias == nullptr ? nullptr : of.grad_bias + block * of.stride);
    }
  }
}

/// Threads compute whole blocks of rows, whose weight gradients are then added in the order of the blocks: the sums are
/// the same for any number of threads but one, which computes one block.
void run_backward_in_parallel(Execution& execution, BackwardCall backward, std::int64_t parts) {
  std::int64_t const columns = backward.call.residual.dim(1);
  std::int64_t const blocks = (backward.call.residual.dim(0) + rows_per_block - 1) / rows_per_block;
  ArenaScope const scope(execution.scratch);
  float* const totals[]{backward.grad_weight, backward.grad_bias};
  backward.rows = rows_per_block;
  backward.stride = 2 * columns;
  float* const sums = execution.scratch.allocate(DType::float32, Shape{blocks, 2, columns}).data<float>();
  backward.grad_weight = sums;
  backward.grad_bias = totals[1] == nullptr ? nullptr : sums + columns;
  kernels::for_each(execution, "residual norm backward", parts, [&](std::int64_t part) {
    auto const [begin, end] = share(blocks, part, parts);
    std::fill(sums + begin * 2 * columns, sums + end * 2 * columns, 0.0F);
    run_backward(backward, begin, end);
  });
  execution.space.fence();
  for (std::int64_t block = 0; !backward.grad_normalized.empty() && block < blocks; ++block) {
    float const* const own = sums + block * 2 * columns;
    for (int of_bias = 0; of_bias < (totals[1] == nullptr ? 1 : 2); ++of_bias) {
      std::transform(own + of_bias * columns, own + (of_bias + 1) * columns, totals[of_bias], totals[of_bias],
                     std::plus<>());
    }
  }
}

/// Whole groups of random counters in each row: always true except for a plug-in's own split of d_model.
bool whole_groups(Dropout const& dropout) {
  return !dropout.active() || dropout.first_column % 8 == 0;
}

class SimdResidualNorm final : public ResidualNorm {
 public:
  explicit SimdResidualNorm(std::shared_ptr<ResidualNorm> portable) : portable_(std::move(portable)) {}

  bool supports(ResidualNormProblem const& problem) const override {
    return problem.dtype == DType::bfloat16 && problem.d_model % pair_width == 0 && problem.d_model <= longest &&
           (problem.kind == NormKind::layer || problem.kind == NormKind::rms);
  }
  void forward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output) override {
    if (!whole_groups(call.dropout)) {
      return portable_->forward(execution, call, output);
    }
    execution.space.fence();  // earlier kernels must have finished
    std::int64_t const rows = call.residual.dim(0);
    std::int64_t const parts = kernels::shares(call.residual.size(), min_share, execution.space.concurrency());
    if (parts == 1) {
      run_forward(call, output, 0, rows);
      return;
    }
    kernels::for_each(execution, "residual norm forward", parts, [&](std::int64_t part) {
      IndexRange const own = share(rows, part, parts);
      run_forward(call, output, own.begin, own.end);
    });
    execution.space.fence();
  }
  void backward(Execution& execution, ResidualNormCall const& call, ResidualNormOutput const& output,
                Tensor const& grad_normalized, Tensor const& grad_sum,
                ResidualNormGradients const& gradients) override {
    if (!whole_groups(call.dropout)) {
      return portable_->backward(execution, call, output, grad_normalized, grad_sum, gradients);
    }
    execution.space.fence();
    std::int64_t const threads = execution.space.concurrency();
    BackwardCall const backward{call, output, grad_normalized, grad_sum, gradients, call.residual.dim(0)};
    if (threads == 1) {
      run_backward(backward, 0, 1);
    } else {
      run_backward_in_parallel(execution, backward, kernels::shares(call.residual.size(), min_share, threads));
    }
  }

 private:
  std::shared_ptr<ResidualNorm> portable_;
};

}  // namespace

void add_simd_bfloat16_residual_norm_kernels(KernelRegistries& registries) {
  auto& registry = registries.of<ResidualNorm>();
  registry.add("simd", priorities::simd,
               std::make_shared<SimdResidualNorm>(registry.select("kokkos", {DType::bfloat16})));
}

}  // namespace heddle
