#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <compare>
#include <cstdlib>
#include <oneapi/dnnl/dnnl.hpp>

#include "packed_weights.hpp"
#include "support/factories.hpp"
#include "support/lru_cache.hpp"
#include "types.hpp"

namespace heddle {

namespace {

using Dims = dnnl::memory::dims;

/// Token counts differ from step to step and each new shape costs 0.2 to 0.3 ms of code generation, so a's rows are
/// computed in chunks of these sizes, and the last rows as one smaller chunk. Chunks of 512 rows run at the speed of
/// the whole. Threads divide a chunk, so for several the sizes between these are used, too, and up to 512 rows each.
constexpr std::int64_t large_chunk = 512;
constexpr std::int64_t small_chunk = 64;
/// Each primitive's code takes about 66 KiB.
constexpr std::size_t most_primitives = 512;

dnnl::memory::data_type to_onednn(DType dtype) {
  return dtype == DType::bfloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

/// A weight as oneDNN prefers it, and how it is made from the weight itself.
struct PackedWeight {
  dnnl::memory packed, source;
  dnnl::reorder reorder;
};

/// One chunk's matmul. Strides are between stored rows.
struct MatmulKey {
  DType dtype, output_dtype;
  std::int64_t m, n, k;
  std::int64_t a_stride, b_stride, c_stride;  ///< b_stride 0: b is packed
  bool transpose_a, transpose_b, accumulate, bias;

  auto operator<=>(MatmulKey const&) const = default;
};

/// A tensor of a primitive's call: DNNL_ARG_… and its memory.
using Argument = dnnl_exec_arg_t;

/// Waits for the result. The C++ interface would build two containers for each call.
template <std::size_t count>
void execute(dnnl::primitive const& primitive, dnnl::stream const& stream, std::array<Argument, count> const& arguments,
             int used = count) {
  dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive.get(), stream.get(), used, arguments.data()), "execute");
  dnnl::error::wrap_c_api(dnnl_stream_wait(stream.get()), "wait");
}

struct Matmul {
  dnnl::matmul primitive;
  dnnl::memory a, b, c, bias, scratch;
  std::int64_t scratch_bytes = 0;
};

dnnl::memory::desc matrix(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t stride, bool transposed) {
  return {{rows, columns}, to_onednn(dtype), transposed ? Dims{1, stride} : Dims{stride, 1}};
}

dnnl::matmul::primitive_desc describe(MatmulKey const& key, dnnl::memory::desc const& b, dnnl::engine const& engine) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (key.accumulate) {
    dnnl::post_ops operations;
    operations.append_sum(1.0F);
    attributes.set_post_ops(operations);
  }
  auto const a = matrix(key.dtype, key.m, key.k, key.a_stride, key.transpose_a);
  auto const c = matrix(key.output_dtype, key.m, key.n, key.c_stride, false);
  auto const bias = matrix(DType::float32, 1, key.n, key.n, false);
  auto const operation = key.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  return {operation, attributes, engine};
}

/// oneDNN starts as many threads as its OpenMP runtime offers, by default one per core: far too many with one rank per
/// core. Unless the user sets a number, it gets as many as Kokkos has on the host. The function is looked up by name,
/// because it is known only at load time which OpenMP runtime oneDNN was built with, if any.
void limit_threads() {
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    if (void* const symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads"); symbol != nullptr) {
      reinterpret_cast<void (*)(int)>(symbol)(Kokkos::DefaultHostExecutionSpace().concurrency());
    }
  }
}

/// The part of a call that one primitive computes: rows [begin, begin + count) of a as stored.
struct Chunk {
  std::int64_t begin, count;
};

Chunk next_chunk(std::int64_t begin, std::int64_t rows, std::int64_t threads) {
  std::int64_t const left = rows - begin;
  if (threads > 1 && left >= small_chunk) {
    std::int64_t const most = std::min(left / small_chunk, large_chunk / small_chunk * threads);
    return {begin, small_chunk * static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(most)))};
  }
  return {begin, left >= large_chunk ? large_chunk : (left >= small_chunk ? small_chunk : left)};
}

void* address(Tensor const& tensor, std::int64_t element) {
  return static_cast<std::byte*>(tensor.raw()) + element * static_cast<std::int64_t>(size_of(tensor.dtype()));
}

dnnl::cpu_isa highest_isa(CpuLevel level) {
  switch (level) {
    case CpuLevel::baseline:
      return dnnl::cpu_isa::sse41;
    case CpuLevel::v3:
      return dnnl::cpu_isa::avx2;
    case CpuLevel::v4:
      return dnnl::cpu_isa::avx512_core;
    case CpuLevel::v4_bf16:
      return dnnl::cpu_isa::avx512_core_bf16;
    case CpuLevel::v4_amx:
      break;
  }
  return dnnl::cpu_isa::all;
}

