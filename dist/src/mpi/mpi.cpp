#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <heddle/dist/mpi/mpi.hpp>
#include <optional>
#include <string_view>
#include <thread>

#include "call.hpp"
#include "communicator.hpp"
#include "segment_name.hpp"

namespace heddle {

namespace {

/// The number in an environment variable, 0 if it is not set.
int environment_number(char const* name) {
  char const* const text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

/// The number of ranks that the launcher reports; 0 without launcher.
int announced_ranks() {
  for (char const* const name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (int const ranks = environment_number(name); ranks > 0) {
      return ranks;
    }
  }
  // A batch script also runs with Slurm's variables set, but only srun starts a step of several tasks.
  int const tasks = environment_number("SLURM_STEP_NUM_TASKS");
  return std::getenv("SLURM_PROCID") != nullptr && tasks > 1 ? tasks : 0;
}

/// Ranks that do not find each other would each train separately, and all write to one run directory.
void require_announced_ranks(int ranks) {
  int const announced = announced_ranks();
  if (announced > 1 && ranks == 1) {
    throw ConfigError(
        "the launcher started {} ranks, but MPI sees one: this MPI does not know the launcher; use the "
        "mpirun of the MPI that Heddle was built with, or srun --mpi={} (srun --mpi=list names the types)",
        announced, slurm_mpi_type());
  }
}

}  // namespace

bool launched_by_mpi() {
  for (char const* const name : {"PMIX_RANK", "PMI_RANK", "PMI_FD"}) {
    if (std::getenv(name) != nullptr) {
      return true;
    }
  }
  return announced_ranks() > 0;
}

LaunchedRank launched_rank() {
  // mpirun inside of a Slurm job may leave its ranks with the Slurm variables of its daemons: they come last.
  int rank = 0;
  for (char const* const name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
    if (std::getenv(name) != nullptr) {
      rank = environment_number(name);
      break;
    }
  }
  int const ranks = announced_ranks();
  return ranks > 1 ? LaunchedRank{rank, ranks} : LaunchedRank{};
}

std::string launcher_command(int ranks) {
  if (!launched_by_mpi()) {
    return "";
  }
  auto const has = [](char const* name) { return std::getenv(name) != nullptr; };
  if (has("OMPI_COMM_WORLD_SIZE")) {
    return fmt::format("mpirun -np {}", ranks);
  }
  // Hydra, of MPICH and Intel MPI, has daemons that srun may have started: their ranks have Slurm's variables, too.
  bool const hydra = has("MPI_LOCALRANKID") || has("PALS_RANKID") || !has("SLURM_PROCID");
  return fmt::format("{} -n {}", hydra ? "mpiexec" : "srun", ranks);
}

std::string mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  check_mpi(MPI_Get_library_version(text.data(), &length), "naming the library");
  std::string_view const whole(text.data(), static_cast<std::size_t>(length));
  std::string name(whole.substr(0, whole.find_first_of(",\n")));
  std::ranges::replace(name, '\t', ' ');  // "MPICH Version:", a tab, "4.0.2"
  return name;
}

std::string slurm_mpi_type() {
  std::string const library = mpi_library();
  auto const is = [&](char const* name) { return library.find(name) != std::string::npos; };
  if (is("CRAY MPICH")) {
    return "cray_shasta";
  }
  return is("MPICH") || is("Intel") || is("MVAPICH") ? "pmi2" : "pmix";
}

struct MpiSession::State {
  std::optional<SegmentName> segment{};
  MPI_Comm native_world = MPI_COMM_WORLD;
  Communicator world = Communicator::self();
  bool owns_mpi = false;
  int exceptions_at_start = std::uncaught_exceptions();
};

MpiSession::MpiSession(std::int64_t elements_per_call, std::int64_t elements_while_computing)
    : state_(std::make_unique<State>()) {
  int started = 0;
  check_mpi(MPI_Initialized(&started), "start");
  if (started == 0) {
    if (auto const rank = SegmentName::own()) {
      state_->segment.emplace(SegmentName::directory(), *rank);
    }
    int level = MPI_THREAD_SINGLE;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level), "start");
    state_->owns_mpi = true;
    if (level < MPI_THREAD_FUNNELED) {
      throw ConfigError("this MPI was built without thread support; Heddle needs MPI_THREAD_FUNNELED");
    }
  }
  check_mpi(MPI_Comm_set_errhandler(state_->native_world, MPI_ERRORS_RETURN), "start");
  state_->world =
      Communicator(MpiCommunicator::duplicate(state_->native_world, elements_per_call, elements_while_computing));
  require_announced_ranks(state_->world.size());
}

MpiSession::~MpiSession() {
  bool const unwinding = std::uncaught_exceptions() > state_->exceptions_at_start;
  if (unwinding || !mpi_is_running()) {
    return;
  }
  state_->world = Communicator::self();
  if (state_->owns_mpi) {
    // While a rank waits in MPI_Finalize, an mpirun whose job fails crashes or hangs (Open MPI 4.1 with PMIx 4.2, one
    // in five on a busy machine). So no rank enters it before all can.
    MPI_Barrier(state_->native_world);
    MPI_Finalize();
  }
}

Communicator const& MpiSession::world() const {
  return state_->world;
}

bool MpiSession::all_agree(std::string_view text) const {
  std::uint64_t const hash = std::hash<std::string_view>()(text);
  std::array<std::uint64_t, 2> const own{hash, ~hash};
  // Static: where a rank does not come, MPI keeps the request and its buffers.
  static std::array<std::uint64_t, 2> sent, largest;
  sent = own;
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Iallreduce(sent.data(), largest.data(), 2, MPI_UINT64_T, MPI_MAX, state_->native_world, &request) !=
      MPI_SUCCESS) {
    return false;
  }
  auto const end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  int arrived = 0;
  while (MPI_Test(&request, &arrived, MPI_STATUS_IGNORE) == MPI_SUCCESS && arrived == 0 &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return arrived != 0 && largest == own;
}

void MpiSession::abort(int code) const {
  MPI_Abort(state_->native_world, code);
  // MPI_Abort returns only if it failed: only this rank's own exit can then end the job.
  std::_Exit(code);
}

}  // namespace heddle
