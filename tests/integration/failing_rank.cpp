#include <mpi.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/tensor/runtime.hpp>
#include <heddle/dist/mpi/mpi.hpp>
#include <iostream>

/// Collective, as the standard allows: ranks leave together.
extern "C" int MPI_Comm_free(MPI_Comm* communicator) {
  PMPI_Barrier(*communicator);
  return PMPI_Comm_free(communicator);
}

// The program of failing_rank.sh: its last rank fails alone, inside a group, while the others wait for it there.
namespace heddle {
namespace {

void work(Communicator const& world) {
  Communicator const group = world.split(0, world.rank());
  Tensor const numbers = Tensor::allocate(DType::float32, {1000});
  Transfer const sum = group.start_all_reduce(numbers);
  if (world.rank() + 1 == world.size()) {
    throw Error("the rank's own fault");
  }
  group.barrier();
}

int run() {
  Runtime const runtime;
  MpiSession const session;
  try {
    work(session.world());
  } catch (Error const& error) {
    std::cerr << error.what() << std::endl;
    session.abort(71);
  }
  return 0;
}

}  // namespace
}  // namespace heddle

int main() {
  return heddle::run();
}
