#include "serving/requests/metrics.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>

namespace heddle {
namespace {

std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t all = 0;
  std::int64_t resident = 0;
  file >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

std::string one_value(std::string_view name, std::string_view kind, std::string_view help, std::int64_t value) {
  return fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", name, help, kind, value);
}

}  // namespace

void ServingMetrics::count_answer(std::string_view path, int status, std::chrono::duration<double> time) {
  ++answers_[{std::string(path), status}];
  if (path == "/v1/translate" && status == 200) {
    ++translations_;
    seconds_ += time.count();
    for (std::size_t index = 0; index < bounds.size(); ++index) {
      within_[index] += time.count() <= bounds[index] ? 1 : 0;
    }
  }
}

std::string ServingMetrics::text(Present const& present) const {
  std::string text =
      "# HELP heddle_http_answers_total Answers by path and status.\n# TYPE heddle_http_answers_total counter\n";
  for (auto const& [key, count] : answers_) {
    text += fmt::format("heddle_http_answers_total{{path=\"{}\",status=\"{}\"}} {}\n", key.first, key.second, count);
  }
  text +=
      "# HELP heddle_translate_seconds Time from a request's header to its answer.\n"
      "# TYPE heddle_translate_seconds histogram\n";
  for (std::size_t index = 0; index < bounds.size(); ++index) {
    text += fmt::format("heddle_translate_seconds_bucket{{le=\"{}\"}} {}\n", bounds[index], within_[index]);
  }
  text += fmt::format(
      "heddle_translate_seconds_bucket{{le=\"+Inf\"}} {0}\nheddle_translate_seconds_sum {1}\n"
      "heddle_translate_seconds_count {0}\n",
      translations_, seconds_);
  text += one_value("heddle_texts_total", "counter", "Texts that were translated.", finished_texts);
  text += one_value("heddle_texts_waiting", "gauge", "Texts that wait for a worker.", present.waiting_texts);
  text += one_value("heddle_texts_computing", "gauge", "Texts that workers have.", present.computed_texts);
  text += one_value("heddle_connections", "gauge", "Open connections.", present.connections);
  text +=
      one_value("heddle_connections_refused_total", "counter", "Connections beyond the limit.", refused_connections);
  text += one_value("heddle_workers", "gauge", "Workers that are ready.", present.workers);
  text += one_value("heddle_worker_restarts_total", "counter", "Workers that ended and were started again.",
                    restarted_workers);
  text += one_value("process_resident_memory_bytes", "gauge", "Memory of the process that serves.", resident_bytes());
  return text;
}

}  // namespace heddle
