#pragma once

#include <cstdint>
#include <heddle/core/tensor/tensor.hpp>

namespace heddle {

struct Execution;

/// An implementation of one operation. The concrete interfaces (Gemm, Attention, …) say what a call computes; every
/// call takes the Execution first, may assume nothing about host access, and never synchronises more than it needs.
/// `supports` is asked before an implementation is used: a call outside it is a programming error.
class Kernel {
 public:
  virtual ~Kernel() = default;
};

/// A parameter's identity and version: a key under which a GEMM may keep its own packed copy of it.
struct WeightVersion {
  std::uint64_t id = 0;  ///< 0: not a parameter, pack nothing
  std::uint64_t version = 0;
};

}  // namespace heddle
