#pragma once

#include <fmt/format.h>

#include <boost/program_options.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/core/tensor/runtime.hpp>
#include <heddle/dist/mpi/mpi.hpp>
#include <iostream>

namespace heddle {

/// Returns false if --help was given, which rank 0 (`speaks`) then prints; else the options have their values. Throws
/// UsageError, which names the program.
inline bool parse(int argc, char** argv, boost::program_options::options_description const& description,
                  char const* program, bool speaks) {
  namespace program_options = boost::program_options;
  program_options::variables_map values;
  try {
    program_options::store(program_options::parse_command_line(argc, argv, description), values);
    program_options::notify(values);
  } catch (program_options::error const& error) {
    throw UsageError("{}; {} --help shows the options", error.what(), program);
  }
  if (values.contains("help") && speaks) {
    std::cout << description;
  }
  return !values.contains("help");
}

/// The main function of a program under mpirun: `options_of(argc, argv, speaks)` returns options, or nothing if the
/// program is done, and `run(options, world, execution)` the exit code. An error of one rank ends them all.
template <class OptionsOf, class Run>
int run_main(int argc, char** argv, char const* program, OptionsOf const& options_of, Run const& run) {
  MpiSession const session;
  Communicator const world = session.world();
  try {
    auto const options = options_of(argc, argv, world.rank() == 0);
    if (!options) {
      return static_cast<int>(ExitCode::done);
    }
    Runtime runtime;
    return run(*options, world, runtime.execution());
  } catch (Error const& error) {
    fmt::print(stderr, "{}, rank {}: {}\n", program, world.rank(), error.what());
    session.abort(static_cast<int>(error.code()));
  }
}

}  // namespace heddle
