#pragma once

#include "decorated_backend.hpp"

namespace heddle {

/// Exchanges a header before each collective (its number, verb, elements, dtype, reduction or root, and row counts) and
/// throws Error on every rank of the group, naming the calls, if they are not the same. Messages have headers already.
class CheckedBackend final : public DecoratedBackend {
 public:
  CheckedBackend(std::shared_ptr<CommunicatorBackend> inner, NamedGroup group)
      : DecoratedBackend(std::move(inner)), group_(std::move(group)) {}

 protected:
  void before(VerbCall const& call) override;
  /// Throws Error on every rank unless each rank expects what each other one sends to it.
  void before_exchange(Counts send, Counts receive) override;
  void after() noexcept override {}
  std::unique_ptr<TransferBackend> around(VerbCall const& /*call*/,
                                          std::unique_ptr<TransferBackend> transfer) override {
    return transfer;
  }
  std::shared_ptr<CommunicatorBackend> decorate(std::shared_ptr<CommunicatorBackend> part, int /*color*/,
                                                std::string const& name) override {
    NamedGroup group = group_of(*part, group_.members[static_cast<std::size_t>(rank())], name);
    return std::make_shared<CheckedBackend>(std::move(part), std::move(group));
  }

 private:
  NamedGroup group_;
  std::int64_t calls_ = 0;  ///< collectives so far
};

}  // namespace heddle
