#include <array>
#include <cstring>
#include <heddle/dist/trace/trace_file.hpp>
#include <limits>

namespace heddle {

namespace {

constexpr int exchanges = 8;

/// A number as the elements that every communicator moves.
class Message {
 public:
  Tensor tensor() { return Tensor::borrow(words_.data(), DType::int32, {2}, MemorySpace::host); }
  void set(std::int64_t value) { std::memcpy(words_.data(), &value, sizeof value); }
  std::int64_t get() const {
    std::int64_t value = 0;
    std::memcpy(&value, words_.data(), sizeof value);
    return value;
  }

 private:
  std::array<std::int32_t, 2> words_{};
};

/// On rank 0: asks `rank` for its time. The answer was given about half-way between question and answer.
std::int64_t offset_of(Communicator const& world, int rank) {
  std::int64_t offset = 0;
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
  for (int exchange = 0; exchange < exchanges; ++exchange) {
    Message message;
    std::int64_t const asked = StepTrace::now();
    world.send(message.tensor(), rank);
    world.receive(message.tensor(), rank);
    std::int64_t const took = StepTrace::now() - asked;
    if (took < shortest) {
      shortest = took;
      offset = message.get() - (asked + took / 2);
    }
  }
  Message result;
  result.set(offset);
  world.send(result.tensor(), rank);
  return offset;
}

std::int64_t answer(Communicator const& world) {
  Message message;
  for (int exchange = 0; exchange < exchanges; ++exchange) {
    world.receive(message.tensor(), 0);
    message.set(StepTrace::now());
    world.send(message.tensor(), 0);
  }
  world.receive(message.tensor(), 0);
  return message.get();
}

}  // namespace

std::int64_t clock_offset(Communicator const& world) {
  if (world.rank() != 0) {
    return answer(world);
  }
  for (int rank = 1; rank < world.size(); ++rank) {
    offset_of(world, rank);
  }
  return 0;
}

}  // namespace heddle
