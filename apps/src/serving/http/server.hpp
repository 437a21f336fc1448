#pragma once

#include <cstdint>
#include <heddle/core/base/error.hpp>

#include "serving/http/access.hpp"
#include "serving/requests/limits.hpp"
#include "serving/workers/served_models.hpp"
#include "serving/workers/worker.hpp"

namespace heddle {

struct ServerOptions {
  ServedModelOptions models = {};
  Access::Options access = {};
  std::uint16_t port = 8080;  ///< 0: any
  int threads = 0;            ///< as in processes_for
  WorkerOptions worker = {};
  ServingLimits limits = {};
};

/// Serves translations by HTTP until SIGTERM, SIGINT or SIGHUP, which let the requests that run finish. Prints the
/// address to the standard output as soon as requests are answered. Throws what opening the models throws, UsageError
/// for an address that cannot be used, and Error if a second signal ends it early, or requests do not end in time.
void serve(ServerOptions const& options);

}  // namespace heddle
