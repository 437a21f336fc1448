#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <compare>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <oneapi/dnnl/dnnl.hpp>

#include "onednn_chunks.hpp"
#include "packed_weights.hpp"
#include "support/factories.hpp"
#include "support/lru_cache.hpp"
#include "types.hpp"

namespace heddle {

namespace {

using Dims = dnnl::memory::dims;
using onednn::Chunk;

/// The number of primitives that are kept: a large model's steps use about 400.
constexpr std::size_t max_primitives = 512;
/// Address space that must be left before code is generated: a primitive has up to 34 functions of 256 KiB.
constexpr std::size_t min_address_space = std::size_t{64} << 20;
/// oneDNN's own cache serves weights of one shape, whose copies share their code.
constexpr int shared_primitives = 32;

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
#if DNNL_VERSION_MAJOR >= 3
  return key.bias ? dnnl::matmul::primitive_desc(engine, a, b, bias, c, attributes)
                  : dnnl::matmul::primitive_desc(engine, a, b, c, attributes);
#else
  auto const operation = key.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  return {operation, attributes, engine};
#endif
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

constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

/// Bytes of address space that primitives may take: an eighth of the limit (`ulimit -v`), if there is one.
std::size_t code_budget() {
  rlimit limit{};
  return getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ? unlimited : limit.rlim_cur / 8;
}

/// Bytes of address space in use; 0 where the system does not say.
std::size_t address_space() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

bool has_address_space() {
  void* const place =
      mmap(nullptr, min_address_space, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return place != MAP_FAILED && munmap(place, min_address_space) == 0;
}

/// A copy of `matrix` with a row of zeros below it or a column of zeros at its right.
Tensor with_zeros(Arena& scratch, Tensor const& matrix, bool row) {
  std::int64_t const rows = matrix.dim(0);
  std::int64_t const columns = matrix.dim(1);
  Tensor const copy = scratch.allocate(matrix.dtype(), row ? Shape{rows + 1, columns} : Shape{rows, columns + 1});
  auto const size = static_cast<std::int64_t>(size_of(matrix.dtype()));
  auto* const to = static_cast<std::byte*>(copy.raw());
  std::fill_n(to, copy.bytes(), std::byte{0});
  auto const* const from = static_cast<std::byte const*>(matrix.raw());
  for (std::int64_t i = 0; i < rows; ++i) {
    std::copy_n(from + i * matrix.row_stride() * size, columns * size, to + i * copy.row_stride() * size);
  }
  return copy;
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
  return {};  // no limit: `all` of version 2, `isa_default` of version 3
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
    return problem.dtype != DType::float64 && kernels::has_gemm_types(problem) &&
           (problem.dtype != DType::bfloat16 || has_bfloat16());
  }

  std::size_t packed_bytes(GemmProblem const& problem) const override {
    return !packs(problem) || is_padded(problem) ? 0 : packed_description(problem).get_size();
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
      is_padded(problem) ? multiply_padded(execution, call) : multiply_chunks(execution, call, problem);
    } catch (dnnl::error const& error) {
      throw Error("oneDNN could not multiply {} by {} ({}): {}", call.a.shape().to_string(), call.b.shape().to_string(),
                  name_of(problem.dtype), error.what());
    }
  }

 private:
  /// Partial sums in bfloat16 would be rounded once per chunk.
  static bool cuts_reduction(GemmProblem const& problem) {
    return problem.transpose_a && problem.output_dtype != DType::bfloat16;
  }

  /// True where the reduction gets one more element, a zero: one over no tokens (an empty pack), and an unsafe one.
  static bool is_padded(GemmProblem const& problem) {
    return problem.k == 0 || (!cuts_reduction(problem) && onednn::is_unsafe_reduction(problem.k));
  }

  void multiply_padded(Execution& execution, GemmCall const& call) {
    ArenaScope const scope(execution.scratch);
    GemmCall padded = call;
    padded.a = with_zeros(execution.scratch, call.a, call.transpose_a);
    padded.b = with_zeros(execution.scratch, call.b, !call.transpose_b);
    padded.b_weight = {};
    multiply_chunks(execution, padded, padded.problem());
  }

  /// Whether oneDNN gets a packed copy of a weight b. Where rows have gaps, for example those of an adapter of one
  /// part of a fused projection, oneDNN 2.6.3 has only its reference loops for packed weights: a hundred times slower.
  static bool packs(GemmProblem const& problem) { return !problem.transpose_a && !problem.gaps; }

