#pragma once

#include <cstddef>
#include <cstdint>
#include <heddle/core/operations/cost.hpp>
#include <heddle/core/tensor/tensor.hpp>
#include <memory>
#include <string>

namespace heddle {

struct Execution;

/// An implementation of one operation. The concrete interfaces (Gemm, Attention, …) define what a call computes. Every
/// call takes the Execution first, must not assume that the host can read memory, and synchronises no more than it
/// needs.
///
/// An interface is a class derived from Kernel with
///   static constexpr char const* operation;            the operation's name, a key of [kernels]
///   using Problem = …;                                 everything that `supports` depends on
///   virtual bool supports(Problem const&) const;       checked before an implementation is used: other
///                                                      calls are a programming error
///   virtual … methods that compute
///   static std::shared_ptr<Interface> observed(ObservedSelection<Interface> selection);
///                                                      an ObservedKernel<Interface>: see observation.hpp
/// and beside it in its namespace
///   std::string describe(Problem const&);              for messages
///   std::string timing_key(Problem const&);            the part of a problem that measured times depend on; without
///                                                      it they depend on the whole description
class Kernel {
 public:
  virtual ~Kernel() = default;

  /// Bytes that the kernel holds between calls: packed copies of weights, for example.
  virtual std::size_t kept_bytes() const { return 0; }
};

/// A parameter's identity and version: the key under which a GEMM may keep a packed copy of it.
struct WeightVersion {
  std::uint64_t id = 0;  ///< 0: not a parameter, pack nothing
  std::uint64_t version = 0;
};

/// A registered implementation, without its interface.
struct Implementation {
  std::string name;
  /// `auto` selects the supporting implementation with the highest speed: reference 0, teams 5 or on a device 18,
  /// kokkos 10, simd 15, onednn 20, avx512 25, or 15 on CPUs with AMX.
  int speed = 0;
  std::string origin;  ///< "built-in" or the plug-in's path
};

/// A registered implementation whose interface the registry of its operation knows.
struct AnyKernelEntry : Implementation {
  std::shared_ptr<Kernel> kernel;
};

template <class Interface>
struct KernelEntry : Implementation {
  std::shared_ptr<Interface> kernel;
};

template <class Interface>
struct ObservedSelection;

/// For problems without a timing_key of their own.
template <class Problem>
std::string timing_key(Problem const& problem) {
  return describe(problem);
}

}  // namespace heddle
