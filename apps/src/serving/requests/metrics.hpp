#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace heddle {

/// Counts of a server since its start.
class ServingMetrics {
 public:
  /// An answer; `path` is one of the server's own, or "other".
  void count_answer(std::string_view path, int status, std::chrono::duration<double> time);

  /// Numbers of the present.
  struct Present {
    std::int64_t connections = 0;
    std::int64_t waiting_texts = 0;
    std::int64_t computed_texts = 0;
    std::int64_t workers = 0;
  };
  /// The counts in the text format of Prometheus, version 0.0.4.
  std::string text(Present const& present) const;

  std::int64_t finished_texts = 0;
  std::int64_t restarted_workers = 0;
  std::int64_t refused_connections = 0;

 private:
  static constexpr std::array bounds = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0};

  std::map<std::pair<std::string, int>, std::int64_t> answers_;
  std::array<std::int64_t, bounds.size()> within_{};  ///< translations answered within each of the bounds
  std::int64_t translations_ = 0;
  double seconds_ = 0;
};

}  // namespace heddle
