#include "timed_communicator.hpp"

namespace heddle {

namespace {

class TimedTransfer : public TransferBackend {
 public:
  TimedTransfer(std::unique_ptr<TransferBackend> transfer, Stopwatch& watch)
      : transfer_(std::move(transfer)), watch_(watch) {}

  bool progress() override {
    return watch_.time([&] { return transfer_->progress(); });
  }
  void wait() override {
    watch_.time([&] { transfer_->wait(); });
  }

 private:
  std::unique_ptr<TransferBackend> transfer_;
  Stopwatch& watch_;
};

class TimedBackend : public CommunicatorBackend {
 public:
  TimedBackend(std::shared_ptr<CommunicatorBackend> inner, Stopwatch& watch)
      : inner_(std::move(inner)), watch_(watch) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  bool reads(MemorySpace space) const override { return inner_->reads(space); }
  std::unique_ptr<TransferBackend> run(CollectiveCall const& call) override {
    auto transfer = watch_.time([&] { return inner_->run(call); });
    return transfer == nullptr ? nullptr : std::make_unique<TimedTransfer>(std::move(transfer), watch_);
  }
  std::shared_ptr<CommunicatorBackend> split(int color, int key, std::string const& name) override {
    return std::make_shared<TimedBackend>(inner_->split(color, key, name), watch_);
  }

 private:
  std::shared_ptr<CommunicatorBackend> inner_;
  Stopwatch& watch_;
};

}  // namespace

Communicator timed(Communicator const& world, Stopwatch& watch) {
  return Communicator(std::make_shared<TimedBackend>(world.backend(), watch));
}

}  // namespace heddle
