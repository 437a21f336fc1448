#include "staging.hpp"

#include <exception>
#include <heddle/core/tensor/fence.hpp>

namespace heddle {

namespace {

class CopyBack final : public TransferBackend {
 public:
  CopyBack(std::unique_ptr<TransferBackend> transfer, Staged output)
      : output_(std::move(output)), transfer_(std::move(transfer)) {}

  ~CopyBack() override {
    if (!done_ && std::uncaught_exceptions() <= exceptions_at_start_) {
      try {
        wait();
      } catch (std::exception const&) {
        // The transfer failed, so its output is not read.
        done_ = true;
      }
    }
  }
  CopyBack(CopyBack const&) = delete;
  CopyBack& operator=(CopyBack const&) = delete;

  bool progress() override {
    if (!done_ && transfer_->progress()) {
      finish();
    }
    return done_;
  }
  void wait() override {
    if (!done_) {
      transfer_->wait();
      finish();
    }
  }

 private:
  void finish() {
    output_.copy_back();
    done_ = true;
  }

  Staged output_;
  std::unique_ptr<TransferBackend> transfer_;  ///< destroyed first: it may still write to the output
  int exceptions_at_start_ = std::uncaught_exceptions();
  bool done_ = false;
};

}  // namespace

Staged::Staged(Tensor const& tensor, Role role, CommunicatorBackend const& backend, Execution const* execution)
    : tensor_(tensor), staged_(tensor), role_(role) {
  if (tensor.space() == MemorySpace::host) {
    return;
  }
  if (backend.reads(tensor.space())) {
    fence(execution);
    return;
  }
  staged_ = Tensor::allocate_on_host(tensor.dtype(), tensor.shape());
  if (role != Role::output) {
    copy_to_host(staged_.raw(), tensor, execution);
  }
}

void Staged::copy_back() const {
  if (role_ != Role::input && copied()) {
    copy_from_host(tensor_, staged_.raw());
  }
}

std::unique_ptr<TransferBackend> with_copy_back(std::unique_ptr<TransferBackend> transfer, Staged const& output) {
  if (!output.copied()) {
    return transfer;
  }
  return std::make_unique<CopyBack>(std::move(transfer), output);
}

}  // namespace heddle
