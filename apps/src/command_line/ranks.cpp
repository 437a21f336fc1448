#include "ranks.hpp"

#include <fmt/format.h>

#include <chrono>
#include <heddle/core/base/host_name.hpp>
#include <iostream>
#include <thread>

namespace heddle {

ExitCode run_on_ranks(std::function<ExitCode(MpiSession const*)> const& work) {
  if (!launched_by_mpi()) {
    return work(nullptr);
  }
  MpiSession const session;
  try {
    return work(&session);
  } catch (std::exception const& error) {
    if (int const rank = session.world().rank(); rank == 0) {
      std::cerr << fmt::format("heddle: {}\n", error.what()) << std::flush;
    } else {
      std::this_thread::sleep_for(std::chrono::seconds(2));
      std::cerr << fmt::format("heddle: rank {} on {}: {}\n", rank, host_name(), error.what()) << std::flush;
    }
    auto const* const known = dynamic_cast<Error const*>(&error);
    session.abort(static_cast<int>(known == nullptr ? ExitCode::failure : known->code()));
  }
}

}  // namespace heddle
