#include "energy.hpp"

#include <fmt/format.h>
#include <sys/wait.h>

#include <array>
#include <boost/json.hpp>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "report/json_text.hpp"

namespace heddle {
namespace {

/// The energy of a step, or the reason why it is not known.
struct Answer {
  std::int64_t joules = 0;  ///< 0: not known
  std::string reason = {};
};

/// Asks Slurm's accounting. `step` has no character that is special to the shell.
Answer ask_slurm(std::string const& step, std::chrono::milliseconds timeout) {
  constexpr int not_found = 127;
  double const seconds = std::chrono::duration<double>(timeout).count();
  std::string const command = fmt::format(
      "timeout --kill-after=1 {} sacct -j {} --format=ConsumedEnergyRaw --noheader --parsable2 "
      "< /dev/null 2> /dev/null",
      seconds, step);
  std::array<char, 256> output{};
  std::FILE* const pipe = ::popen(command.c_str(), "re");
  bool const any = pipe != nullptr && std::fgets(output.data(), static_cast<int>(output.size()), pipe) != nullptr;
  int const status = pipe != nullptr ? ::pclose(pipe) : -1;
  int const code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  if (code == not_found) {
    return {.reason = "sacct is not in PATH"};
  }
  if (code == 124 || code == 137) {  // of `timeout`, which kills processes that a script has started, too
    return {.reason = fmt::format("sacct did not answer in {:g} s", seconds)};
  }
  if (code != 0) {
    return {.reason = "sacct failed"};
  }
  std::string_view line(output.data());
  line = any ? line.substr(0, line.find('\n')) : "";
  std::int64_t joules = 0;
  auto const [end, problem] = std::from_chars(line.data(), line.data() + line.size(), joules);
  if (problem != std::errc() || end != line.data() + line.size() || joules <= 0) {
    return {.reason = fmt::format("sacct knows no energy of step {}", step)};
  }
  return {.joules = joules};
}

}  // namespace

void add_slurm_energy(boost::json::object& report, std::chrono::milliseconds timeout) {
  boost::json::object const& slurm = object_of(report, "slurm");
  boost::json::object const& before = object_of(report, "energy");
  if (slurm.empty() || number_of(before, "joules") > 0) {
    return;
  }
  std::string const step = fmt::format("{}.{}", text_of(slurm, "job"), text_of(slurm, "step"));
  bool const valid = !text_of(slurm, "job").empty() && !text_of(slurm, "step").empty() &&
                     step.find_first_not_of("0123456789.") == std::string::npos;
  Answer const answer =
      valid ? ask_slurm(step, timeout) : Answer{.reason = "the run was not started by srun, as a step of its own"};
  boost::json::object energy{
      {"joules", nullptr}, {"joules_per_million_tokens", nullptr}, {"source", nullptr}, {"reason", nullptr}};
  if (answer.joules > 0) {
    auto const joules = static_cast<double>(answer.joules);
    energy["joules"] = joules;
    energy["source"] = fmt::format("Slurm's accounting of step {}", step);
    if (double const tokens = number_of(object_of(report, "training"), "tokens"); tokens > 0) {
      energy["joules_per_million_tokens"] = 1e6 * joules / tokens;
    }
  } else {
    std::string_view const reason = text_of(before, "reason");
    energy["reason"] = fmt::format("{}{}{}", reason, reason.empty() ? "" : "; ", answer.reason);
  }
  report["energy"] = std::move(energy);
}

}  // namespace heddle
