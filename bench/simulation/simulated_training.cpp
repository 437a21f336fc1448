// A rank of a simulated training run: Heddle's own engine, pipeline, reductions and optimizer on SimGrid's MPI, with
// kernels that only let time pass. Started by bench/simulate_scaling.
#include <fmt/format.h>
#include <smpi/smpi.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <array>
#include <boost/program_options.hpp>
#include <cstdlib>
#include <fstream>
#include <heddle/core/base/error.hpp>
#include <heddle/core/config/config.hpp>
#include <heddle/core/model/built_in_layers.hpp>
#include <heddle/core/model/layout.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/core/tensor/runtime.hpp>
#include <heddle/dist/mpi/mpi.hpp>
#include <heddle/dist/planning/planner.hpp>
#include <heddle/dist/training/training_engine.hpp>
#include <limits>
#include <optional>

#include "clock.hpp"
#include "equal_batches.hpp"
#include "waiting.hpp"

namespace heddle {
namespace {

struct Options {
  std::string config;
  std::vector<std::string> overrides;
  std::string out;
  KernelRates rates;
  int ranks_per_node = 8;
  int planned_ranks = 0;  ///< 0: simulate; otherwise plan a step of this number of ranks
  std::int64_t sentence_tokens = 128;
  std::int64_t vocabulary = 32000;
  double seconds_between_looks = 1e-4;
  std::int64_t bucket_elements = GradientReducer::default_bucket;
  std::int64_t message_elements = eager_elements;
  LinkModel inside_node;
  LinkModel between_nodes;
};

Options parse(int argc, char** argv) {
  namespace po = boost::program_options;
  Options options;
  po::options_description description("simulated_training");
  auto const required = [](auto& value) { return po::value(&value)->required(); };
  description.add_options()                                                                                    //
      ("config", required(options.config), "model, training, layout")                                          //
      ("set", po::value(&options.overrides)->composing(), "a key's value in place of the file's")              //
      ("out", required(options.out), "the file for results, which shows that the run came to its end")         //
      ("operations", required(options.rates.operations_per_second), "of matrix products, a second of a rank")  //
      ("bytes", required(options.rates.bytes_per_second), "of other kernels, a second of a rank")              //
      ("ranks-per-node", required(options.ranks_per_node), "")                                                 //
      ("plan", po::value(&options.planned_ranks), "plan a step of this number of ranks and simulate none")     //
      ("sentence", required(options.sentence_tokens), "tokens of each sentence")                               //
      ("vocabulary", required(options.vocabulary), "pieces")                                                   //
      ("look", required(options.seconds_between_looks), "seconds between two looks of a rank that waits")      //
      ("bucket", required(options.bucket_elements), "elements of a bucket of gradients")                       //
      ("message", required(options.message_elements), "elements of a message of these")                        //
      ("inside-latency", required(options.inside_node.latency),
       "seconds of a message inside a node, for the planner")                                  //
      ("inside-byte", required(options.inside_node.seconds_per_byte), "seconds of each byte")  //
      ("between-latency", required(options.between_nodes.latency), "the same between nodes")   //
      ("between-byte", required(options.between_nodes.seconds_per_byte), "");
  po::variables_map values;
  try {
    po::store(po::parse_command_line(argc, argv, description), values);
    po::notify(values);
  } catch (po::error const& error) {
    throw UsageError(error.what());
  }
  return options;
}

/// Large messages are not copied: nobody reads them. Others carry numbers that the engine needs.
void copy_small_messages(smx_activity_t message, void* data, std::size_t bytes) {
  constexpr std::size_t max = 16384;
  // Only messages come here; their class, which is not in SimGrid's headers, has the given one as its first base.
  smpi_comm_copy_buffer_callback(reinterpret_cast<simgrid::kernel::activity::CommImpl*>(message), data,
                                 bytes > max ? 0 : bytes);
}

/// Everything that the ranks have in common.
struct Run {
  explicit Run(Options const& from)
      : options(from),
        config(load_config(from.config, from.overrides)),
        batches(config.train.batch_tokens, from.sentence_tokens) {
    register_built_in_layers(registries.layers);
    clock::set_rates(from.rates, from.seconds_between_looks);
  }

