#include "energy.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <heddle/core/base/readable.hpp>
#include <optional>
#include <string_view>

#include "inspection/run/command_output.hpp"

namespace heddle {
namespace {

boost::json::object const* object_in(boost::json::object const& object, std::string_view key) {
  auto const* const value = object.if_contains(key);
  return value == nullptr ? nullptr : value->if_object();
}

/// A number above 0, which all that this file asks for are where they are known.
std::optional<double> number_in(boost::json::object const* object, std::string_view key) {
  auto const* const value = object == nullptr ? nullptr : object->if_contains(key);
  if (value == nullptr || !value->is_number() || !(value->to_number<double>() > 0)) {
    return std::nullopt;
  }
  return value->to_number<double>();
}

std::string text_in(boost::json::object const* object, std::string_view key) {
  auto const* const value = object == nullptr ? nullptr : object->if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

bool is_number(std::string const& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

struct Answer {
  std::optional<std::int64_t> joules = {};
  std::string reason = {};  ///< why they are not known
};

/// The joules of a step, by Slurm's accounting.
Answer ask_slurm(std::string const& step, std::chrono::milliseconds patience) {
  CommandOutput const output =
      output_of({"sacct", "-j", step, "--format=ConsumedEnergyRaw", "--noheader", "--parsable2"}, patience);
  if (!output.problem.empty()) {
    return {std::nullopt, output.problem};
  }
  std::string const line = output.text.substr(0, output.text.find('\n'));
  std::int64_t joules = 0;
  auto const [end, problem] = std::from_chars(line.data(), line.data() + line.size(), joules);
  if (problem != std::errc() || end != line.data() + line.size() || joules <= 0) {
    return {std::nullopt, fmt::format("sacct knows no energy of step {}", step)};
  }
  return {joules, ""};
}

/// The answer for the step that the report names.
Answer ask_for(boost::json::object const& slurm, std::chrono::milliseconds patience) {
  std::string const job = text_in(&slurm, "job");
  std::string const step = text_in(&slurm, "step");
  if (!is_number(job) || !is_number(step)) {
    return {std::nullopt, "the run was not started by srun, as a step of its own"};
  }
  return ask_slurm(fmt::format("{}.{}", job, step), patience);
}

}  // namespace

void add_slurm_energy(boost::json::object& report, std::chrono::milliseconds patience) {
  auto const* const slurm = object_in(report, "slurm");
  auto const* const before = object_in(report, "energy");
  if (slurm == nullptr || number_in(before, "joules")) {
    return;
  }
  Answer const answer = ask_for(*slurm, patience);
  boost::json::object energy{
      {"joules", nullptr}, {"joules_per_million_tokens", nullptr}, {"source", nullptr}, {"reason", nullptr}};
  if (answer.joules) {
    energy["joules"] = static_cast<double>(*answer.joules);
    energy["source"] = fmt::format("Slurm's accounting of step {}.{}", text_in(slurm, "job"), text_in(slurm, "step"));
    if (auto const tokens = number_in(object_in(report, "training"), "tokens")) {
      energy["joules_per_million_tokens"] = 1e6 * static_cast<double>(*answer.joules) / *tokens;
    }
  } else {
    std::string const reason = text_in(before, "reason");
    energy["reason"] = reason + (reason.empty() ? "" : "; ") + answer.reason;
  }
  report["energy"] = std::move(energy);
}

std::string describe_energy(boost::json::object const& report) {
  auto const* const energy = object_in(report, "energy");
  auto const joules = number_in(energy, "joules");
  if (!joules) {
    std::string const reason = text_in(energy, "reason");
    return fmt::format("unknown ({})", reason.empty() ? "this start has not ended" : reason);
  }
  auto const rate = number_in(energy, "joules_per_million_tokens");
  return fmt::format("{} J{} ({})", readable_count(*joules),
                     rate ? fmt::format(", {} J per million tokens", readable_decimal(*rate, 1)) : "",
                     text_in(energy, "source"));
}

}  // namespace heddle
