#include "run_collectively.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/host_name.hpp>
#include <heddle/core/base/processors.hpp>
#include <heddle/core/parallel/backoff.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <new>
#include <span>
#include <system_error>

namespace heddle {

namespace {

constexpr int no_problem = -1;

struct Problem {
  int code = no_problem;
  std::string text;
};

Problem problem_of(std::function<void()> const& action) {
  try {
    action();
    return {};
  } catch (std::bad_alloc const&) {
    throw;  // not an error of a file: the job ends
  } catch (Error const& error) {
    return {static_cast<int>(error.code()), error.what()};
  } catch (std::exception const& error) {
    return {static_cast<int>(ExitCode::failure), error.what()};
  }
}

/// Whether any rank failed. Files take their time, and ranks that have none would take the cores from those that have:
/// these wait without polling.
bool any_failed(Communicator const& group, bool own) {
  Tensor const mine = Tensor::allocate_on_host(DType::int32, {1});
  Tensor const all = Tensor::allocate_on_host(DType::int32, {group.size()});
  *mine.data<std::int32_t>() = own ? 1 : 0;
  Transfer gather = group.start_all_gather(mine, all);
  wait_with_backoff(gather);
  std::span const found(all.data<std::int32_t>(), static_cast<std::size_t>(group.size()));
  return std::find(found.begin(), found.end(), 1) != found.end();
}

[[noreturn]] void raise(Problem const& problem) {
  auto const code = static_cast<ExitCode>(problem.code);
  if (code == ExitCode::bad_data) {
    throw DataError(problem.text);
  }
  throw Error(problem.text, code);
}

}  // namespace

void run_collectively(Communicator const& group, std::function<void()> const& action) {
  Problem own = problem_of(action);
  if (!any_failed(group, own.code != no_problem)) {
    return;
  }
  auto const codes = gather_values(group, own.code);
  int first = 0;
  while (codes[static_cast<std::size_t>(first)] == no_problem) {
    ++first;
  }
  if (group.size() > 1) {
    own.text = fmt::format("rank {} on {}: {}", group.rank(), host_name(), own.text);
  }
  raise({codes[static_cast<std::size_t>(first)], broadcast_text(group, own.text, first)});
}

void on_rank_0(Communicator const& group, std::function<void()> const& action) {
  run_collectively(group, [&] {
    if (group.rank() == 0) {
      action();
    }
  });
}

BackgroundThread::BackgroundThread(std::function<void()> action) {
  /// Blocks all signals while it exists, also if the thread cannot be started.
  struct AllBlocked {
    AllBlocked() {
      sigset_t all;
      ::sigfillset(&all);
      ::pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    AllBlocked(AllBlocked const&) = delete;
    AllBlocked& operator=(AllBlocked const&) = delete;
    ~AllBlocked() { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    sigset_t before;
  };
  std::packaged_task<void()> task(std::move(action));
  result_ = task.get_future();
  AllBlocked const blocked;  // the new thread inherits it
  thread_ = std::thread(std::move(task));
}

BackgroundThread::~BackgroundThread() {
  thread_.join();
}

namespace {

/// The ranks on this host, as the launcher counts them; 1 without one.
std::int64_t ranks_here() {
  for (char const* const name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_TASKS_PER_NODE"}) {
    if (char const* const value = std::getenv(name)) {
      return std::max(1L, std::strtol(value, nullptr, 10));  // Slurm's continues after the number: "4(x2)"
    }
  }
  return 1;
}

}  // namespace

std::int64_t own_processors() {
  std::int64_t const allowed = usable_processors();
  bool const bound = allowed < ::sysconf(_SC_NPROCESSORS_ONLN);
  return bound ? allowed : std::max<std::int64_t>(1, allowed / ranks_here());
}

void in_threads(std::int64_t count, std::function<std::function<void(std::int64_t)>()> const& make_work,
                std::int64_t max_threads) {
  std::int64_t const threads = std::min({std::int64_t{usable_processors()}, max_threads, count});
  std::atomic<std::int64_t> next{0};
  auto const run = [&] {
    auto const work = make_work();
    try {
      for (std::int64_t index = 0; (index = next++) < count;) {
        work(index);
      }
    } catch (...) {
      next = count;
      throw;
    }
  };
  std::deque<BackgroundThread> others;
  try {
    while (std::ssize(others) + 1 < threads) {
      others.emplace_back(run);
    }
  } catch (std::system_error const&) {  // the threads that there are do the work
  }
  FirstError error;
  error.attempt(run);
  for (BackgroundThread& other : others) {
    try {
      other.finish();
    } catch (...) {
      error.attempt([] { throw; });
    }
  }
  error.rethrow();
}

}  // namespace heddle