  /// The rows of a are tokens: rows of c, or the reduction dimension if a is transposed. That dimension is cut.
  void multiply_chunks(Execution& execution, GemmCall const& call, GemmProblem const& problem) {
    bool const pack = call.b_weight.id != 0 && packs(problem);
    if (!pack && problem.b_dtype != problem.dtype) {
      multiply_converted(execution, call);
      return;
    }
    dnnl::memory const* const packed = pack ? &packed_weight(call, problem) : nullptr;
    bool const whole = problem.transpose_a && !cuts_reduction(problem);
    std::int64_t const rows = call.a.dim(0);
    for (Chunk chunk{}; chunk.begin < rows; chunk.begin += chunk.count) {
      chunk = whole ? Chunk{0, rows} : onednn::next_chunk(chunk.begin, rows, execution.space.concurrency());
      multiply_chunk(execution, call, problem, chunk, packed);
    }
  }

  template <class From, class To>
  static void convert(Tensor const& from, Tensor const& to) {
    auto const rows = kernels::rows_of<From>(from);
    auto const converted = kernels::rows_of<To>(to);
    for (std::int64_t row = 0; row < from.dim(0); ++row) {
      std::transform(rows[row], rows[row] + from.dim(1), converted[row],
                     [](From element) { return static_cast<To>(element); });
    }
  }

  /// Multiplies by a b of another dtype than a's, of which no packed copy is kept: converts b first.
  void multiply_converted(Execution& execution, GemmCall const& call) {
    ArenaScope const scope(execution.scratch);
    GemmCall converted = call;
    converted.b = execution.scratch.allocate(call.a.dtype(), call.b.shape());
    converted.b_weight = {};
    call.a.dtype() == DType::bfloat16 ? convert<float, BFloat16>(call.b, converted.b)
                                      : convert<BFloat16, float>(call.b, converted.b);
    multiply_chunks(execution, converted, converted.problem());
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
    Matmul& matmul = primitives_.find_or_make(key, [&] { return make_matmul_within_limits(key, packed); });
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

  /// Makes sure that code can be generated: where the system refuses memory for it, oneDNN 2.6.3 writes to address 0.
  /// Frees the code of all primitives if it must; throws Error if that is not enough.
  void require_address_space() {
    if (code_bytes_ <= code_budget_ && has_address_space()) {
      return;
    }
    primitives_.clear();
    dnnl::set_primitive_cache_capacity(0);
    dnnl::set_primitive_cache_capacity(shared_primitives);
    code_bytes_ = 0;
    if (!has_address_space()) {
      throw Error(
          "less than {} MiB of address space is left, too little for code that oneDNN generates: allow more "
          "with `ulimit -v` or the job's memory limit, or set kernels.gemm to another implementation",
          min_address_space >> 20);
    }
  }

  /// A primitive for which there is room. Counts its address space if that is limited.
  Matmul make_matmul_within_limits(MatmulKey const& key, dnnl::memory const* packed) {
    require_address_space();
    if (code_budget_ == unlimited) {
      return make_matmul(key, packed);
    }
    std::size_t const before = address_space();
    Matmul matmul = make_matmul(key, packed);
    code_bytes_ += std::max(address_space(), before) - before;
    return matmul;
  }

  Matmul make_matmul(MatmulKey const& key, dnnl::memory const* packed) const {
    if (onednn::is_unsafe_reduction(key.k)) {
      throw Error("a reduction over {} elements must not be given to oneDNN: split or pad it", key.k);
    }
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
      require_address_space();
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
                            onednn::largest_chunk,
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
  LruCache<MatmulKey, Matmul> primitives_{max_primitives};
  std::size_t code_budget_ = code_budget();
  std::size_t code_bytes_ = 0;  ///< code of the primitives made since all were freed
  PackedWeights<PackedWeight> weights_;
};

}  // namespace

void add_onednn_gemm(KernelRegistry<Gemm>& registry, CpuLevel level) {
  // Must come before any other use of oneDNN: the level set first holds for the whole process.
  dnnl::set_max_cpu_isa(highest_isa(level));
  dnnl::set_primitive_cache_capacity(shared_primitives);
  registry.add("onednn", priorities::vendor, std::make_shared<OneDnnGemm>());
}

}  // namespace heddle
