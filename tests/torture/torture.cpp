#include "torture.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <heddle/core/base/error.hpp>
#include <stdexcept>
#include <string_view>
#include <thread>

namespace heddle {

namespace {

constexpr std::size_t max_examples = 5;
constexpr rlim_t max_memory = rlim_t{6} << 30;  // bytes of address space
constexpr auto hang_limit = std::chrono::seconds(20);

/// Memory that parent and children share.
struct Shared {
  explicit Shared(std::int64_t cases)
      : bytes(sizeof(std::atomic<std::int64_t>) + static_cast<std::size_t>(cases)),
        place(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (place == MAP_FAILED) {
      throw std::runtime_error("no shared memory");
    }
    current = new (place) std::atomic<std::int64_t>(0);
    outcomes = reinterpret_cast<Outcome*>(current + 1);
  }
  ~Shared() { ::munmap(place, bytes); }
  Shared(Shared const&) = delete;
  Shared& operator=(Shared const&) = delete;

  std::size_t bytes;
  void* place;
  std::atomic<std::int64_t>* current;
  Outcome* outcomes;
};

Outcome run_one(std::function<bool(std::int64_t)> const& run, std::int64_t number) {
  try {
    return run(number) ? Outcome::same : Outcome::accepted;
  } catch (Error const&) {
    return Outcome::refused;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "case %ld ends with an error of another kind: %s\n", static_cast<long>(number), error.what());
    return Outcome::wrong_error;
  }
}

[[noreturn]] void run_child(Shared const& shared, std::int64_t cases, std::function<bool(std::int64_t)> const& run) {
  if (memory_is_ours) {
    rlimit const limit{max_memory, RLIM_INFINITY};
    ::setrlimit(RLIMIT_AS, &limit);
  }
  for (std::int64_t number = shared.current->load(); number < cases; ++number) {
    shared.current->store(number);
    shared.outcomes[number] = run_one(run, number);
  }
  std::fflush(nullptr);
  ::_exit(0);
}

/// Waits for the child; kills it when it hangs. Returns the outcome of the case in which it ended, not_run if it ran
/// all.
Outcome wait_for(pid_t child, Shared const& shared, std::int64_t& largest_memory) {
  auto since = std::chrono::steady_clock::now();
  std::int64_t seen = -1;
  bool killed = false;
  rusage usage{};
  int status = 0;
  while (::wait4(child, &status, WNOHANG, &usage) == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    auto const now = std::chrono::steady_clock::now();
    if (std::int64_t const current = shared.current->load(); current != seen) {
      seen = current;
      since = now;
    } else if (now - since > hang_limit) {
      killed = true;
      ::kill(child, SIGKILL);
    }
  }
  largest_memory = std::max<std::int64_t>(largest_memory, usage.ru_maxrss * 1024);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    return Outcome::not_run;
  }
  std::printf("case %ld ended its process: %s %d\n", static_cast<long>(shared.current->load()),
              WIFSIGNALED(status) ? "signal" : "code", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  return killed ? Outcome::hung : Outcome::crashed;
}

}  // namespace

bool torture_is_big() {
  char const* const size = std::getenv("HEDDLE_TORTURE");
  return size != nullptr && std::string_view(size) == "big";
}

std::int64_t torture_count(std::int64_t small, std::int64_t big) {
  return torture_is_big() ? big : small;
}

void print_figures(std::string const& text) {
  std::printf("figures: %s\n", text.c_str());
  std::fflush(stdout);
}

std::int64_t CaseResults::count(Outcome outcome) const {
  return std::count(outcomes.begin(), outcomes.end(), outcome);
}

std::vector<std::int64_t> CaseResults::examples(Outcome outcome) const {
  std::vector<std::int64_t> found;
  for (std::size_t number = 0; number < outcomes.size() && found.size() < max_examples; ++number) {
    if (outcomes[number] == outcome) {
      found.push_back(static_cast<std::int64_t>(number));
    }
  }
  return found;
}

std::string CaseResults::text(std::string const& what) const {
  std::string text = fmt::format("{} {}: wrongly accepted {}", outcomes.size(), what, count(Outcome::accepted));
  for (auto const& [outcome, name] : {std::pair{Outcome::same, "without effect"},
                                      {Outcome::wrong_error, "wrong errors"},
                                      {Outcome::crashed, "crashes"},
                                      {Outcome::hung, "hangs"},
                                      {Outcome::not_run, "not run"}}) {
    bool const always = outcome == Outcome::crashed || outcome == Outcome::hung;
    if (std::int64_t const number = count(outcome); number > 0 || always) {
      text += fmt::format(", {} {}", name, number);
    }
  }
  for (Outcome const outcome : {Outcome::accepted, Outcome::wrong_error, Outcome::crashed, Outcome::hung}) {
    if (count(outcome) > 0) {
      text += fmt::format(" (cases {} …)", fmt::join(examples(outcome), ", "));
    }
  }
  return text + fmt::format(", largest memory {} MiB", largest_memory >> 20);
}

bool CaseResults::good() const {
  return count(Outcome::refused) + count(Outcome::same) == static_cast<std::int64_t>(outcomes.size());
}

CaseResults run_cases(std::int64_t cases, std::function<bool(std::int64_t)> const& run) {
  Shared const shared(cases);
  CaseResults results;
  std::fflush(nullptr);
  while (shared.current->load() < cases) {
    pid_t const child = ::fork();
    if (child < 0) {
      throw std::runtime_error("no child process");
    }
    if (child == 0) {
      run_child(shared, cases, run);
    }
    Outcome const end = wait_for(child, shared, results.largest_memory);
    if (end == Outcome::not_run) {
      break;
    }
    shared.outcomes[shared.current->load()] = end;
    shared.current->fetch_add(1);
  }
  results.outcomes.assign(shared.outcomes, shared.outcomes + cases);
  return results;
}

}  // namespace heddle
