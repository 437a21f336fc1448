#pragma once

#include <compare>
#include <cstdint>
#include <heddle/core/operations/gemm.hpp>
#include <utility>

#include "support/lru_cache.hpp"

namespace heddle {

/// Packed copies of the weights that are a GEMM's b, each valid until the weight's version changes. Packed is the
/// copy's type. Keeps as many copies as the model has weights; copies of weights that are no longer multiplied by are
/// removed when there are many.
template <class Packed>
class PackedWeights {
 public:
  /// The copy of `call.b`: made by `make()` if there is none, and filled by `fill(packed)` if the version has
  /// changed.
  template <class Make, class Fill>
  Packed& current(GemmCall const& call, GemmProblem const& problem, Make&& make, Fill&& fill) {
    Entry& entry = entries_.find_or_make(key_of(call, problem), [&] { return Entry{0, false, make()}; });
    if (!entry.is_of(call)) {
      fill(entry.packed);
      entry.set_version_of(call);
    }
    return entry.packed;
  }

  /// Calls `fill(packed)` for the copy of `call.b` transposed, if there is one and the version has changed; otherwise
  /// returns false. A training step packs each weight for its forward pass and then for its input's gradient.
  template <class Fill>
  bool fill_transposed(GemmCall const& call, GemmProblem const& problem, Fill&& fill) {
    Key key = key_of(call, problem);
    std::swap(key.n, key.k);
    key.transposed = !key.transposed;
    Entry* const entry = entries_.find(key);
    if (entry == nullptr || entry->is_of(call)) {
      return false;
    }
    fill(entry->packed);
    entry->set_version_of(call);
    return true;
  }

  /// The sum of `size_of_copy(packed)` over all copies.
  template <class SizeOfCopy>
  std::size_t bytes(SizeOfCopy&& size_of_copy) const {
    std::size_t sum = 0;
    entries_.for_each([&](Entry const& entry) { sum += static_cast<std::size_t>(size_of_copy(entry.packed)); });
    return sum;
  }

 private:
  /// Identifies a copy. A view of some of a parameter's rows has its own copy.
  struct Key {
    std::uint64_t id;
    void const* data;
    std::int64_t n, k, stride;
    bool transposed;
    DType dtype, b_dtype, output_dtype;

    auto operator<=>(Key const&) const = default;
  };

  static Key key_of(GemmCall const& call, GemmProblem const& problem) {
    return {call.b_weight.id,    call.b.raw(),  problem.n,       problem.k,           call.b.row_stride(),
            problem.transpose_b, problem.dtype, problem.b_dtype, problem.output_dtype};
  }

  struct Entry {
    std::uint64_t version;
    bool filled;
    Packed packed;

    bool is_of(GemmCall const& call) const { return filled && version == call.b_weight.version; }
    void set_version_of(GemmCall const& call) {
      version = call.b_weight.version;
      filled = true;
    }
  };

  /// The number of copies that are always kept. A pipeline stage makes as many forward passes before the first
  /// backward pass as there are stages; meanwhile copies for the backward pass wait for their use.
  static constexpr std::size_t min = 1024;
  static constexpr std::uint64_t patience = 64;
  LruCache<Key, Entry> entries_{min, patience};
};

}  // namespace heddle
