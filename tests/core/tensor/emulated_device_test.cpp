#include <csignal>
#include <heddle/core/operations/kernel_author.hpp>
#include <heddle/core/tensor/device_work.hpp>
#include <heddle/core/tensor/doubles.hpp>
#include <heddle/core/tensor/pack.hpp>
#include <heddle/core/tensor/uploaded_tensor.hpp>

#include "test.hpp"
#include "test_ids.hpp"

namespace heddle {
namespace {

// Outside of the class, whose protected functions a device's compiler takes no kernels from.
void add_one(Execution& execution, Tensor const& tensor) {
  auto* const elements = tensor.data<float>();
  kernels::for_each(
      execution, "add_one", tensor.size(), KOKKOS_LAMBDA(std::int64_t index) { elements[index] += 1; });
}

/// A device that the build emulates (HEDDLE_EMULATE_DEVICE).
class EmulatedDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (!device_work()) {
      GTEST_SKIP() << "only a build with HEDDLE_EMULATE_DEVICE (preset emulated-device) has such a device";
    }
    reset_device_work();
  }

  Arena scratch_;
  Execution execution_{Kokkos::DefaultExecutionSpace(), scratch_};
};

using EmulatedDeviceDeathTest = EmulatedDevice;

TEST_F(EmulatedDeviceDeathTest, TheHostCannotReadOrWriteItsMemory) {
  Tensor const tensor = Tensor::allocate(DType::float32, {3});
  Tensor const in_arena = scratch_.allocate(DType::float32, {3});
  add_one(execution_, tensor);
  EXPECT_EXIT(std::exit(tensor.data<float>()[0] > 0 ? 0 : 1), testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(tensor.data<float>()[0] = 0, testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(in_arena.data<float>()[2] = 0, testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(EmulatedDevice, KernelsAndCopiesReachItAndAreCounted) {
  Tensor const tensor = from_host<float>(std::vector<float>{1, 2, 3}, {3});
  Tensor const in_arena = scratch_.allocate(DType::float32, {1 << 20});
  EXPECT_EQ(tensor.space(), MemorySpace::device);
  add_one(execution_, tensor);
  add_one(execution_, tensor);
  add_one(execution_, in_arena);
  EXPECT_EQ(to_host<float>(tensor), (std::vector<float>{3, 4, 5}));
  fence(&execution_);
  DeviceWork const work = device_work().value();
  EXPECT_EQ(work.kernels, 3);
  EXPECT_EQ(work.copies_to_device, 1);
  EXPECT_EQ(work.copies_to_host, 1);
  EXPECT_EQ(work.fences, 1);
  EXPECT_EQ(work.allocations, 2);
}

TEST_F(EmulatedDevice, MemoryThatIsTakenAgainIsZero) {
  std::vector<void*> places;
  for (int round = 0; round < 2; ++round) {
    std::vector<Tensor> tensors;
    for (std::int64_t const size : {10, 5000, 1 << 20}) {
      tensors.push_back(Tensor::allocate(DType::float32, {size}));
      EXPECT_EQ(to_doubles(tensors.back()), std::vector<double>(static_cast<std::size_t>(size)));
      add_one(execution_, tensors.back());
    }
    places.push_back(tensors.front().raw());
  }
  EXPECT_EQ(places[0], places[1]);
}

TEST_F(EmulatedDevice, AnUploadIsOneCopyWithoutAWait) {
  UploadedTensor const uploaded(DType::int32, {4});
  EXPECT_EQ(uploaded.host().space(), MemorySpace::host);
  std::fill_n(uploaded.host().data<std::int32_t>(), 4, 7);
  reset_device_work();
  std::uint64_t const waits = waits_for_kernels();
  uploaded.upload(3);
  EXPECT_EQ(waits_for_kernels(), waits);
  EXPECT_EQ(device_work()->copies_to_device, 1);
  EXPECT_EQ(to_doubles(uploaded.tensor()), (std::vector<double>{7, 7, 7, 0}));
  EXPECT_EQ(waits_for_kernels(), waits + 1);
}

TEST_F(EmulatedDevice, ManyPacksWithoutAWaitUseTheirMemoryAgain) {
  PackFields tokens;
  fill_tokens(tokens, std::vector<Sample>{{0, {5, 6}, {7}}}, test_ids);
  PackMemory memory;
  for (int index = 0; index < 100; ++index) {
    Pack const pack = make_pack(tokens, {}, &memory);
    EXPECT_EQ(pack.target_rows.tokens, 2);
  }
  EXPECT_EQ(device_work()->copies_to_device, 100);
  EXPECT_EQ(device_work()->allocations, 32);
  EXPECT_EQ(device_work()->fences, 3);
}

TEST_F(EmulatedDevice, HostMemoryForTransfersIsUsedAgain) {
  void* const first = Tensor::allocate_on_host(DType::float32, {1000}).raw();
  EXPECT_EQ(Tensor::allocate_on_host(DType::float32, {1000}).raw(), first);
  Tensor const held = Tensor::allocate_on_host(DType::float32, {1000});
  EXPECT_NE(Tensor::allocate_on_host(DType::float32, {1000}).raw(), held.raw());
}

}  // namespace
}  // namespace heddle