/// oneDNN's matmul, with packed copies of weights where the call says that b is one. Used by one thread at a time.
class OneDnnGemm final : public Gemm {
 public:
  OneDnnGemm() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  bool supports(GemmProblem const& problem) const override {
    using Space = Kokkos::DefaultExecutionSpace::memory_space;
    if (!Kokkos::SpaceAccessibility<Kokkos::HostSpace, Space>::accessible) {
      return false;
    }
    return problem.dtype != DType::float64 && kernels::is_plain_gemm(problem) &&
           (problem.dtype != DType::bfloat16 || has_bfloat16());
  }

  std::size_t packed_bytes(GemmProblem const& problem) const override {
    return problem.transpose_a ? 0 : packed_description(problem).get_size();
  }
  std::size_t kept_bytes() const override {
    return weights_.bytes([](PackedWeight const& weight) { return weight.packed.get_desc().get_size(); });
  }

  void multiply(Execution& execution, GemmCall const& call) override {
    GemmProblem const problem = call.problem();
    if (problem.m == 0 || problem.n == 0) {
      return;
    }
    if (!threads_limited_) {
      limit_threads();
      threads_limited_ = true;
    }
    try {
      // oneDNN runs on the calling thread, so earlier kernels must have finished.
      execution.space.fence();
      problem.k == 0 ? multiply_nothing(execution, call, problem) : multiply_chunks(execution, call, problem);
    } catch (dnnl::error const& error) {
      throw Error(fmt::format("oneDNN could not multiply {} by {} ({}): {}", call.a.shape().to_string(),
                              call.b.shape().to_string(), name_of(problem.dtype), error.what()));
    }
  }

 private:
  /// The rows of a are tokens: rows of c, or the reduction dimension if a is transposed. That dimension is cut.
  void multiply_chunks(Execution& execution, GemmCall const& call, GemmProblem const& problem) {
    bool const pack = call.b_weight.id != 0 && !problem.transpose_a;
    if (!pack && problem.b_dtype != problem.dtype) {
      multiply_rounded(execution, call);
      return;
    }
    dnnl::memory const* const packed = pack ? &packed_weight(call, problem) : nullptr;
    // Partial sums in bfloat16 would be rounded once per chunk.
    bool const whole = problem.transpose_a && problem.output_dtype == DType::bfloat16;
    std::int64_t const rows = call.a.dim(0);
    for (Chunk chunk{}; chunk.begin < rows; chunk.begin += chunk.count) {
      chunk = whole ? Chunk{0, rows} : next_chunk(chunk.begin, rows, execution.space.concurrency());
      multiply_chunk(execution, call, problem, chunk, packed);
    }
  }

  /// For float32 b beside bfloat16 a, where no packed copy of b is worth keeping: rounds b first.
  void multiply_rounded(Execution& execution, GemmCall const& call) {
    ArenaScope const scope(execution.scratch);
    GemmCall rounded = call;
    rounded.b = execution.scratch.allocate(DType::bfloat16, call.b.shape());
    rounded.b_weight = {};
    auto const from = kernels::rows_of<float>(call.b);
    auto const to = kernels::rows_of<BFloat16>(rounded.b);
    std::int64_t const columns = call.b.dim(1);
    for (std::int64_t row = 0; row < call.b.dim(0); ++row) {
      std::transform(from[row], from[row] + columns, to[row], [](float element) { return BFloat16(element); });
    }
    multiply_chunks(execution, rounded, rounded.problem());
  }

  void multiply_chunk(Execution& execution, GemmCall const& call, GemmProblem const& problem, Chunk const& chunk,
                      dnnl::memory const* packed) {
    bool const reduced = problem.transpose_a;
    bool const first = !reduced || chunk.begin == 0;
    MatmulKey key{problem.dtype,
                  problem.output_dtype,
                  problem.m,
                  problem.n,
                  problem.k,
                  call.a.row_stride(),
                  call.b.row_stride(),
                  call.c.row_stride(),
                  problem.transpose_a,
                  problem.transpose_b,
                  problem.accumulate || !first,
                  problem.bias && first};
    (reduced ? key.k : key.m) = chunk.count;
    if (packed != nullptr) {
      key.b_stride = 0;
      key.transpose_b = false;
    }
    Matmul& matmul = primitives_.find_or_make(key, [&] { return make_matmul(key, packed); });
    matmul.a.set_data_handle(address(call.a, chunk.begin * key.a_stride));
    if (packed == nullptr) {
      std::int64_t const skipped = reduced ? chunk.begin : 0;
      matmul.b.set_data_handle(address(call.b, skipped * (key.transpose_b ? 1 : key.b_stride)));
    }
    matmul.c.set_data_handle(address(call.c, reduced ? 0 : chunk.begin * key.c_stride));
    if (key.bias) {
      matmul.bias.set_data_handle(call.bias.raw());
    }
    run(execution, matmul, packed);
  }

