#include <heddle/core/tensor/execution.hpp>
#include <memory>
#include <vector>

#include "gemm/packed_weights.hpp"
#include "gemm/parts.hpp"
#include "support/factories.hpp"
#include "support/matrix_registers.hpp"
#include "tiles.hpp"

namespace heddle {

namespace {

/// Parts have whole strips, which are read in place, and whole panels. Reading a row from the caches takes as long as
/// its products with 4 panels, and reading a panel as long as with 128 rows.
constexpr kernels::GemmTiles gemm_tiles{
    .rows = amx::panel, .columns = amx::panel, .row_time = 4, .panel_time = 128, .min_multiplications = 1 << 23};

/// Products in matrix registers, by all threads of the execution space, which give the same bits for any number of
/// them. The vendor's implementation computes products with few columns.
///
/// Products of float32 are three of bfloat16 each (Henry, Tang, Heinecke 2019): an element is the sum of two bfloat16
/// and of an error of at most 2⁻¹⁶ of it, and products of two second parts, which are as small, are left out. Sums are
/// float32. An element from 3.39e38 on becomes NaN.
class AmxGemm final : public Gemm {
 public:
  /// `dtype`: the type of op(a), float32 or bfloat16.
  AmxGemm(DType dtype, std::shared_ptr<Gemm> vendor) : split_(dtype == DType::float32), vendor_(std::move(vendor)) {}

  bool supports(GemmProblem const& problem) const override {
    return problem.dtype == (split_ ? DType::float32 : DType::bfloat16) && vendor_->supports(problem);
  }
  bool only_by_name() const override { return split_; }
  std::size_t packed_bytes(GemmProblem const& problem) const override {
    return is_own(problem) ? sizeof(std::uint16_t) * static_cast<std::size_t>(packed_elements(problem))
                           : vendor_->packed_bytes(problem);
  }
  /// Its own copies; the vendor's implementation is registered, too, and counts its own.
  std::size_t kept_bytes() const override {
    return weights_.bytes([](Tensor const& packed) { return packed.bytes(); });
  }

  void multiply(Execution& execution, GemmCall const& call) override {
    GemmProblem const problem = call.problem();
    if (!is_own(problem)) {
      vendor_->multiply(execution, call);
      return;
    }
    if (problem.m == 0 || problem.n == 0) {
      return;
    }
    execution.space.fence();  // this code does not run in the order of the execution space
    ArenaScope const scope(execution.scratch);
    std::uint16_t const* const packed = call.b_weight.id != 0 ? packed_weight(execution, call, problem) : nullptr;
    kernels::GemmBlocks const parts = kernels::gemm_blocks_of(problem, gemm_tiles, execution.space.concurrency());
    if (parts.count() == 1) {
      amx::multiply(product_in(execution.scratch, call, packed));
      return;
    }
    std::vector<amx::Product> products;
    for (std::int64_t index = 0; index < parts.count(); ++index) {
      kernels::GemmBlock const part = kernels::gemm_block(call, gemm_tiles, parts, index);
      std::uint16_t const* const panels =
          packed != nullptr ? packed + part.first_panel * panel_elements(problem) : nullptr;
      products.push_back(product_in(execution.scratch, part.call, panels));
    }
    kernels::multiply_parts(execution, "amx gemm", products);
  }

 private:
  /// Fewer columns than a panel has would be packed, and multiplied, with zeros.
  bool is_own(GemmProblem const& problem) const {
    bool const whole = !split_ || problem.b_dtype == DType::float32;
    return whole && problem.n >= amx::panel && problem.k > 0;
  }
  std::int64_t packed_elements(GemmProblem const& problem) const {
    return amx::parts(split_) * amx::packed_elements(problem.n, problem.k);
  }
  /// From one packed panel of a weight to the next.
  std::int64_t panel_elements(GemmProblem const& problem) const {
    return amx::parts(split_) * amx::packed_elements(amx::panel, problem.k);
  }

