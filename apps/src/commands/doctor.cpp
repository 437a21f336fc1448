#include <heddle/core/base/error.hpp>
#include <heddle/core/tensor/runtime.hpp>
#include <iostream>

#include "command_line/options.hpp"
#include "command_line/ranks.hpp"
#include "commands/commands.hpp"
#include "doctor/cluster.hpp"
#include "doctor/examination.hpp"

namespace heddle {
namespace {

CommandSyntax doctor_syntax(ExaminedPaths& places, bool& cluster) {
  CommandSyntax syntax;
  syntax.name = "doctor";
  syntax.usage =
      "[DIRECTORY]\n"
      "   or: mpirun|srun ... heddle doctor --cluster [DIRECTORY]";
  syntax.summary = R"(Checks what training needs on this machine: MPI, the processor, threads, memory, files and
Slurm. Each line with FAILED or WARNING is followed by a fix. DIRECTORY is where runs would be made
(default: here). Run it in a job, too: a compute node may differ from a login node.

With --cluster all ranks of a job examine their hosts together: the cores of each rank, messages between
hosts, DIRECTORY as each host sees it, clocks, and what differs between hosts.

Exit codes: 0 no check failed, there may be warnings; 1 a check failed.)";
  syntax.options.add_options()("directory", without_default(places.directory, "DIRECTORY"),
                               "where runs would be made")  //
      ("cluster", boost::program_options::bool_switch(&cluster),
       "examine all hosts of this job together; every rank is started with it");
  syntax.positional.add("directory", 1);
  return syntax;
}

/// Prints the findings on rank 0, which alone ends with their exit code.
ExitCode examine_job(MpiSession const* session, std::filesystem::path const& directory) {
  if (session == nullptr) {
    throw UsageError("doctor: --cluster examines a job: start it on every rank, mpirun -np N heddle doctor --cluster");
  }
  Runtime const runtime;
  ClusterExamination const examination = examine_cluster(session->world(), directory);
  if (session->world().rank() > 0) {
    return ExitCode::done;
  }
  std::cout << examination.ranks << describe(examination.findings) << std::flush;
  return exit_code_of(examination.findings);
}

}  // namespace

ExitCode run_doctor(Arguments const& arguments) {
  ExaminedPaths places;
  bool cluster = false;
  parse_options(doctor_syntax(places, cluster), arguments);
  if (cluster) {
    return run_on_ranks([&](MpiSession const* session) { return examine_job(session, places.directory); });
  }
  std::vector<Finding> const findings = examine(places);
  std::cout << describe(findings);
  return exit_code_of(findings);
}

}  // namespace heddle
