#include "energy.hpp"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <heddle/core/base/readable.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "inspection/run/json_values.hpp"

namespace heddle {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

struct Answer {
  std::optional<std::int64_t> joules = {};
  std::string reason = {};  ///< why they are not known
};

/// The first line that a command of the shell writes, and its exit code.
struct ShellAnswer {
  std::string line;
  int code = 1;
};

ShellAnswer ask_shell(std::string const& command) {
  std::FILE* const output = ::popen(command.c_str(), "re");
  if (output == nullptr) {
    return {};
  }
  std::array<char, 256> line{};
  bool const any = std::fgets(line.data(), static_cast<int>(line.size()), output) != nullptr;
  int const status = ::pclose(output);
  std::string_view const text(line.data());
  return {std::string(any ? text.substr(0, text.find('\n')) : ""), WIFEXITED(status) ? WEXITSTATUS(status) : 1};
}

/// The joules of a step, by Slurm's accounting. `step` has nothing that the shell would read otherwise.
Answer ask_slurm(std::string const& step, std::chrono::milliseconds patience) {
  constexpr int not_found = 127;
  constexpr std::array too_late{124, 137};  // of `timeout`, which ends what a script has started, too
  double const seconds = std::chrono::duration<double>(patience).count();
  auto const [line, code] =
      ask_shell(fmt::format("timeout --kill-after=1 {} sacct -j {} --format=ConsumedEnergyRaw --noheader --parsable2 "
                            "< /dev/null 2> /dev/null",
                            seconds, step));
  if (code != 0) {
    return {std::nullopt, code == not_found ? std::string("sacct is not in PATH")
                          : std::ranges::find(too_late, code) != too_late.end()
                              ? fmt::format("sacct did not answer in {:g} s", seconds)
                              : "sacct failed"};
  }
  std::int64_t joules = 0;
  auto const [end, problem] = std::from_chars(line.data(), line.data() + line.size(), joules);
  if (problem != std::errc() || end != line.data() + line.size() || joules <= 0) {
    return {std::nullopt, fmt::format("sacct knows no energy of step {}", step)};
  }
  return {joules, ""};
}

/// The answer for the step that the report names.
Answer ask_for(boost::json::object const& slurm, std::chrono::milliseconds patience) {
  std::string_view const job = text_of(slurm, "job");
  std::string_view const step = text_of(slurm, "step");
  if (!is_number(job) || !is_number(step)) {
    return {std::nullopt, "the run was not started by srun, as a step of its own"};
  }
  return ask_slurm(fmt::format("{}.{}", job, step), patience);
}

/// The object there, or an empty one.
boost::json::object part_of(boost::json::object const& report, std::string_view key) {
  auto const* const part = object_of(report, key);
  return part == nullptr ? boost::json::object() : *part;
}

}  // namespace

void add_slurm_energy(boost::json::object& report, std::chrono::milliseconds patience) {
  auto const* const slurm = object_of(report, "slurm");
  boost::json::object const before = part_of(report, "energy");
  if (slurm == nullptr || number_of(before, "joules") > 0) {
    return;
  }
  Answer const answer = ask_for(*slurm, patience);
  boost::json::object energy{
      {"joules", nullptr}, {"joules_per_million_tokens", nullptr}, {"source", nullptr}, {"reason", nullptr}};
  if (answer.joules) {
    auto const joules = static_cast<double>(*answer.joules);
    energy["joules"] = joules;
    energy["source"] = fmt::format("Slurm's accounting of step {}.{}", text_of(*slurm, "job"), text_of(*slurm, "step"));
    if (double const tokens = number_of(part_of(report, "training"), "tokens"); tokens > 0) {
      energy["joules_per_million_tokens"] = 1e6 * joules / tokens;
    }
  } else {
    std::string_view const reason = text_of(before, "reason");
    energy["reason"] = fmt::format("{}{}{}", reason, reason.empty() ? "" : "; ", answer.reason);
  }
  report["energy"] = std::move(energy);
}

std::string describe_energy(boost::json::object const& report) {
  boost::json::object const energy = part_of(report, "energy");
  double const joules = number_of(energy, "joules");
  if (!(joules > 0)) {
    std::string_view const reason = text_of(energy, "reason");
    return fmt::format("unknown ({})", reason.empty() ? "this start has not ended" : reason);
  }
  double const rate = number_of(energy, "joules_per_million_tokens");
  return fmt::format("{} J{} ({})", readable_count(joules),
                     rate > 0 ? fmt::format(", {} J per million tokens", readable_decimal(rate, 1)) : "",
                     text_of(energy, "source"));
}

}  // namespace heddle