  void run(Execution& execution, Matmul& matmul, dnnl::memory const* packed) {
    ArenaScope const scope(execution.scratch);
    matmul.scratch.set_data_handle(execution.scratch.allocate(DType::int32, Shape{matmul.scratch_bytes / 4 + 1}).raw());
    std::array<Argument, 5> const arguments{{{DNNL_ARG_SRC, matmul.a.get()},
                                             {DNNL_ARG_WEIGHTS, (packed != nullptr ? *packed : matmul.b).get()},
                                             {DNNL_ARG_DST, matmul.c.get()},
                                             {DNNL_ARG_SCRATCHPAD, matmul.scratch.get()},
                                             {DNNL_ARG_BIAS, matmul.bias.get(true)}}};
    execute(matmul.primitive, stream_, arguments, matmul.bias ? 5 : 4);
  }

  Matmul make_matmul(MatmulKey const& key, dnnl::memory const* packed) const {
    auto const b =
        packed != nullptr ? packed->get_desc() : matrix(key.dtype, key.k, key.n, key.b_stride, key.transpose_b);
    auto const description = describe(key, b, engine_);
    auto const unset = [&](dnnl::memory::desc const& desc) { return dnnl::memory(desc, engine_, nullptr); };
    Matmul matmul{dnnl::matmul(description),
                  unset(description.src_desc()),
                  unset(description.weights_desc()),
                  unset(description.dst_desc()),
                  key.bias ? unset(description.bias_desc()) : dnnl::memory(),
                  unset(description.scratchpad_desc()),
                  static_cast<std::int64_t>(description.scratchpad_desc().get_size())};
    return matmul;
  }

  /// b in the layout that oneDNN prefers for chunks of this n and k.
  dnnl::memory& packed_weight(GemmCall const& call, GemmProblem const& problem) {
    auto const make = [&] {
      dnnl::memory const packed(packed_description(problem), engine_);
      dnnl::memory const source(matrix(problem.b_dtype, problem.k, problem.n, call.b.row_stride(), problem.transpose_b),
                                engine_, call.b.raw());
      return PackedWeight{packed, source, dnnl::reorder(source, packed)};
    };
    auto const fill = [&](PackedWeight const& weight) {
      execute(weight.reorder, stream_,
              std::array<Argument, 2>{{{DNNL_ARG_FROM, weight.source.get()}, {DNNL_ARG_TO, weight.packed.get()}}});
    };
    return weights_.current(call, problem, make, fill).packed;
  }

  dnnl::memory::desc packed_description(GemmProblem const& problem) const {
    MatmulKey const typical{problem.dtype,
                            problem.output_dtype,
                            large_chunk,
                            problem.n,
                            problem.k,
                            problem.k,
                            0,
                            problem.n,
                            false,
                            false,
                            false,
                            false};
    dnnl::memory::desc const any({problem.k, problem.n}, to_onednn(problem.dtype), dnnl::memory::format_tag::any);
    return describe(typical, any, engine_).weights_desc();
  }

  void multiply_nothing(Execution& execution, GemmCall const& call, GemmProblem const& problem) {
    // A reduction over no tokens (an empty pack): c = bias, or c += bias. It is rare, so one product with a row of
    // zeros computes it.
    ArenaScope const scope(execution.scratch);
    auto const zeros = [&](bool transposed, std::int64_t length) {
      Tensor const tensor = execution.scratch.allocate(problem.dtype, transposed ? Shape{length, 1} : Shape{1, length});
      std::fill_n(static_cast<std::byte*>(tensor.raw()), tensor.bytes(), std::byte{0});
      return tensor;
    };
    GemmCall padded = call;
    padded.a = zeros(!problem.transpose_a, problem.m);
    padded.b = zeros(problem.transpose_b, problem.n);
    padded.b_weight = {};
    multiply_chunks(execution, padded, padded.problem());
  }

  bool has_bfloat16() const {
    MatmulKey const small{DType::bfloat16, DType::float32, 64, 64, 64, 64, 64, 64, false, false, false, false};
    try {
      describe(small, matrix(DType::bfloat16, 64, 64, 64, false), engine_);
      return true;
    } catch (dnnl::error const&) {
      return false;
    }
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  bool threads_limited_ = false;
  LruCache<MatmulKey, Matmul> primitives_{most_primitives};
  PackedWeights<PackedWeight> weights_;
};

}  // namespace

void add_onednn_gemm(KernelRegistry<Gemm>& registry, CpuLevel level) {
  // Must come before any other use of oneDNN: the level set first holds for the whole process.
  dnnl::set_max_cpu_isa(highest_isa(level));
  registry.add("onednn", speeds::vendor, std::make_shared<OneDnnGemm>());
}

}  // namespace heddle
