#include "ranks.hpp"

#include <fmt/format.h>

#include <heddle/core/base/host_name.hpp>
#include <iostream>

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
    bool const alike = session.all_say(error.what());
    if (int const rank = session.world().rank(); rank == 0) {
      std::cerr << fmt::format("heddle: {}\n", error.what()) << std::flush;
    } else if (!alike) {
      std::cerr << fmt::format("heddle: rank {} on {}: {}\n", rank, host_name(), error.what()) << std::flush;
    }
    if (!alike) {
      session.abort(static_cast<int>(code));
    }
    return code;
  }
}

}  // namespace heddle
