#include <dlfcn.h>
#include <sched.h>
#include <sys/prctl.h>

#include <ctime>

// Preloaded into all that tests with MPI start. There are more ranks than cores, and a rank that waits in Open MPI
// calls sched_yield again and again. The kernel then runs it in turn with the ranks that compute, each for a whole time
// slice if other programs run, too. This version sleeps for 50 µs instead. Debian's MPICH does not yield at all while
// it waits: it calls ucp_worker_progress again and again, and 1,000 all-reduces of four ranks on two cores took 50 s
// instead of 1.

namespace {

constexpr timespec rest{0, 50'000};

// The kernel ends sleeps up to 50 microseconds late if this is not set.
[[gnu::constructor]] void wake_in_time() {
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
}

}  // namespace

extern "C" int sched_yield() noexcept {
  nanosleep(&rest, nullptr);
  return 0;
}

extern "C" unsigned ucp_worker_progress(void* worker) {
  using Progress = unsigned (*)(void*);
  static auto const progress = reinterpret_cast<Progress>(dlsym(RTLD_NEXT, "ucp_worker_progress"));
  constexpr int enough = 20;
  static thread_local int without = 0;
  unsigned const made = progress(worker);
  without = made > 0 ? 0 : without + 1;
  if (without > enough) {
    without = 0;
    nanosleep(&rest, nullptr);
  }
  return made;
}
