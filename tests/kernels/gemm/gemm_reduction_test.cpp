#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <heddle/core/operations/gemm.hpp>

#include "gemm/onednn_chunks.hpp"
#include "kernel_fixture.hpp"

namespace heddle {
namespace {

/// A product of a Linear.
struct Product {
  char const* name;
  bool transpose_a, transpose_b, accumulate, bias;
};

constexpr Product forward{"forward", false, true, false, true};
constexpr Product input_gradient{"input gradient", false, false, true, false};
constexpr Product weight_gradient{"weight gradient", true, false, true, false};

struct Types {
  DType dtype, output_dtype;
};

constexpr Types float32_types{DType::float32, DType::float32};
/// A weight's gradient is summed in float32.
constexpr std::array all_types{float32_types, Types{DType::bfloat16, DType::bfloat16},
                               Types{DType::bfloat16, DType::float32}};

struct Sizes {
  std::int64_t m, n, k;
};

GemmCall make_call(Product const& product, Sizes const& size, Types const& types) {
  auto const matrix = [](DType dtype, std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
    return random_tensor(dtype, Shape{rows, columns}, seed);
  };
  auto const [m, n, k] = size;
  GemmCall call;
  call.a = product.transpose_a ? matrix(types.dtype, k, m, 1) : matrix(types.dtype, m, k, 1);
  call.b = product.transpose_b ? matrix(types.dtype, n, k, 2) : matrix(types.dtype, k, n, 2);
  call.c = matrix(types.output_dtype, m, n, 3);
  call.bias = product.bias ? random_tensor(parameter_dtype(types.output_dtype), Shape{n}, 4) : Tensor();
  call.transpose_a = product.transpose_a;
  call.transpose_b = product.transpose_b;
  call.accumulate = product.accumulate;
  return call;
}

class GemmReductionTest : public BuiltInKernelsTest {
 protected:
  /// Null where the build has none.
  Gemm* onednn() {
    for (auto const& entry : registries_.of<Gemm>().entries()) {
      if (entry.name == "onednn") {
        return entry.kernel.get();
      }
    }
    return nullptr;
  }

  Values by_definition(GemmCall const& call) {
    GemmCall exact = call;
    for (Tensor* const tensor : {&exact.a, &exact.b, &exact.c, &exact.bias}) {
      *tensor = tensor->empty() ? Tensor() : converted(*tensor, DType::float64);
    }
    registries_.of<Gemm>().select("reference", exact.problem())->multiply(execution_, exact);
    return values(exact.c);
  }

