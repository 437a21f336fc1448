#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "corpus/chunks.hpp"

namespace heddle {

/// Copies of this process, which share its memory until they write: one copy of a model's weights serves all. They
/// compute on one thread each, so that there may be one for each core.
class ForkedWorkers final : public ChunkWorkers {
 public:
  /// Starts the processes. This process must have one thread, and must not use MPI. Throws Error if that fails.
  ForkedWorkers(int count, ComputeChunk const& compute);
  /// Kills them.
  ~ForkedWorkers() override;
  ForkedWorkers(ForkedWorkers const&) = delete;
  ForkedWorkers& operator=(ForkedWorkers const&) = delete;

  bool wants_chunk() const override;
  void give(Chunk chunk) override;
  ChunkResult take(std::function<void()> const& refill) override;

 private:
  struct Child {
    pid_t process = -1;
    int socket = -1;
    std::size_t chunks = 0;  ///< that it has and has not returned
    std::string to_send = {};
    std::string received = {};
  };

  void start(ComputeChunk const& compute);
  /// Moves bytes to and from a child. Throws Error if it has ended.
  void send_to(Child& child);
  void receive_from(Child& child);
  [[noreturn]] void report_end(Child& child);

  std::vector<Child> children_;
};

}  // namespace heddle
