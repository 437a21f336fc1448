#pragma once

#include <heddle/core/parallel/communicator.hpp>
#include <memory>

namespace heddle {

/// A tensor in memory that a backend can read: itself, or a copy in host memory. Earlier kernels that use it have
/// finished.
class Staged {
 public:
  enum class Role : std::uint8_t { input, output, both };

  /// Waits for the kernels of `execution`, for all kernels if it is null, except where it is a copy for output; then
  /// copies an input's elements.
  Staged(Tensor const& tensor, Role role, CommunicatorBackend const& backend, Execution const* execution);

  Tensor const& tensor() const { return staged_; }
  bool copied() const { return staged_.raw() != tensor_.raw(); }
  /// Copies an output's elements back to the tensor. Call it once the verb is done.
  void copy_back() const;

 private:
  Tensor tensor_;
  Tensor staged_;
  Role role_;
};

/// `transfer` with an output that may be staged: the output is copied back when the transfer is done.
std::unique_ptr<TransferBackend> with_copy_back(std::unique_ptr<TransferBackend> transfer, Staged const& output);

}  // namespace heddle
