#include <mpi.h>

#include <cstdlib>
#include <heddle/core/base/host_name.hpp>
#include <heddle/dist/mpi/mpi.hpp>

#include "test.hpp"

namespace {
int communicators_freed = 0;
}  // namespace

/// Intercepts MPI calls, as the profiling interface allows.
extern "C" int MPI_Comm_free(MPI_Comm* communicator) {
  ++communicators_freed;
  return PMPI_Comm_free(communicator);
}

namespace heddle {
namespace {

/// Replaces the launchers' environment variables by the given ones during its lifetime.
class LauncherEnvironment {
 public:
  explicit LauncherEnvironment(std::map<std::string, std::string> const& variables) {
    for (char const* const name :
         {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "PMI_FD",
          "MPI_LOCALRANKID", "PALS_RANKID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}) {
      char const* const value = std::getenv(name);
      before_[name] = value == nullptr ? std::nullopt : std::optional<std::string>(value);
      unsetenv(name);
    }
    for (auto const& [name, value] : variables) {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ~LauncherEnvironment() {
    for (auto const& [name, value] : before_) {
      value ? setenv(name.c_str(), value->c_str(), 1) : unsetenv(name.c_str());
    }
  }
  LauncherEnvironment(LauncherEnvironment const&) = delete;
  LauncherEnvironment& operator=(LauncherEnvironment const&) = delete;

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

bool launched_with(std::map<std::string, std::string> const& variables) {
  LauncherEnvironment const environment(variables);
  return launched_by_mpi();
}

std::string command_with(std::map<std::string, std::string> const& variables) {
  LauncherEnvironment const environment(variables);
  return launcher_command(4);
}

TEST(LaunchTest, NamesTheCommandThatStartsAsManyRanksAgain) {
  EXPECT_EQ(command_with({}), "");
  EXPECT_EQ(command_with({{"OMPI_COMM_WORLD_SIZE", "4"}, {"SLURM_PROCID", "3"}}), "mpirun -np 4");
  EXPECT_EQ(command_with({{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}}), "srun -n 4");
  EXPECT_EQ(command_with({{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "3"}, {"SLURM_PROCID", "0"}}),
            "mpiexec -n 4")
      << "Hydra in a Slurm job";
  EXPECT_EQ(command_with({{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}}), "mpiexec -n 4");
  EXPECT_EQ(command_with({{"PMI_RANK", "3"}, {"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}}), "srun -n 4");
}

TEST(LaunchTest, IsSeenUnderMpirun) {
  EXPECT_TRUE(launched_by_mpi());
}

TEST(LaunchTest, IsSeenInALaunchersEnvironmentAlone) {
  EXPECT_FALSE(launched_with({}));
  EXPECT_TRUE(launched_with({{"OMPI_COMM_WORLD_SIZE", "1"}}));
  EXPECT_TRUE(launched_with({{"PMI_RANK", "0"}}));
  EXPECT_TRUE(launched_with({{"PMIX_RANK", "0"}}));
  EXPECT_TRUE(launched_with({{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}}));
  // A batch script, and srun of a single task.
  EXPECT_FALSE(launched_with({{"SLURM_PROCID", "0"}}));
  EXPECT_FALSE(launched_with({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}));
}

TEST(LaunchTest, KnowsItsRankWithoutMpi) {
  using Variables = std::map<std::string, std::string>;
  auto const place = [](Variables const& variables) {
    LauncherEnvironment const environment(variables);
    auto const [rank, ranks] = launched_rank();
    return std::pair(rank, ranks);
  };
  using Place = std::pair<int, int>;
  EXPECT_EQ(place({}), Place(0, 1));
  EXPECT_EQ(place({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}), Place(0, 1));
  Variables mpirun{{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "2"}};
  EXPECT_EQ(place(mpirun), Place(2, 4));
  mpirun.insert({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}});
  EXPECT_EQ(place(mpirun), Place(2, 4)) << "in a Slurm job";
  EXPECT_EQ(place({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}}), Place(1, 3));
  EXPECT_EQ(place({{"PMIX_RANK", "1"}}), Place(0, 1)) << "left by another launcher: nothing says that there are others";
  EXPECT_EQ(place({{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}}), Place(3, 4));
  // The shell of an allocation, a batch script, and srun of a single task.
  EXPECT_EQ(place({{"SLURM_NTASKS", "4"}}), Place(0, 1));
  EXPECT_EQ(place({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}), Place(0, 1));
  EXPECT_EQ(place({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}), Place(0, 1));
}

TEST(MpiSessionTest, JoinsAnMpiThatRunsAndLeavesItRunning) {
  int const size = MpiSession().world().size();
  EXPECT_EQ(MpiSession().world().size(), size);
}

TEST(MpiSessionTest, RefusesRanksThatDoNotFindEachOther) {
  int const size = MpiSession().world().size();
  LauncherEnvironment const environment({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}});
  if (size == 1) {
    expect_config_error([] { MpiSession(); }, "started 4 ranks");
  } else {
    EXPECT_NO_THROW(MpiSession());
  }
}

TEST(MpiSessionTest, RefusesAnImpossibleNumberOfElementsPerCall) {
  EXPECT_THROW(MpiSession(0), Error);
  EXPECT_THROW(MpiSession(std::int64_t{1} << 31), Error);
}

// Freeing a group is collective: a rank that fails alone would wait for ranks that wait for it elsewhere.
TEST(MpiSessionTest, GroupsAreFreedExceptWhileAnExceptionPasses) {
  MpiSession const session;
  if (session.world().size() == 1) {
    return;  // a group of one rank is none of MPI's
  }
  int const before = communicators_freed;
  { Communicator const group = session.world().split(0, session.world().rank()); }
  EXPECT_EQ(communicators_freed, before + 1);
  try {
    Communicator const group = session.world().split(0, session.world().rank());
    throw Error("the rank's own fault");
  } catch (Error const&) {
    EXPECT_EQ(communicators_freed, before + 1);
  }
}

TEST(HostnameTest, IsThisMachines) {
  EXPECT_FALSE(host_name().empty());
}

}  // namespace
}  // namespace heddle
