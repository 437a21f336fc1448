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
      "Checks what training needs on this machine: MPI, the processor, threads, memory, files and Slurm. Each line\n"
      "with FAILED or WARNING is followed by the remedy. DIRECTORY is where runs would be made (default: here). Run "
      "it\n"
      "in a job, too: a compute node may differ from a login node.\n\n"
      "Exit codes: 0 no check failed, there may be warnings; 1 a check failed.";
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
  std::cout << describe(findings);
  return static_cast<int>(exit_code_of(findings));
}

}  // namespace heddle
