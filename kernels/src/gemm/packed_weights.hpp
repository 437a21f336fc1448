#pragma once

#include <compare>
#include <cstdint>
#include <heddle/core/operations/gemm.hpp>

#include "support/lru_cache.hpp"

namespace heddle {

/// Packed copies of the weights that are a GEMM's b, each kept until the weight's version is another one. Packed is the
/// copy's type; those used last are kept.
template <class Packed>
class PackedWeights {
 public:
  /// The copy of `call.b`: made by `make()` where there is none, and filled by `fill(packed)` where the version is
  /// another one.
  template <class Make, class Fill>
  Packed& current(GemmCall const& call, GemmProblem const& problem, Make&& make, Fill&& fill) {
    Key const key{call.b_weight.id,    call.b.raw(),  problem.n,       problem.k,           call.b.row_stride(),
                  problem.transpose_b, problem.dtype, problem.b_dtype, problem.output_dtype};
    Entry& entry = entries_.find_or_make(key, [&] { return Entry{0, false, make()}; });
    if (!entry.filled || entry.version != call.b_weight.version) {
      fill(entry.packed);
      entry.version = call.b_weight.version;
      entry.filled = true;
    }
    return entry.packed;
  }

 private:
  /// Whose copy it is. A view of some of a parameter's rows has its own.
  struct Key {
    std::uint64_t id;
    void const* data;
    std::int64_t n, k, stride;
    bool transposed;
    DType dtype, b_dtype, output_dtype;

    auto operator<=>(Key const&) const = default;
  };

  struct Entry {
    std::uint64_t version;
    bool filled;
    Packed packed;
  };

  static constexpr std::size_t capacity = 1024;
  LruCache<Key, Entry> entries_{capacity};
};

}  // namespace heddle