  amx::Factor right_factor(GemmCall const& call, GemmProblem const& problem) const {
    bool const float32 = problem.b_dtype == DType::float32;
    return {call.b.raw(), call.b.row_stride(), problem.n, problem.k, call.transpose_b, float32, split_};
  }

  /// A product whose blocks are packed into `scratch`; `packed` is all of op(b), packed, or null.
  amx::Product product_in(Arena& scratch, GemmCall const& call, std::uint16_t const* packed) const {
    GemmProblem const problem = call.problem();
    amx::Blocking const blocking = amx::blocking_of({problem.m, problem.n, problem.k}, packed != nullptr, split_);
    auto const room = [&](DType dtype, std::int64_t elements) {
      return elements > 0 ? scratch.allocate(dtype, Shape{elements}).raw() : nullptr;
    };
    auto const words = [&](std::int64_t elements) {
      return static_cast<std::uint16_t*>(room(DType::bfloat16, elements));
    };
    return {.a = {call.a.raw(), call.a.row_stride(), problem.m, problem.k, !call.transpose_a, split_, split_},
            .b = right_factor(call, problem),
            .packed = packed,
            .c = {call.c.raw(), call.c.row_stride(), problem.m, problem.n, problem.output_dtype == DType::float32,
                  problem.accumulate, problem.bias ? call.bias.data<float>() : nullptr},
            .blocking = blocking,
            .left = words(amx::left_elements(blocking)),
            .right = words(amx::right_elements(blocking)),
            .partial = static_cast<float*>(room(DType::float32, amx::partial_elements(blocking, problem.k)))};
  }

  /// All of op(b), packed.
  std::uint16_t const* packed_weight(Execution& execution, GemmCall const& call, GemmProblem const& problem) {
    auto const words = [](Tensor const& packed) { return static_cast<std::uint16_t*>(packed.raw()); };
    auto const make = [&] { return Tensor::allocate_on_host(DType::bfloat16, {packed_elements(problem)}); };
    auto const fill = [&](Tensor const& packed) {
      amx::Factor const b = right_factor(call, problem);
      kernels::Panels<std::uint16_t> const panels{words(packed), panel_elements(problem), amx::panel};
      auto const fill_both = [&](Tensor const& transposed) {
        std::uint16_t* const of_gradient = words(transposed);
        std::int64_t const panel_of_gradient = amx::packed_elements(amx::panel, problem.n);
        kernels::pack_panels(execution, "amx gemm weight", b, panels, [=](amx::Factor const& part, std::uint16_t* to) {
          std::int64_t const first_panel = (to - panels.packed) / panels.words;
          amx::pack_weight(part, to, of_gradient + first_panel * amx::step_elements, panel_of_gradient);
        });
      };
      bool const for_both = b.k_contiguous && b.float32 && !split_;
      if (!(for_both && weights_.fill_transposed(call, problem, fill_both))) {
        kernels::pack_panels(execution, "amx gemm weight", b, panels, amx::pack_columns);
      }
    };
    return words(weights_.current(call, problem, make, fill));
  }

  bool split_;  ///< op(a) is float32
  std::shared_ptr<Gemm> vendor_;
  PackedWeights<Tensor> weights_;
};

}  // namespace

void add_amx_gemm(KernelRegistry<Gemm>& registry, CpuLevel level) {
  GemmProblem const problem{.dtype = DType::bfloat16, .m = 1, .n = 1, .k = 1};
  if (level >= CpuLevel::v4_amx && request_matrix_registers()) {
    auto const vendor = registry.select("onednn", problem);
    registry.add("amx", priorities::own, std::make_shared<AmxGemm>(DType::bfloat16, vendor));
    registry.add("amx_3xbf16", priorities::own, std::make_shared<AmxGemm>(DType::float32, vendor));
  }
}

}  // namespace heddle
