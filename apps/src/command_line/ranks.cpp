#include "ranks.hpp"

#include <fmt/format.h>

#include <chrono>
#include <heddle/core/base/host_name.hpp>
#include <thread>

#include "run/directory/warning.hpp"

namespace heddle {

ExitCode run_on_ranks(std::function<ExitCode(MpiSession const*)> const& work) {
  if (!launched_by_mpi()) {
    return work(nullptr);
  }
  MpiSession const session;
  try {
    return work(&session);
  } catch (std::exception const& error) {
    auto const* const known = dynamic_cast<Error const*>(&error);
    ExitCode const code = known == nullptr ? ExitCode::failure : known->code();
    int const rank = session.world().rank();
    if (rank == 0) {
      report_on_stderr(describe(error));
    }
    bool const of_all = code == ExitCode::usage || code == ExitCode::bad_config || code == ExitCode::bad_data ||
                        code == ExitCode::loss_not_finite;
    if (of_all && session.all_agree(describe(error))) {
      return code;
    }
    if (rank > 0) {
      std::this_thread::sleep_for(std::chrono::seconds(2));
      report_on_stderr(fmt::format("rank {} on {}: {}", rank, host_name(), describe(error)));
    }
    session.abort(static_cast<int>(code));
  }
}

}  // namespace heddle
