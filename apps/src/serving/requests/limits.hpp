#pragma once

#include <chrono>
#include <cstdint>

namespace heddle {

/// The bounds within which a server accepts requests.
struct ServingLimits {
  static constexpr std::uint32_t header_bytes = 8192;

  std::int64_t body_bytes = std::int64_t{1} << 20;       ///< of a request
  std::int64_t all_body_bytes = std::int64_t{64} << 20;  ///< of all requests at a time
  std::int64_t texts = 1024;                             ///< of a request, and lines of all its texts
  std::int64_t text_bytes = 8192;                        ///< of a line of a text
  std::int64_t beam_size = 16;
  std::int64_t connections = 256;
  std::int64_t queue = 4096;                  ///< lines of texts that wait for a worker
  std::chrono::milliseconds timeout{60'000};  ///< until a request is answered, from when it was received
  std::chrono::milliseconds client{20'000};   ///< in which a client must send a request, or receive its answer
  std::chrono::milliseconds stop{30'000};     ///< in which requests that run may finish after SIGTERM, SIGINT or SIGHUP
};

}  // namespace heddle
