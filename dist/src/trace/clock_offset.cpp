#include <cstdlib>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/dist/trace/trace_file.hpp>
#include <limits>

namespace heddle {

namespace {

constexpr int exchanges = 8;

/// On rank 0: asks `rank` for its time. The answer was given between question and answer, so that half of their
/// distance bounds the error: milliseconds where more processes run than cores. Two ranks of one machine read the same
/// clock, and clocks of two machines differ by more than that: an offset that may be 0 is 0.
void find_offset_of(Communicator const& world, int rank, Clock const& now) {
  std::int64_t offset = 0;
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
  for (int exchange = 0; exchange < exchanges; ++exchange) {
    std::int64_t const asked = now();
    send_value(world, asked, rank);
    auto const answered = receive_value<std::int64_t>(world, rank);
    std::int64_t const took = now() - asked;
    if (took < shortest) {
      shortest = took;
      offset = answered - (asked + took / 2);
    }
  }
  send_value(world, 2 * std::abs(offset) <= shortest + 1 ? std::int64_t{0} : offset, rank);
}

std::int64_t answer(Communicator const& world, Clock const& now) {
  for (int exchange = 0; exchange < exchanges; ++exchange) {
    receive_value<std::int64_t>(world, 0);
    send_value(world, now(), 0);
  }
  return receive_value<std::int64_t>(world, 0);
}

}  // namespace

std::int64_t clock_offset(Communicator const& world, Clock const& now) {
  if (world.rank() != 0) {
    return answer(world, now);
  }
  for (int rank = 1; rank < world.size(); ++rank) {
    find_offset_of(world, rank, now);
  }
  return 0;
}

}  // namespace heddle
