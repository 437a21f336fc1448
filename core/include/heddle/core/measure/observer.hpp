#pragma once

#include <functional>
#include <heddle/core/operations/registry.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// A call that a layer makes of a kernel, and how to make it. What `make` holds is its own: it can be kept and called
/// again while the call's tensors have their memory.
struct KernelCall {
  /// One way to make the call.
  struct Implementation {
    std::string name;
    int speed = 0;  ///< KernelRegistry::Entry's
    std::function<void()> make;
  };

  std::string_view operation;      ///< "gemm"
  std::string_view direction;      ///< the method; of a GEMM, which of a Linear's products it is: "input gradient"
  std::string_view variant;        ///< what else it does or leaves out, "" or for example "added"
  std::string extents;             ///< on how much: "4096 x 512 x 2048"
  std::string_view key;            ///< timing_key of the problem that the layer selected by
  std::string_view by_speed;       ///< what `auto` takes for that problem without times
  DType dtype = DType::float32;    ///< of the activations
  double flops = 0;                ///< of matrix products; nothing else counts
  double bytes = 0;                ///< moved at the least: every operand once, what is added to twice
  GemmCall const* gemm = nullptr;  ///< of a GEMM

  std::function<void()> make;  ///< by what the layer selected
  /// All that support both the call and the problem that the layer selected by, the fastest by speed first. To be
  /// asked while the call is observed.
  std::function<std::vector<Implementation>()> implementations;
};

/// Who is told of every call.
class KernelObserver {
 public:
  virtual ~KernelObserver() = default;
  /// Has to make the call, by call.make at the end; what other implementations are made to do before that changes the
  /// results where a call reads what it writes.
  virtual void observe(Execution& execution, KernelCall const& call) = 0;
};

/// What is selected from `registries` from now on tells each call to `observer`, which must outlive it. Implementations
/// registered later are not among KernelCall::implementations.
void observe_kernels(KernelRegistries& registries, KernelObserver& observer);

}  // namespace heddle
