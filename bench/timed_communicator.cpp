#include "timed_communicator.hpp"

namespace heddle {

namespace {

class TimedTransfer : public TransferBackend {
 public:
  TimedTransfer(Transfer transfer, Stopwatch& watch) : transfer_(std::move(transfer)), watch_(watch) {}

  bool progress() override {
    return watch_.time([&] { return transfer_.progress(); });
  }
  void wait() override {
    watch_.time([&] { transfer_.wait(); });
  }

 private:
  Transfer transfer_;
  Stopwatch& watch_;
};

Tensor flat(Tensor const& tensor) {
  return tensor.reshaped({tensor.size()});
}

class TimedCommunicator : public CommunicatorBackend {
 public:
  TimedCommunicator(Communicator communicator, Stopwatch& watch)
      : communicator_(std::move(communicator)), watch_(watch) {}

  int rank() const override { return communicator_.rank(); }
  int size() const override { return communicator_.size(); }

  void all_reduce(Tensor const& tensor, ReduceOp op) override {
    watch_.time([&] { communicator_.all_reduce(tensor, op); });
  }
  void reduce_scatter(Tensor const& input, Tensor const& output, ReduceOp op) override {
    watch_.time([&] { communicator_.reduce_scatter(input, output, op); });
  }
  void all_gather(Tensor const& input, Tensor const& output) override {
    watch_.time([&] { communicator_.all_gather(input, output); });
  }
  void all_to_all(Tensor const& input, Tensor const& output) override {
    watch_.time([&] { communicator_.all_to_all(input, output); });
  }
  // Elements are rows of a vector.
  void reduce_scatter_uneven(Tensor const& input, Tensor const& output, Counts counts) override {
    watch_.time([&] { communicator_.reduce_scatter_rows(flat(input), flat(output), counts); });
  }
  void all_gather_uneven(Tensor const& input, Tensor const& output, Counts counts) override {
    watch_.time([&] { communicator_.all_gather_rows(flat(input), flat(output), counts); });
  }
  void all_to_all_uneven(Tensor const& input, Counts send_counts, Tensor const& output,
                         Counts receive_counts) override {
    watch_.time([&] { communicator_.all_to_all_rows(flat(input), send_counts, flat(output), receive_counts); });
  }
  void broadcast(Tensor const& tensor, int root) override {
    watch_.time([&] { communicator_.broadcast(tensor, root); });
  }
  void receive(Tensor const& tensor, int source, int tag) override {
    watch_.time([&] { communicator_.receive(tensor, source, tag); });
  }
  void barrier() override {
    watch_.time([&] { communicator_.barrier(); });
  }
  std::unique_ptr<TransferBackend> start_send(Tensor const& tensor, int destination, int tag) override {
    return transfer([&] { return communicator_.start_send(tensor, destination, tag); });
  }
  std::unique_ptr<TransferBackend> start_receive(Tensor const& tensor, int source, int tag) override {
    return transfer([&] { return communicator_.start_receive(tensor, source, tag); });
  }
  std::unique_ptr<TransferBackend> start_all_gather(Tensor const& input, Tensor const& output) override {
    return transfer([&] { return communicator_.start_all_gather(input, output); });
  }
  std::unique_ptr<TransferBackend> start_all_reduce(Tensor const& tensor, ReduceOp op) override {
    return transfer([&] { return communicator_.start_all_reduce(tensor, op); });
  }
  std::unique_ptr<TransferBackend> start_reduce_scatter(Tensor const& input, Tensor const& output,
                                                        ReduceOp op) override {
    return transfer([&] { return communicator_.start_reduce_scatter(input, output, op); });
  }
  std::shared_ptr<CommunicatorBackend> split(int color, int key, std::string const& name) override {
    return std::make_shared<TimedCommunicator>(communicator_.split(color, key, name), watch_);
  }

 private:
  template <class Start>
  std::unique_ptr<TransferBackend> transfer(Start const& start) {
    return std::make_unique<TimedTransfer>(watch_.time(start), watch_);
  }

  Communicator communicator_;
  Stopwatch& watch_;
};

}  // namespace

Communicator timed(Communicator const& communicator, Stopwatch& watch) {
  return Communicator(std::make_shared<TimedCommunicator>(communicator, watch));
}

}  // namespace heddle
