#include "serving/workers/worker_pool.hpp"

#include <sys/wait.h>

#include <csignal>

#include "run/processes/forked_process.hpp"
#include "test.hpp"

namespace heddle {
namespace {

/// A worker that is ready and then stopped, as by SIGSTOP of its user.
void become_ready_and_stop(int socket) {
  send_to_parent(socket, to_bytes(WorkerMessage::models, 0, "{}"));
  ::raise(SIGSTOP);
}

TEST(WorkerPoolTest, EndsIdleWorkersThatAreStopped) {
  boost::asio::io_context context(1);
  RequestQueue queue(1);
  ServingMetrics metrics;
  auto const began = std::chrono::steady_clock::now();
  {
    WorkerPool const pool(
        context, {.count = 3, .body = become_ready_and_stop, .ready = [&](std::string const&) { context.stop(); }},
        queue, metrics);
    context.run();
    EXPECT_GE(pool.ready(), 1);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(1));
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a worker is left";
}

}  // namespace
}  // namespace heddle
