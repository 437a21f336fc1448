#include "examination.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <heddle/core/base/cpu_level.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/core/tensor/runtime.hpp>
#include <heddle/dist/mpi/mpi.hpp>
#include <heddle/dist/planning/available_memory.hpp>
#include <heddle/io/files/file_lock.hpp>
#include <heddle/io/text/text.hpp>
#include <heddle/kernels/register.hpp>
#include <optional>
#include <sstream>
#include <system_error>

#include "host_facts.hpp"
#include "run/processes/binding.hpp"
#include "run/processes/program_answer.hpp"

namespace heddle {

namespace {

namespace fs = std::filesystem;

constexpr double gibibyte = 1 << 30;

Finding good(std::string found) {
  return {.kind = Finding::Kind::good, .found = std::move(found)};
}
Finding failed(std::string found, std::string fix) {
  return {.kind = Finding::Kind::failed, .found = std::move(found), .fix = std::move(fix)};
}
Finding warning(std::string found, std::string fix) {
  return {.kind = Finding::Kind::warning, .found = std::move(found), .fix = std::move(fix)};
}
Finding unknown(std::string found) {
  return {.kind = Finding::Kind::unknown, .found = std::move(found)};
}

constexpr std::array kind_words{"ok", "FAILED", "WARNING", "?"};

std::optional<std::string> variable(char const* name) {
  char const* const value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::optional<std::string> first_line(fs::path const& path) {
  std::ifstream file(path);
  std::string line;
  return std::getline(file, line) ? std::optional(line) : std::nullopt;
}

/// The path of a program, if PATH has it.
std::optional<fs::path> program(std::string const& name) {
  std::istringstream directories(variable("PATH").value_or(""));
  for (std::string directory; std::getline(directories, directory, ':');) {
    if (fs::path path = fs::path(directory) / name; access(path.c_str(), X_OK) == 0) {
      return path;
    }
  }
  return std::nullopt;
}

/// Programs of other systems that answer at once, where they work at all.
constexpr std::chrono::seconds patience{10};

Finding launcher() {
  std::string const library = mpi_library();
  if (auto const path = program("mpirun")) {
    // Ranks of one MPI that another one's mpirun starts do not find each other: each would be rank 0 of 1.
    bool const of_open_mpi = ask_program("mpirun --version", patience).output.find("Open MPI") != std::string::npos;
    if (of_open_mpi != library.starts_with("Open MPI")) {
      return failed(fmt::format("{}, but {} starts ranks of {}", library, path->string(),
                                of_open_mpi ? "Open MPI" : "another MPI"),
                    "load the module of the MPI that Heddle was built with, or start ranks by its mpiexec or by srun");
    }
    if (library.starts_with("Open MPI") && ::geteuid() == 0 && !variable("OMPI_ALLOW_RUN_AS_ROOT")) {
      return warning(fmt::format("{}; its mpirun refuses to run as root", library),
                     "run as another user, or in a container export OMPI_ALLOW_RUN_AS_ROOT=1 "
                     "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1");
    }
    return good(fmt::format("{}; mpirun is {}", library, path->string()));
  }
  if (program("srun")) {
    return good(fmt::format("{}; started by srun, as there is no mpirun", library));
  }
  return failed(fmt::format("{}; there is neither mpirun nor srun in PATH", library),
                "load the module of the MPI that Heddle was built with");
}

Finding processor() {
  CpuLevel const detected = detected_cpu_level();
  CpuLevel const usable = usable_cpu_level();
  std::string const found = describe_instruction_sets(usable);
  if (usable < detected) {
    return warning(fmt::format("{}, but it has {}", found, name_of(detected)), "unset HEDDLE_CPU_LEVEL");
  }
  return good(found);
}

Finding threads() {
  std::size_t const cores = own_cores().size();
  std::string const space = Runtime::execution_space();
  auto const wanted = variable("OMP_NUM_THREADS");
  if (space == "Serial" && wanted.value_or("") != "1") {
    return warning(fmt::format("Kokkos is {}: one rank a core is fastest; OMP_NUM_THREADS is {}, so oneDNN uses {} "
                               "threads in each rank; {} cores are usable",
                               space, wanted.value_or("not set"), wanted.value_or("all cores as"), cores),
                   "export OMP_NUM_THREADS=1, and start one rank per core");
  }
  return good(fmt::format("Kokkos is {}, OMP_NUM_THREADS is {}, {} cores are usable", space, wanted.value_or("not set"),
                          cores));
}

Finding binding() try {
  NodeTopology const node = node_topology();
  auto const policy = variable("OMPI_MCA_hwloc_base_binding_policy");
  if (policy == "none" && own_cores().size() > 1) {
    return warning("OMPI_MCA_hwloc_base_binding_policy is none: ranks move between cores",
                   "unset it, unless several jobs share this machine");
  }
  if (!policy && node.domains() > 1 && mpi_library().starts_with("Open MPI")) {
    BindingProposal const proposal = propose_binding(static_cast<int>(node.cores.size()), node);
    return warning(
        fmt::format("{}, to which mpirun deals more than two ranks in turn: neighbours are in different ones",
                    describe(node)),
        fmt::format("mpirun {} (heddle plan prints the line for fewer ranks)", proposal.mpirun));
  }
  return good(fmt::format("{}; {}", describe(node),
                          policy ? fmt::format("ranks are bound by {}", *policy) : "the launcher binds ranks"));
} catch (Error const& error) {
  return failed(error.what(), "unset the variable that names another node's topology");
}

Finding huge_pages(fs::path const& root) {
  auto const setting = first_line(root / "sys/kernel/mm/transparent_hugepage/enabled");
  if (!setting) {
    return unknown("the system does not say");
  }
  if (setting->find("[never]") != std::string::npos) {
    return warning("off: tensors take more misses of address translation",
                   "ask for /sys/kernel/mm/transparent_hugepage/enabled = madvise");
  }
  return good(*setting);
}

Finding memory(fs::path const& root) {
  AvailableMemory const available = available_memory(root);
  if (available.host == AvailableMemory::unlimited) {
    return unknown("the system does not say what is available");
  }
  std::string found =
      fmt::format("{} GiB are available", readable_decimal(static_cast<double>(available.host) / gibibyte, 1));
  if (available.group != AvailableMemory::unlimited) {
    found += fmt::format(", {} GiB in the control group {}",
                         readable_decimal(static_cast<double>(available.group) / gibibyte, 1), available.group_name);
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    return warning(fmt::format("{}; ulimit -v is {} GiB", found,
                               readable_decimal(static_cast<double>(limit.rlim_cur) / gibibyte, 1)),
                   "ulimit -v unlimited: arenas reserve address space that they do not fill");
  }
  return good(found);
}

Finding shared_memory(fs::path const& directory) {
  std::error_code error;
  fs::space_info const space = fs::space(directory, error);
  if (error) {
    return failed(fmt::format("{}: {}", directory.string(), error.message()),
                  "ranks of one host exchange messages there: mount a tmpfs");
  }
  constexpr std::uintmax_t enough = std::uintmax_t{256} << 20;
  std::string const found = fmt::format("{} has {} GiB free", directory.string(),
                                        readable_decimal(static_cast<double>(space.available) / gibibyte, 1));
  return space.available < enough
             ? warning(found, "in a container --shm-size=1g or more: messages between ranks go through it")
             : good(found);
}

/// The file system's kind, as statfs numbers it, if it is one that matters.
std::string network_file_system(fs::path const& directory) {
  struct Known {
    unsigned long number;
    char const* name;
  };
  constexpr Known known[] = {{0x6969, "NFS"},      {0x0BD00BD0, "Lustre"}, {0x47504653, "GPFS"}, {0x19830326, "BeeGFS"},
                             {0xFF534D42, "CIFS"}, {0x00C36400, "Ceph"},   {0x65735546, "FUSE"}};
  struct statfs status {};
  if (statfs(directory.c_str(), &status) == 0) {
    for (Known const& each : known) {
      if ((static_cast<unsigned long>(status.f_type) & 0xFFFFFFFFUL) == each.number) {
        return each.name;
      }
    }
  }
  return "";
}

Finding files(fs::path const& directory) {
  if (std::error_code problem; !fs::is_directory(directory, problem)) {
    return failed(missing_file(directory), "start runs in a directory that can be written (run.directory)");
  }
  fs::path const path = directory / fmt::format(".heddle-doctor-{}", getpid());
  std::string const place = fs::absolute(directory).lexically_normal().string();
  try {
    auto const taken = [&] {
      FileLock lock(path);
      return lock.try_take(FileLock::Kind::exclusive);
    }();
    fs::remove(path);
    std::string const network = network_file_system(directory);
    std::string const found = fmt::format("{} can be written{}", place, network.empty() ? "" : ", over " + network);
    if (taken == FileLock::Result::not_supported) {
      return warning(
          found + ", but has no locks",
          "runs keep each other out by a lease there, which takes 20 s at the start; mount with locks (flock)");
    }
    return good(found + " and has locks");
  } catch (std::exception const& error) {
    return failed(error.what(), "start runs in a directory that can be written (run.directory)");
  }
}

Finding batch_system() {
  if (auto const job = variable("SLURM_JOB_ID")) {
    return good(fmt::format("inside job {} on {} nodes", *job, variable("SLURM_JOB_NUM_NODES").value_or("?")));
  }
  if (!program("sbatch")) {
    return good("none on this machine");
  }
  if (ask_program("sinfo --noheader --format=%P", patience).end != ProgramAnswer::End::done) {
    return warning("sbatch is there, but sinfo does not answer",
                   "ask where jobs are submitted: this host does not reach Slurm's controller");
  }
  return good("sbatch is there, and sinfo answers: docs/guide/slurm.md has a job");
}

/// Whether srun can start ranks of this MPI.
Finding srun_types() {
  if (!program("srun")) {
    return good("no srun on this machine");
  }
  // Slurm 22.05 writes the list to its standard error.
  auto const [end, list] = ask_program("srun --mpi=list 2>&1", patience);
  if (end != ProgramAnswer::End::done) {
    return unknown("srun --mpi=list does not answer");
  }
  std::string const wanted = slurm_mpi_type();
  auto const words = split_words(list);
  if (std::ranges::count(words, wanted) > 0) {
    return good(fmt::format("srun --mpi={} starts ranks of this MPI, if it was built with it", wanted));
  }
  return warning(fmt::format("srun --mpi=list has no {}, by which ranks of {} find each other", wanted, mpi_library()),
                 "start the ranks by mpirun or mpiexec inside the job: docs/guide/slurm.md");
}

}  // namespace

std::vector<Finding> examine(ExaminedPaths const& places) {
  auto const about = [](char const* subject, Finding finding) {
    finding.subject = subject;
    return finding;
  };
  return {about("mpi", launcher()),
          about("processor", processor()),
          about("threads", threads()),
          about("binding", binding()),
          about("huge pages", huge_pages(places.root)),
          about("memory", memory(places.root)),
          about("shared memory", shared_memory(places.memory)),
          about("files", files(places.directory)),
          about("slurm", batch_system()),
          about("srun", srun_types())};
}

std::string describe(std::vector<Finding> const& findings) {
  std::string text;
  for (Finding const& finding : findings) {
    text += fmt::format("{:<7} {:<14} {}\n", kind_words.at(static_cast<std::size_t>(finding.kind)), finding.subject,
                        finding.found);
    if (!finding.fix.empty()) {
      text += fmt::format("{:<7} {:<14} -> {}\n", "", "", finding.fix);
    }
  }
  auto const failures = std::ranges::count(findings, Finding::Kind::failed, &Finding::kind);
  auto const warnings = std::ranges::count(findings, Finding::Kind::warning, &Finding::kind);
  return text + fmt::format("{} of {} checks failed, {} warning{}.\n", failures, findings.size(), warnings,
                            warnings == 1 ? "" : "s");
}

ExitCode exit_code_of(std::vector<Finding> const& findings) {
  bool const any = std::ranges::count(findings, Finding::Kind::failed, &Finding::kind) > 0;
  return any ? ExitCode::failure : ExitCode::done;
}

}  // namespace heddle