  Runtime runtime;
  Options options;
  Config config;
  EqualBatches batches;
  Registries registries;
  ClockKernels kernels;
};

/// A step's figures; simulated seconds are those of rank 0 between two barriers.
struct Simulated {
  double step_seconds = 0;
  double accumulate_seconds = 0;  ///< passes and the sum of gradients
  double pipeline_wait = 0;       ///< the ranks' mean
  double replicas_wait = 0;
};

/// Makes one step; collective.
Simulated simulate(Run& run, MpiSession const& session) {
  Communicator const world = session.world();
  ModelDescription const model = describe_model(run.config.model, run.registries.layers);
  Mesh const mesh = make_mesh(run.config, model, world.rank(), world.size());
  ParallelState parallel = make_parallel_state(world, mesh);
  parallel.sequence_parallel = run.config.parallel.sequence_parallel;
  parallel.context_mode = run.config.parallel.context_mode;
  parallel.divide_experts(run.config.parallel.expert);
  parallel.divide_parameters(shards_of(run.config.parallel));
  Registries registries = run.registries;
  registries.kernels = KernelRegistries().dry_run(run.kernels);
  Arena scratch;
  Execution execution{Kokkos::DefaultExecutionSpace(), scratch};
  WaitingTimes waiting;
  TrainingEngine engine({.config = run.config,
                         .registries = registries,
                         .parallel = parallel,
                         .execution = execution,
                         .vocabulary = {run.options.vocabulary, run.options.vocabulary, true},
                         .dtype = dtype_of(run.config.train.precision),
                         .observer = &waiting,
                         .bucket_elements = run.options.bucket_elements});
  auto const batch = run.batches.cut(0, {.max_tokens = run.config.train.micro_batch_tokens,
                                         .data = {mesh.coordinate(MeshAxis::data), mesh.size(MeshAxis::data)},
                                         .equal = mesh.size(MeshAxis::pipeline) > 1,
                                         .context = engine.context()});
  world.barrier();
  smpi_comm_set_copy_data_callback(copy_small_messages);
  double const begin = MPI_Wtime();
  engine.accumulate(*batch, 0);
  double const accumulated = MPI_Wtime();
  engine.update(1e-4, 1);
  world.barrier();
  Simulated result{.step_seconds = MPI_Wtime() - begin, .accumulate_seconds = accumulated - begin};
  std::array<double, 2> waits{waiting.pipeline() / world.size(), waiting.replicas() / world.size()};
  all_reduce_values(world, std::span<double>(waits));
  result.pipeline_wait = waits[0];
  result.replicas_wait = waits[1];
  return result;
}

/// The planner's estimate of the same step, with the same rates and a network of the same links.
LayoutPlan plan(Run const& run, int ranks) {
  Options const& options = run.options;
  NetworkModel network{.source = "of the platform"};
  network.inside_node.fill(options.inside_node);
  network.between_nodes.fill(options.between_nodes);
  KernelTimes const nothing_measured;
  ModelDescription const model = describe_model(run.config.model, run.registries.layers);
  Planner planner({.config = run.config,
                   .registries = run.registries,
                   .vocabulary = {options.vocabulary, options.vocabulary, true},
                   .machines = {.nodes = (ranks + options.ranks_per_node - 1) / options.ranks_per_node,
                                .ranks_per_node = std::min(ranks, options.ranks_per_node)},
                   .samples = run.batches,
                   .batch_tokens = run.config.train.batch_tokens,
                   .longest_sequence = options.sentence_tokens,
                   .network = network,
                   .times = nothing_measured,
                   .rates = options.rates,
                   .bucket_elements = options.bucket_elements});
  return planner.estimate(layout_of(run.config, model, ranks));
}

void write_results(Run const& run, Simulated const& simulated, LayoutPlan const& planned) {
  MemoryUse const& use = *std::ranges::max_element(planned.stages, {}, &MemoryUse::total);
  std::ofstream file(run.options.out);
  file << fmt::format(
      "{{\"layout\": \"{}\", \"simulated\": {{\"step\": {}, \"accumulate\": {}, \"pipeline_wait\": {}, "
      "\"replicas_wait\": {}}}, \"planned\": {{\"step\": {}, \"kernels\": {}, \"bubble\": {}, \"rank_bytes\": {}, "
      "\"parameters\": {}, \"gradients\": {}, \"state\": {}, \"activations\": {}, \"groups\": {{",
      describe(planned.layout), simulated.step_seconds, simulated.accumulate_seconds, simulated.pipeline_wait,
      simulated.replicas_wait, planned.step_seconds, planned.kernel_seconds, planned.bubble, use.total(),
      use.parameters, use.gradients, use.state, use.activations);
  char const* separator = "";
  for (GroupTraffic const& group : planned.groups) {
    file << fmt::format("{}\"{}\": {{\"bytes\": {}, \"seconds\": {}}}", separator, group.name, group.bytes,
                        group.seconds);
    separator = ", ";
  }
  file << "}}}\n";
  if (!file.flush()) {
    throw Error("{}: cannot be written", run.options.out);
  }
}

/// A rank's program.
int main_of_rank(int argc, char** argv) {
  // Not the session, since SimGrid's MPI promises no threads at all.
  MPI_Init(&argc, &argv);
  // The ranks are in one process: the first makes what they share.
  static std::optional<Run> run;
  try {
    if (!run) {
      run.emplace(parse(argc, argv));
    }
  } catch (std::exception const& error) {
    fmt::print(stderr, "simulated_training: {}\n", error.what());
    std::_Exit(1);
  }
  MpiSession const session(std::numeric_limits<int>::max(), run->options.message_elements);
  int const rank = session.world().rank();
  try {
    int const planned = run->options.planned_ranks;
    Simulated const simulated = planned > 0 ? Simulated() : simulate(*run, session);
    if (rank == 0) {
      write_results(*run, simulated, plan(*run, planned > 0 ? planned : session.world().size()));
    }
  } catch (std::exception const& error) {
    fmt::print(stderr, "simulated_training, rank {}: {}\n", rank, error.what());
    session.abort(1);
  }
  return 0;
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  int const code = heddle::main_of_rank(argc, argv);
  MPI_Finalize();
  return code;
}
