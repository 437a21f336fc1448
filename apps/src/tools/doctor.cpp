#include <heddle/core/base/error.hpp>
#include <iostream>

#include "command_line/options.hpp"
#include "commands/commands.hpp"
#include "doctor/examination.hpp"

namespace heddle {
namespace {

CommandSyntax doctor_syntax(ExaminedPlaces& places) {
  CommandSyntax syntax;
  syntax.name = "doctor";
  syntax.usage = "[DIRECTORY]";
  syntax.summary = R"(Checks what training needs on this machine: MPI, the processor, threads, memory, files and
Slurm. Each line with FAILED or WARNING is followed by a fix. DIRECTORY is where runs would be made
(default: here). Run it in a job, too: a compute node may differ from a login node.

Exit codes: 0 no check failed, there may be warnings; 1 a check failed.)";
  syntax.options.add_options()("directory", without_default(places.directory, "DIRECTORY"), "where runs would be made");
  syntax.positional.add("directory", 1);
  return syntax;
}

}  // namespace

ExitCode run_doctor(Arguments const& arguments) {
  ExaminedPlaces places;
  parse_options(doctor_syntax(places), arguments);
  std::vector<Finding> const findings = examine(places);
  std::cout << describe(findings);
  return exit_code_of(findings);
}

}  // namespace heddle
