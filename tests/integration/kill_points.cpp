// A library for LD_PRELOAD that ends processes of a training run at named points, by a plan: the calls of a rank show
// where it is, so that the program itself needs no hooks. tests/torture/kills.sh and hangs.sh use it.
//
// HEDDLE_KILL_PLAN names a file. Its line n (from 0) holds for every start that comes after n kills: "POINT COUNT RANK
// VICTIM". When rank RANK comes to POINT for the COUNT-th time since its start, VICTIM is ended by SIGKILL: "rank N",
// "launcher", or "host" (all processes that see the network of this rank, but not a sleeping one, which keeps a virtual
// host alive). "link" sets this host's eth0 down for ten seconds instead, "power" for good, and ends the host; "stop"
// stops the rank itself. Points: those of save, prune, load and logging, with .before or .after the call (see
// `name_of`); "mpi", any call that communicates; "start" and "training", COUNT milliseconds after the process began or
// logged its first step; "saved", COUNT microseconds after it put a checkpoint in its place.
// HEDDLE_KILL_EVENTS gets a line for each process, step and kill, with the time in nanoseconds: "begin PID T", "step N
// PID T", "kill POINT VICTIM T".
#include <dlfcn.h>
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>

namespace {

namespace fs = std::filesystem;

template <class Function>
Function next(char const* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

std::int64_t now() {
  timespec time{};
  ::clock_gettime(CLOCK_REALTIME, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

std::string contents(std::string const& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string link_target(std::string const& path) {
  std::error_code ignored;
  return fs::read_symlink(path, ignored).string();
}

char const* variable(char const* name) {
  char const* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

/// The variable in which Open MPI's launcher, or Hydra, tells a process its rank.
std::string rank_variable() {
  return *variable("PMI_RANK") != '\0' ? "PMI_RANK" : "OMPI_COMM_WORLD_RANK";
}

/// The plan of this process, which is a rank.
struct Plan {
  std::string events = variable("HEDDLE_KILL_EVENTS");
  std::string file = variable("HEDDLE_KILL_PLAN");
  int rank = std::atoi(variable(rank_variable().c_str()));
  int kills = 0;  ///< before this start
  std::string point, victim;
  std::atomic<int> count{0};
  bool mine = false;
  std::atomic<int> logged{0};  ///< steps
};

Plan* plan = nullptr;
thread_local bool inside = false;  // a point inside the work of another is none

void record(std::string const& line) {
  int const file =
      next<int (*)(char const*, int, ...)>("open")(plan->events.c_str(), O_WRONLY | O_APPEND | O_CREAT, 0666);
  std::string const whole = line + " " + std::to_string(now()) + "\n";
  static_cast<void>(!next<ssize_t (*)(int, void const*, std::size_t)>("write")(file, whole.data(), whole.size()));
  ::close(file);
}

int kills_so_far() {
  std::istringstream events(contents(plan->events));
  int kills = 0;
  for (std::string line; std::getline(events, line);) {
    kills += line.starts_with("kill ") ? 1 : 0;
  }
  return kills;
}

template <class Chosen>
void kill_processes(Chosen const& chosen) {
  for (auto const& entry : fs::directory_iterator("/proc")) {
    int const process = std::atoi(entry.path().filename().c_str());
    if (process > 1 && process != ::getpid() && chosen(entry.path().string())) {
      ::kill(process, SIGKILL);
    }
  }
}

void run_in_shell(char const* text) {
  char const* const command[] = {"sh", "-c", text, nullptr};
  char const* const environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", nullptr};
  pid_t child = 0;
  if (::posix_spawnp(&child, "sh", nullptr, nullptr, const_cast<char**>(command), const_cast<char**>(environment)) ==
      0) {
    ::waitpid(child, nullptr, 0);
  }
}

void kill_host() {
  std::string const network = link_target("/proc/self/ns/net");
  kill_processes([&](std::string const& process) {
    return link_target(process + "/ns/net") == network && contents(process + "/comm") != "sleep\n";
  });
  ::raise(SIGKILL);
}

void strike(std::string const& point) {
  inside = true;
  record("kill " + point + " " + plan->victim);
  if (plan->victim == "stop") {
    ::raise(SIGSTOP);
  } else if (plan->victim == "link") {
    run_in_shell("ip link set eth0 down; { sleep 10; ip link set eth0 up; } > /dev/null 2>&1 < /dev/null &");
  } else if (plan->victim == "power") {
    run_in_shell("ip link set eth0 down");
    kill_host();
  } else if (plan->victim == "launcher") {
    kill_processes([](std::string const& process) {
      std::string const name = contents(process + "/comm");
      return (name == "mpirun\n" || name.starts_with("mpiexec")) &&
             contents(process + "/cmdline").find(plan->file) != std::string::npos;
    });
  } else if (plan->victim == "host") {
    kill_host();
  } else if (plan->victim == "rank" + std::to_string(plan->rank)) {
    ::raise(SIGKILL);
  } else {
    std::string const rank = '\0' + (rank_variable() + "=" + plan->victim.substr(4)) + '\0';
    std::string const file = "HEDDLE_KILL_PLAN=" + plan->file + '\0';
    kill_processes([&](std::string const& process) {
      std::string const environment = contents(process + "/environ");
      return environment.find(rank) != std::string::npos && environment.find(file) != std::string::npos;
    });
  }
  inside = false;
}

void strike_after(std::chrono::microseconds time) {
  std::thread([time] {
    std::this_thread::sleep_for(time);
    strike(plan->point);
  }).detach();
}

void reached(std::string const& point) {
  if (plan != nullptr && plan->mine && !inside && plan->point == "saved" && point == "save.directory_rename.after") {
    strike_after(std::chrono::microseconds(plan->count));
  }
  if (plan != nullptr && plan->mine && !inside && point == plan->point && --plan->count == 0) {
    strike(point);
  }
}

__attribute__((constructor)) void begin() {
  if (*variable("HEDDLE_KILL_PLAN") == '\0' || *variable(rank_variable().c_str()) == '\0') {
    return;
  }
  static Plan own;
  plan = &own;
  inside = true;
  record("begin " + std::to_string(::getpid()));
  plan->kills = kills_so_far();
  std::ifstream lines(plan->file);
  std::string line;
  for (int number = 0; number <= plan->kills && std::getline(lines, line); ++number) {
    std::istringstream words(number == plan->kills ? line : "");
    int count = 0;
    int rank = -1;
    words >> plan->point >> count >> rank >> plan->victim;
    plan->count = count;
    plan->mine = rank == plan->rank;
  }
  inside = false;
  if (plan->mine && plan->point == "start") {
    strike_after(std::chrono::milliseconds(plan->count));
  }
}

std::string path_of(int file) {
  return link_target("/proc/self/fd/" + std::to_string(file));
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// The point of a call on a path, "" if it is none.
std::string name_of(std::string const& call, std::string const& path) {
  if (has(path, "/.tmp-step-")) {
    bool const tensors = has(path, "/tensors-");
    if (tensors || has(path, "/state.h5") || has(path, "/MANIFEST.json")) {
      return "save." + std::string(tensors ? "tensors" : has(path, "/state.h5") ? "state" : "manifest") + "_" + call;
    }
    return "save.directory_" + call;  // its making, fsync and rename
  }
  if (has(path, "/.tmp-removed-")) {
    return "prune." + call;
  }
  if (has(path, "/checkpoints/.tmp-best")) {
    return "save.best_" + call;
  }
  if (path.ends_with("/checkpoints")) {
    return "save.parent_" + call;
  }
  if (has(path, "/checkpoints/step-")) {
    return "load." + call;
  }
  return path.ends_with("/metrics.jsonl") ? "log." + call : "";
}

/// Calls `action` between the points before and after it.
template <class Action>
auto between(std::string const& call, std::string const& path, Action const& action) {
  std::string const name = plan == nullptr || inside ? "" : name_of(call, path);
  if (!name.empty()) {
    reached(name + ".before");
  }
  auto const result = action();
  if (!name.empty()) {
    int const error = errno;
    reached(name + ".after");
    errno = error;
  }
  return result;
}

template <class Action>
auto between(std::string const& call, int file, Action const& action) {
  return between(call, plan == nullptr || inside ? "" : path_of(file), action);
}

/// A step was logged. A point that did not come in this many steps is replaced by this one.
void note_steps(std::string_view text) {
  constexpr int max_steps = 60;
  constexpr std::string_view key = "\"step\":";
  inside = true;
  for (auto at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1)) {
    record("step " + std::to_string(std::atoi(text.data() + at + key.size())) + " " + std::to_string(::getpid()));
    if (++plan->logged == 1 && plan->mine && plan->point == "training") {
      strike_after(std::chrono::milliseconds(plan->count));
    }
  }
  inside = false;
  if (plan->logged > max_steps && !plan->victim.empty() && kills_so_far() == plan->kills) {
    plan->victim = "rank0";
    strike("overdue:" + plan->point);
  }
}

}  // namespace

extern "C" {

int open(char const* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  mode_t const mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  auto const real = next<int (*)(char const*, int, ...)>("open");
  return between((flags & O_CREAT) != 0 ? "create" : "open", path, [&] { return real(path, flags, mode); });
}

ssize_t pwrite(int file, void const* bytes, std::size_t count, off_t offset) {
  auto const real = next<ssize_t (*)(int, void const*, std::size_t, off_t)>("pwrite");
  return between("write", file, [&] { return real(file, bytes, count, offset); });
}

ssize_t pread(int file, void* bytes, std::size_t count, off_t offset) {
  auto const real = next<ssize_t (*)(int, void*, std::size_t, off_t)>("pread");
  return between("read", file, [&] { return real(file, bytes, count, offset); });
}

ssize_t read(int file, void* bytes, std::size_t count) {
  auto const real = next<ssize_t (*)(int, void*, std::size_t)>("read");
  return between("read", file, [&] { return real(file, bytes, count); });
}

ssize_t write(int file, void const* bytes, std::size_t count) {
  auto const real = next<ssize_t (*)(int, void const*, std::size_t)>("write");
  if (plan == nullptr || inside || !path_of(file).ends_with("/metrics.jsonl")) {
    return between("write", file, [&] { return real(file, bytes, count); });
  }
  reached("log.write.before");
  ssize_t const result = real(file, bytes, count);
  note_steps({static_cast<char const*>(bytes), count});
  reached("log.write.after");
  return result;
}

int fsync(int file) {
  return between("sync", file, [&] { return next<int (*)(int)>("fsync")(file); });
}

int mkdir(char const* path, mode_t mode) {
  return between("make", path, [&] { return next<int (*)(char const*, mode_t)>("mkdir")(path, mode); });
}

int rename(char const* from, char const* to) {
  // A checkpoint to be pruned is named by where it goes.
  return between("rename", has(to, "/.tmp-") ? to : from,
                 [&] { return next<int (*)(char const*, char const*)>("rename")(from, to); });
}

int renameat2(int from_directory, char const* from, int to_directory, char const* to, unsigned flags) {
  auto const real = next<int (*)(int, char const*, int, char const*, unsigned)>("renameat2");
  return between("rename", from, [&] { return real(from_directory, from, to_directory, to, flags); });
}

int unlinkat(int directory, char const* path, int flags) {
  std::string const whole = plan == nullptr || directory == AT_FDCWD ? path : path_of(directory) + "/" + path;
  return between("remove", whole,
                 [&] { return next<int (*)(int, char const*, int)>("unlinkat")(directory, path, flags); });
}

int symlink(char const* target, char const* path) {
  return between("link", path, [&] { return next<int (*)(char const*, char const*)>("symlink")(target, path); });
}

int MPI_Allreduce(void const* from, void* to, int count, MPI_Datatype type, MPI_Op operation, MPI_Comm group) {
  reached("mpi");
  return PMPI_Allreduce(from, to, count, type, operation, group);
}

int MPI_Isend(void const* from, int count, MPI_Datatype type, int to, int tag, MPI_Comm group, MPI_Request* request) {
  reached("mpi");
  return PMPI_Isend(from, count, type, to, tag, group, request);
}

int MPI_Irecv(void* to, int count, MPI_Datatype type, int from, int tag, MPI_Comm group, MPI_Request* request) {
  reached("mpi");
  return PMPI_Irecv(to, count, type, from, tag, group, request);
}

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  reached("mpi");
  return PMPI_Wait(request, status);
}

int MPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm group) {
  reached("mpi");
  return PMPI_Bcast(buffer, count, type, root, group);
}

int MPI_Allgather(void const* from, int sent, MPI_Datatype type, void* to, int received, MPI_Datatype received_type,
                  MPI_Comm group) {
  reached("mpi");
  return PMPI_Allgather(from, sent, type, to, received, received_type, group);
}

}  // extern "C"
