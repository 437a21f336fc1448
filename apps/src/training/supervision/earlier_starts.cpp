#include "earlier_starts.hpp"

#include <algorithm>
#include <cstdlib>
#include <heddle/core/base/parse_number.hpp>
#include <string>
#include <string_view>

namespace heddle {

namespace {

constexpr char const* restarts_name = "HEDDLE_RESTARTS";

/// The number in a variable of the environment; 0 where there is none.
std::int64_t number_in(char const* name) {
  char const* const value = std::getenv(name);
  return std::max<std::int64_t>(parse_number<std::int64_t>(value == nullptr ? "" : value).value_or(0), 0);
}

}  // namespace

std::int64_t slurm_requeues() {
  return number_in("SLURM_RESTART_COUNT");
}

std::int64_t earlier_starts() {
  return slurm_requeues() + number_in(restarts_name);
}

void count_restart() {
  setenv(restarts_name, std::to_string(number_in(restarts_name) + 1).c_str(), 1);
}

bool job_requeues_itself() {
  return number_in("HEDDLE_REQUEUES") > 0;
}

}  // namespace heddle