  /// Compares all implementations that support the call with the definition.
  void compare(GemmCall const& call, std::string const& what) {
    Values const expected = by_definition(call);
    for (auto const& entry : registries_.of<Gemm>().entries()) {
      bool const compared = entry.name != "reference" && entry.kernel->accuracy() != Accuracy::quantised;
      if (compared && entry.kernel->supports(call.problem())) {
        GemmCall own = call;
        own.c = converted(call.c, call.c.dtype());
        entry.kernel->multiply(execution_, own);
        expect_values(own.c, expected, call.c.dtype(), entry.name + what);
        EXPECT_EQ(scratch_.mark(), 0U) << entry.name << what;
      }
    }
  }
};

TEST_F(GemmReductionTest, EveryLengthOfTheSumIsRight) {
  // Odd numbers of rows and columns: code for tiles of 16 then has rests in all three dimensions.
  std::uint64_t weight = 1000;
  for (std::int64_t k = 1; k <= 130; ++k) {
    for (Types const& types : all_types) {
      for (Product const& product : {forward, input_gradient, weight_gradient}) {
        GemmCall call = make_call(product, product.transpose_a ? Sizes{39, 113, k} : Sizes{21, 37, k}, types);
        call.b_weight.id = product.transpose_a ? 0 : ++weight;
        compare(call, std::string(", ") + product.name + " over " + std::to_string(k) + " elements");
        ASSERT_FALSE(HasFailure());
      }
    }
  }
}

TEST_F(GemmReductionTest, ChunksCoverTheRowsAndHaveNoUnsafeReduction) {
  std::vector<bool> seen(513);
  for (std::int64_t threads = 1; threads <= 5; ++threads) {
    for (std::int64_t rows = 1; rows <= 3000; ++rows) {
      std::int64_t next = 0;
      while (next < rows) {
        onednn::Chunk const chunk = onednn::next_chunk(next, rows, threads);
        ASSERT_EQ(chunk.begin, next);
        ASSERT_GE(chunk.count, 1);
        ASSERT_LE(chunk.count, 512 * threads);
        ASSERT_FALSE(onednn::is_unsafe_reduction(chunk.count)) << rows << " rows, " << threads << " threads";
        if (threads == 1) {
          seen[static_cast<std::size_t>(chunk.count)] = true;
        }
        next += chunk.count;
      }
      ASSERT_EQ(next, rows);
    }
  }
  EXPECT_LE(std::ranges::count(seen, true), 22) << "each size costs the code of all products of a model";
  EXPECT_TRUE(onednn::is_unsafe_reduction(63));
  EXPECT_FALSE(onednn::is_unsafe_reduction(64));
}

/// The sums' lengths in all products that oneDNN says it has executed: "…,matmul,…,39x63:63x112:39x112,0.01".
std::vector<std::int64_t> executed_reductions(std::string const& verbose) {
  std::vector<std::int64_t> lengths;
  for (std::string const& line : lines_of(verbose)) {
    std::size_t const end = line.rfind(',');
    std::size_t const begin = line.rfind(',', end - 1);
    if (line.find(",exec,cpu,matmul,") != std::string::npos) {
      lengths.push_back(std::stoll(line.substr(line.find('x', begin) + 1)));
    }
  }
  return lengths;
}

TEST_F(GemmReductionTest, OneDnnGetsNoUnsafeReduction) {
  // The library's own protocol shows it at every level, although only AMX computes wrongly.
  auto const set_verbose = reinterpret_cast<int (*)(int)>(dlsym(RTLD_DEFAULT, "dnnl_set_verbose"));
  if (onednn() == nullptr) {
    GTEST_SKIP() << "this build has no onednn, which computes on the host";
  }
  ASSERT_NE(set_verbose, nullptr);
  int products = 0;
  testing::internal::CaptureStdout();
  set_verbose(1);
  for (std::int64_t const k : {15, 31, 62, 63, 64, 95, 127, 575, 639}) {
    for (Types const& types : all_types) {
      for (Product const& product : {forward, input_gradient, weight_gradient}) {
        GemmCall call = make_call(product, {39, 11, k}, types);
        for (std::uint64_t const id : {0U, 7U}) {
          call.b_weight.id = id;
          if (onednn()->supports(call.problem())) {
            onednn()->multiply(execution_, call);
            ++products;
          }
        }
      }
    }
  }
  set_verbose(0);
  std::vector<std::int64_t> const lengths = executed_reductions(testing::internal::GetCapturedStdout());
  EXPECT_GE(static_cast<int>(lengths.size()), products);
  EXPECT_THAT(lengths, Contains(62));
  for (std::int64_t const length : lengths) {
    EXPECT_FALSE(onednn::is_unsafe_reduction(length)) << length;
  }
}

TEST_F(GemmReductionTest, CodeThatDoesNotFitInTheAddressSpaceIsAnError) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer needs terabytes of address space itself";
#endif
  if (onednn() == nullptr) {
    GTEST_SKIP() << "this build has no onednn, which computes on the host";
  }
  compare(make_call(forward, {5, 3, 4}, float32_types), ", which starts threads and takes scratch");
  GemmCall const call = make_call(forward, {5, 9, 4}, float32_types);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit const tight{pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + 200'000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &tight), 0);
  void* const more = mmap(nullptr, std::size_t{1} << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (more != MAP_FAILED) {
    munmap(more, std::size_t{1} << 20);
    ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
    GTEST_SKIP() << "this system, perhaps an emulator, does not limit address space";
  }
  std::string message;
  try {
    onednn()->multiply(execution_, call);
  } catch (Error const& error) {
    message = error.what();
  }
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  expect_contains(message, "address space");
  compare(call, " after the limit was lifted");
}

}  // namespace
}  // namespace heddle
