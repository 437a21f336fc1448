#pragma once

#include <cstddef>
#include <cstdint>
#include <heddle/core/tensor/tensor.hpp>
#include <memory>
#include <string>

namespace heddle {

struct Execution;

/// A lower bound of the work of one or more calls. The planner, the pipeline cut and the observer use it.
struct Cost {
  double operations = 0;  ///< floating-point operations of matrix products; no others are counted
  double bytes = 0;       ///< minimum memory traffic: every operand once, operands that are added to twice

  Cost& operator+=(Cost const& other) {
    operations += other.operations;
    bytes += other.bytes;
    return *this;
  }
  friend Cost operator+(Cost a, Cost const& b) { return a += b; }
  friend Cost operator*(double times, Cost const& cost) { return {times * cost.operations, times * cost.bytes}; }
  bool operator==(Cost const&) const = default;
};

/// How near an implementation's results come to the exact ones. A check's tolerance depends on it (checks/check.hpp).
enum class Accuracy : std::uint8_t {
  exact,      ///< the exact result, rounded once to the result's dtype
  rounded,    ///< every step is rounded, operands at most to the dtype of the call
  quantised,  ///< operands are rounded to far fewer bits than they have
};

/// An implementation of one operation. The concrete interfaces (Gemm, Attention, …) define what a call computes. Every
/// call takes the Execution first, must not assume that the host can read memory, and synchronises no more than it
/// needs.
///
/// An interface is a class derived from Operation with
///   static constexpr char const* operation;            the operation's name, a key of [kernels]
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

  virtual Accuracy accuracy() const { return Accuracy::rounded; }
  /// True: `auto` never selects it, the configuration must name it.
  virtual bool only_by_name() const { return accuracy() == Accuracy::quantised; }
  /// Bytes that the kernel holds between calls: packed copies of weights, for example.
  virtual std::size_t kept_bytes() const { return 0; }
};

/// The base of the interfaces. CallProblem is everything that `supports` depends on.
template <class CallProblem>
class Operation : public Kernel {
 public:
  using Problem = CallProblem;
  /// Checked before an implementation is used: other calls are a programming error.
  virtual bool supports(Problem const& problem) const = 0;
};

/// A parameter's identity and version: the key under which a GEMM may keep a packed copy of it.
struct WeightVersion {
  std::uint64_t id = 0;  ///< 0: not a parameter, pack nothing
  std::uint64_t version = 0;
};

template <class Interface>
struct KernelEntry {
  std::string name;
  /// `auto` selects the supporting implementation with the highest speed: reference 0, teams 5 or on a device 18,
  /// kokkos 10, simd 15, onednn 20, amx 25, avx512 25, or 15 on CPUs with AMX.
  int speed = 0;
  std::string origin;  ///< "built-in" or the plug-in's path
  std::shared_ptr<Interface> kernel;
};
/// An implementation whose interface only the registry of its operation knows.
using Implementation = KernelEntry<Kernel>;

template <class Interface>
struct ObservedSelection;

/// For problems without a timing_key of their own.
template <class Problem>
std::string timing_key(Problem const& problem) {
  return describe(problem);
}

}  // namespace heddle
