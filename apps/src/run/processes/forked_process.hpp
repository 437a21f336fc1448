#pragma once

#include <sys/types.h>

#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace heddle {

/// A copy of this process, which shares its memory until one of the two writes, and a stream socket to it.
struct ForkedProcess {
  pid_t process = -1;
  int socket = -1;
};

/// Whether kernels compute with threads of their own: a copy of a process that has computed would not have them.
bool kernels_have_threads();

/// The number of processes for an option --threads N, 0 for one for each core: one where kernels have threads. Throws
/// UsageError for a negative number.
int processes_for(int threads);

/// Starts a copy of this process that calls `run` with its end of the socket, and then ends without destructors: what
/// they would end belongs to this process. `run` must not throw; this process must have one thread, and must not use
/// MPI. Of the files above the standard error the copy has only the socket, and it is killed when this process ends.
/// Throws Error if that fails.
ForkedProcess fork_process(std::function<void(int socket)> const& run);

/// Sends all bytes to the other process; ends this process if the other one has ended.
void send_to_parent(int socket, std::string_view bytes);

/// Waits for the end of a process that was started here: "was killed by signal 9", "ended with 1".
std::string wait_for_end(pid_t process);

/// Kills processes that were started here, stopped ones as well, and waits until they have ended; after a second no
/// longer: one that waits for a device or a file system cannot be killed.
void kill_processes(std::span<pid_t const> processes);

}  // namespace heddle
