#include <fmt/format.h>

#include <chrono>
#include <heddle/core/tensor/runtime.hpp>
#include <heddle/dist/mpi/mpi.hpp>
#include <heddle/dist/watch/watch.hpp>
#include <iostream>
#include <optional>
#include <string_view>
#include <thread>

#include "dist/layout_run.hpp"
#include "watch/decorated_backend.hpp"

// The program of hangs.sh: ranks train a tiny model in a layout until one of them goes another way than the others.
namespace heddle {
namespace {

/// The arguments: see `usage`.
struct Options {
  std::string_view fault;
  int rank = 0;
  int number = 0;
  MeshShape shape = {};
  double hang_seconds = 0;
  bool checked = false;
};

void announce(int rank, std::string const& fault) {
  auto const now =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch());
  std::cerr << fmt::format("fault: rank {} {} at {}\n", rank, fault, now.count()) << std::flush;
}

/// The number of collectives of a rank, in groups of several ranks, until the one with the fault; 0: none will come.
using Countdown = std::shared_ptr<int>;

/// At the end of its countdown, this rank calls another collective first.
class FaultyBackend final : public DecoratedBackend {
 public:
  FaultyBackend(std::shared_ptr<CommunicatorBackend> inner, NamedGroup group, Countdown countdown)
      : DecoratedBackend(std::move(inner), std::move(group)), countdown_(std::move(countdown)) {}

 protected:
  void before(CollectiveCall const& call) override {
    if (*countdown_ == 0 || size() == 1 || call.is_message() || --*countdown_ > 0) {
      return;
    }
    bool const barrier = call.collective == CollectiveOp::barrier;
    announce(world_rank(rank()),
             fmt::format("calls {0}.{1} before {0}.{2}", group().name, barrier ? "broadcast" : "barrier", call.name()));
    Tensor const number = barrier ? Tensor::allocate(DType::float32, {1}) : Tensor();
    inner().backend()->run({.collective = barrier ? CollectiveOp::broadcast : CollectiveOp::barrier,
                            .input = number,
                            .output = number,
                            .peer = (rank() + 1) % size()});
  }
  std::shared_ptr<CommunicatorBackend> decorate(std::shared_ptr<CommunicatorBackend> part, int /*color*/,
                                                NamedGroup group) override {
    return std::make_shared<FaultyBackend>(std::move(part), std::move(group), countdown_);
  }

 private:
  Countdown countdown_;
};

/// Returns only on a rank that leaves early.
void train(Options const& options, MpiSession const& session, Watch& watch) {
  auto const plain = session.world().backend();
  auto const watched = watch.watched(options.checked ? checked(plain) : plain);
  auto const countdown = std::make_shared<int>(0);
  Communicator const world(decorated<FaultyBackend>(watched, countdown));
  LayoutRun run(all_variants().front(), {.shape = options.shape}, world);
  bool const faulty = world.rank() == options.rank;
  bool const leaves = faulty && options.fault == "early";
  *countdown = faulty && !leaves ? options.number : 0;
  for (int step = 0; !leaves || step < options.number; ++step) {
    watch.phase("training step", step + 1);
    run.accumulate(step);
    run.engine().update(run.rate(), step + 1);
  }
  announce(world.rank(), "leaves early");
  watch.finish("leaving the run");
}

int main_of(Options const& options) {
  Runtime const runtime;
  std::optional<Watch> watch;  // answers until MPI has ended, as in `heddle train`
  MpiSession const session;
  watch.emplace(session.world(), Watch::Options{.hang_seconds = options.hang_seconds});
  try {
    train(options, session, *watch);
  } catch (std::exception const& error) {
    watch.reset();
    std::cerr << fmt::format("rank {}: {}\n", session.world().rank(), error.what()) << std::flush;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // lets the others print theirs
    session.abort(1);
  }
  return 0;
}

}  // namespace
}  // namespace heddle

int main(int count, char** arguments) {
  char const* const usage =
      "usage: hanging_ranks mismatch|early RANK NUMBER PIPELINE DATA CONTEXT TENSOR HANG_SECONDS [checked]\n"
      "NUMBER: of this rank's collective before which it calls another one, or of the step after which it leaves\n";
  if (count < 9) {
    std::cerr << usage;
    return 64;
  }
  heddle::Options options{.fault = arguments[1], .rank = std::atoi(arguments[2]), .number = std::atoi(arguments[3])};
  auto const size = [&](int axis) { return std::atoi(arguments[4 + axis]); };
  options.shape = {size(0), size(1), size(2), size(3)};
  options.hang_seconds = std::atof(arguments[8]);
  options.checked = count > 9;
  return heddle::main_of(options);
}
