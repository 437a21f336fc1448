#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <iostream>

#include "command_line/options.hpp"
#include "commands.hpp"
#include "doctor/examination.hpp"

namespace heddle {
namespace {

CommandSyntax doctor_syntax(ExaminedPlaces& places) {
  namespace po = boost::program_options;
  CommandSyntax syntax;
  syntax.name = "doctor";
  syntax.usage = "[DIRECTORY]";
  syntax.summary =
      "Shows what training finds on this machine: MPI, the processor, threads, memory, files and Slurm; what is "
      "likely\n"
      "to hurt it, and how to fix that. DIRECTORY is where runs would be made (default: here). Run it in a job, too:\n"
      "a compute node may differ from a login node.";
  syntax.options.add_options()(
      "directory", po::value<std::string>()->value_name("DIRECTORY")->notifier([&places](std::string const& directory) {
        places.directory = directory;
      }),
      "where runs would be made");
  syntax.positional.add("directory", 1);
  return syntax;
}

}  // namespace

int run_doctor(Arguments const& arguments) {
  ExaminedPlaces places;
  if (!parse_options(doctor_syntax(places), arguments)) {
    return static_cast<int>(ExitCode::done);
  }
  std::vector<Finding> const findings = examine(places);
  for (Finding const& finding : findings) {
    char const* const verdict = finding.kind == Finding::Kind::good    ? "ok"
                                : finding.kind == Finding::Kind::hurts ? "HURTS"
                                                                       : "?";
    std::cout << fmt::format("{:<6} {:<14} {}\n", verdict, finding.subject, finding.found);
    if (!finding.remedy.empty()) {
      std::cout << fmt::format("{:<6} {:<14} -> {}\n", "", "", finding.remedy);
    }
  }
  auto const hurting = std::ranges::count(findings, Finding::Kind::hurts, &Finding::kind);
  std::cout << (hurting == 0 ? std::string("Nothing was found that hurts.\n")
                             : fmt::format("{} of {} hurt.\n", hurting, findings.size()));
  return static_cast<int>(ExitCode::done);
}

}  // namespace heddle
