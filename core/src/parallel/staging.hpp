#pragma once

#include <heddle/core/parallel/communicator.hpp>
#include <memory>

namespace heddle {

/// A tensor as a backend can read it: itself, or a copy in host memory. Kernels that were given the tensor before are
/// done with it.
class Staged {
 public:
  enum class Role : std::uint8_t { input, output, both };

  /// Waits for the kernels of `execution`, all kernels where it is null; an input's elements are copied.
  Staged(Tensor const& tensor, Role role, CommunicatorBackend const& backend, Execution const* execution);

  Tensor const& tensor() const { return staged_; }
  bool copied() const { return staged_.raw() != tensor_.raw(); }
  /// Gives an output's elements back to the tensor. To be called once the verb is done.
  void copy_back() const;

 private:
  Tensor tensor_;
  Tensor staged_;
  Role role_;
};

/// `transfer` with an output that may be staged: it goes back when the transfer is done.
std::unique_ptr<TransferBackend> with_copy_back(std::unique_ptr<TransferBackend> transfer, Staged const& output);

}  // namespace heddle
