#pragma once

#include <chrono>
#include <cstdint>

#include "serving/workers/served_models.hpp"

namespace heddle {

struct WorkerOptions {
  std::int64_t batch_tokens = 4096;             ///< as in GenerationOptions
  std::chrono::milliseconds latency_budget{5};  ///< that a text may wait for others, to enter a running batch with them
};

/// A worker: translates the texts that come from the socket (WorkerMessage) until it is closed. Texts enter
/// running batches between token steps, and each result is sent as soon as it is there.
void run_worker(int socket, ServedModels const& models, WorkerOptions const& options);

}  // namespace heddle
