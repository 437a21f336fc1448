#include "together.hpp"

#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/base/host_name.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <new>

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
    throw;  // is no property of a file: the job ends
  } catch (Error const& error) {
    return {static_cast<int>(error.code()), error.what()};
  } catch (std::exception const& error) {
    return {static_cast<int>(ExitCode::failure), error.what()};
  }
}

[[noreturn]] void raise(Problem const& problem) {
  auto const code = static_cast<ExitCode>(problem.code);
  if (code == ExitCode::bad_data) {
    throw DataError(problem.text);
  }
  throw Error(problem.text, code);
}

}  // namespace

void together(Communicator const& group, std::function<void()> const& action) {
  Problem own = problem_of(action);
  if (!any_of(group, own.code != no_problem)) {
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
  together(group, [&] {
    if (group.rank() == 0) {
      action();
    }
  });
}

}  // namespace heddle
