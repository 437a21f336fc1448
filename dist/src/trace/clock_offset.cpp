#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/trace/trace_file.hpp>
#include <limits>

namespace heddle {

namespace {

constexpr int exchanges = 8;

/// On rank 0: asks `rank` for its time. The answer was given about half-way between question and answer.
std::int64_t offset_of(Communicator const& world, int rank) {
  std::int64_t offset = 0;
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
  for (int exchange = 0; exchange < exchanges; ++exchange) {
    std::int64_t const asked = StepTrace::now();
    send_value(world, asked, rank);
    auto const answered = receive_value<std::int64_t>(world, rank);
    std::int64_t const took = StepTrace::now() - asked;
    if (took < shortest) {
      shortest = took;
      offset = answered - (asked + took / 2);
    }
  }
  send_value(world, offset, rank);
  return offset;
}

std::int64_t answer(Communicator const& world) {
  for (int exchange = 0; exchange < exchanges; ++exchange) {
    receive_value<std::int64_t>(world, 0);
    send_value(world, StepTrace::now(), 0);
  }
  return receive_value<std::int64_t>(world, 0);
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
