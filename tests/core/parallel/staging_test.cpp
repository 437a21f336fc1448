#include <cstring>
#include <heddle/core/parallel/communicator.hpp>

#include "test.hpp"

// Tensors that a backend cannot read, with a substitute for a device: host memory that is declared to be a device's.
namespace heddle {
namespace {

struct LateTransfer final : TransferBackend {
  explicit LateTransfer(std::function<void()> finish) : finish_(std::move(finish)) {}
  bool progress() override {
    if (looks_++ == 0) {
      return false;
    }
    finish_();
    return true;
  }
  void wait() override { finish_(); }

 private:
  std::function<void()> finish_;
  int looks_ = 0;
};

/// A group of two ranks, the other of which holds the same values. It records the memory of every tensor that it gets.
class TwinBackend final : public CommunicatorBackend {
 public:
  explicit TwinBackend(bool reads_devices) : reads_devices_(reads_devices) {}

  int rank() const override { return 0; }
  int size() const override { return 2; }
  bool reads(MemorySpace space) const override { return reads_devices_ || space == MemorySpace::host; }

  std::unique_ptr<TransferBackend> run(CollectiveCall const& call) override {
    if (call.collective == CollectiveOp::send) {
      note(call.input);
      message_ = call.input;
    }
    auto const finish = [this, collective = call.collective, input = call.input, output = call.output] {
      finish_call(collective, input, output);
    };
    if (call.starts) {
      return std::make_unique<LateTransfer>(finish);
    }
    finish();
    return nullptr;
  }
  std::shared_ptr<CommunicatorBackend> split(int /*color*/, int /*key*/, std::string const& /*name*/) override {
    return nullptr;
  }

  std::vector<void*> const& met_on_device() const { return met_on_device_; }

 private:
  void finish_call(CollectiveOp collective, Tensor const& input, Tensor const& output) {
    switch (collective) {
      case CollectiveOp::all_reduce:
      case CollectiveOp::reduce_scatter:
        return twice(input, output);
      case CollectiveOp::all_gather:
        return double_up(input, output);
      case CollectiveOp::all_to_all:
        return copy(input, output);
      case CollectiveOp::broadcast:
        return note(input);
      case CollectiveOp::receive:
        return copy(message_, output);
      case CollectiveOp::send:
      case CollectiveOp::barrier:
      case CollectiveOp::split:
        return;
    }
  }
  static float* floats(Tensor const& tensor) { return static_cast<float*>(tensor.raw()); }
  void note(Tensor const& tensor) {
    if (tensor.space() == MemorySpace::device) {
      met_on_device_.push_back(tensor.raw());
    }
  }
  void copy(Tensor const& from, Tensor const& to) {
    note(from);
    note(to);
    std::memmove(to.raw(), from.raw(), static_cast<std::size_t>(to.bytes()));
  }
  void twice(Tensor const& from, Tensor const& to) {
    copy(from, to);
    for (std::int64_t index = 0; index < to.size(); ++index) {
      floats(to)[index] *= 2;
    }
  }
  void double_up(Tensor const& from, Tensor const& to) {
    std::vector<float> const own(floats(from), floats(from) + from.size());
    note(from);
    note(to);
    std::memcpy(floats(to), own.data(), own.size() * sizeof(float));
    std::memcpy(floats(to) + own.size(), own.data(), own.size() * sizeof(float));
  }

  bool reads_devices_;
  Tensor message_;
  std::vector<void*> met_on_device_;
};

using Values = std::vector<float>;

Tensor device(Values& memory) {
  auto const count = static_cast<std::int64_t>(memory.size());
  return Tensor::borrow(memory.data(), DType::float32, {count}, MemorySpace::device);
}

/// Calls every collective on tensors of the substitute device and checks their results.
void check_collectives(Communicator const& group) {
  Values one{1, 2};
  Values four(4);
  group.all_reduce(device(one));
  EXPECT_EQ(one, (Values{2, 4}));
  group.start_all_reduce(device(one)).wait();
  EXPECT_EQ(one, (Values{4, 8}));
  group.all_gather(device(one), device(four));
  EXPECT_EQ(four, (Values{4, 8, 4, 8}));
  four = {1, 2, 3, 4};
  group.start_reduce_scatter(device(four), device(one)).wait();
  EXPECT_EQ(one, (Values{2, 4}));
  Transfer gather = group.start_all_gather(device(one), device(four));
  EXPECT_FALSE(gather.progress());
  EXPECT_EQ(four, (Values{1, 2, 3, 4})) << "it is not done yet";
  EXPECT_TRUE(gather.progress());
  EXPECT_EQ(four, (Values{2, 4, 2, 4}));
  Values other = four;
  std::vector<std::int64_t> const rows{1, 1};
  group.all_gather_rows(device(one).rows(0, 1), device(other).rows(0, 2), rows);
  EXPECT_EQ(other, (Values{2, 2, 2, 4}));
  group.reduce_scatter_rows(device(other).rows(0, 2), device(one).rows(0, 1), rows);
  EXPECT_EQ(one, (Values{4, 4}));
  group.all_to_all_rows(device(four).rows(1, 2), rows, device(other).rows(2, 2), rows);
  EXPECT_EQ(other, (Values{2, 2, 4, 2}));
  group.broadcast(device(one), 0);
  EXPECT_EQ(one, (Values{4, 4}));
}

TEST(StagingTest, TensorsThatABackendCannotReadPassThroughTheHostsMemory) {
  auto const backend = std::make_shared<TwinBackend>(false);
  Communicator const group(backend);
  check_collectives(group);
  EXPECT_TRUE(backend->met_on_device().empty());
}

TEST(StagingTest, MessagesPassThroughTheHostsMemory) {
  auto const backend = std::make_shared<TwinBackend>(false);
  Communicator const group(backend);
  Values sent{1, 2, 3};
  Values received(3);
  Transfer const send = group.start_send(device(sent), 1);
  sent = {0, 0, 0};  // it has been copied
  group.receive(device(received), 1);
  EXPECT_EQ(received, (Values{1, 2, 3}));
  received = {0, 0, 0};
  { Transfer const dropped = group.start_receive(device(received), 1); }
  EXPECT_EQ(received, (Values{1, 2, 3})) << "a transfer that is destroyed is waited for";
  EXPECT_TRUE(backend->met_on_device().empty());
}

TEST(StagingTest, TensorsThatABackendReadsAreGivenAsTheyAre) {
  auto const backend = std::make_shared<TwinBackend>(true);
  Communicator const group(backend);
  check_collectives(group);
  EXPECT_FALSE(backend->met_on_device().empty());
}

TEST(MemorySpaceTest, BelongsToTheTensorAndItsParts) {
  Values memory(6);
  Tensor const matrix = Tensor::borrow(memory.data(), DType::float32, {3, 2}, MemorySpace::device);
  for (Tensor const& part : {matrix, matrix.rows(1, 1), matrix.columns(0, 1), matrix.reshaped({6})}) {
    EXPECT_EQ(part.space(), MemorySpace::device);
  }
  EXPECT_EQ(Tensor::allocate(DType::float32, {3}).space(), kernel_memory_space());
  Tensor const on_host = Tensor::allocate_on_host(DType::float32, {3});
  EXPECT_EQ(on_host.space(), MemorySpace::host);
  EXPECT_EQ(on_host.shape(), Shape{3});
  EXPECT_FALSE(Tensor::allocate_on_host(DType::float32, {0}).empty());
}

}  // namespace
}  // namespace heddle
