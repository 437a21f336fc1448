#pragma once

#include <heddle/core/config/config.hpp>
#include <heddle/core/layers/registries.hpp>
#include <heddle/core/model/teacher.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/tensor/execution.hpp>
#include <heddle/dist/optimizer/gathered_parameters.hpp>
#include <heddle/dist/pipeline/pipeline.hpp>
#include <heddle/dist/planning/layout_choice.hpp>
#include <heddle/dist/report/traffic_report.hpp>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace heddle {

// Runs a step dry on groups whose other ranks do not exist: a model runs it without sending anything and, with
// KernelRegistries::dry_run, without computing. The code that allocates memory thus counts it, and no formula has to
// match that code.

/// The groups of a rank of `mesh`, whose other ranks need not exist: every collective checks its arguments and moves
/// nothing.
ParallelState idle_parallel_state(Mesh const& mesh, ParallelConfig const& config);

/// Equal calls of a kernel.
struct KernelCalls {
  std::string kind;
  Cost cost;  ///< cost of one call
  double calls = 0;
};

/// An implementation that a layer selects.
struct SelectedKernel {
  std::string operation;
  std::string problem;  ///< a description
  std::string implementation;

  auto operator<=>(SelectedKernel const&) const = default;
};

/// Notes the kernels that a dry run selects and calls.
class DryRunCalls final : public KernelObserver {
 public:
  void selected(KernelSelection const& selection) override;
  void observe(Execution& execution, KernelCall const& call) override;

  /// Sorted, each once.
  std::vector<SelectedKernel> selections() const { return {selections_.begin(), selections_.end()}; }
  /// The calls since the previous take().
  std::vector<KernelCalls> take();
  /// The memory that kernels would keep after all calls; memory that several calls name counts once.
  std::int64_t kept_bytes() const;
  /// The bytes that the largest call reads and writes. A kernel's scratch holds other forms of its operands.
  std::int64_t largest_call() const { return largest_call_; }

 private:
  std::set<SelectedKernel> selections_;
  std::map<std::string, std::vector<KernelCalls>> calls_;
  std::map<std::string, std::int64_t> kept_by_name_;
  std::int64_t largest_call_ = 0;
};

/// A rank's model in such groups, with kernels that compute nothing. Its parameters only reserve addresses. Kokkos must
/// be initialised.
struct DryRunRank {
  /// Keeps a reference to the configuration. Throws ConfigError for an impossible layout.
  DryRunRank(Config const& config, Mesh const& mesh, VocabularySizes const& vocabulary, Registries const& registries);

  /// Trains all parameters that are not frozen for good: as the run's last steps do.
  void unfreeze_all(Registries const& registries);

  /// The elements of the teachers' values.
  std::int64_t teacher_elements();

  static constexpr Arena::Kind arenas = Arena::Kind::addresses;

  DryRunCalls calls;
  KernelRegistries kernels;
  DType dtype;
  ParallelState parallel;
  ParameterSet parameters;
  std::optional<Arena> values;
  Arena scratch{Arena::default_capacity(arenas), arenas};
  Execution execution{Kokkos::DefaultExecutionSpace(), scratch};
  Model model;
  std::deque<Teacher> teachers;
  Pipeline pipeline;
  std::optional<GatheredParameters> gathered;  ///< none where every replica has all parameters

  ParameterAccess* access() { return gathered ? &*gathered : nullptr; }

 private:
  LayerSpec spec(Config const& config);
};

/// A pass of a micro-batch through a part of a stage.
struct PassWork {
  std::vector<KernelCalls> kernels;
  TrafficByGroup traffic{};  ///< without the pipeline's messages
};

/// The parameters of one rank that one rule updates.
struct UpdateWork {
  std::int64_t elements = 0;
  std::int64_t shared = 0;  ///< of them: elements that other stages hold, too
  std::int64_t state = 0;   ///< tensors that the rule keeps
  // With a rule over matrices:
  std::int64_t matrices = 0;        ///< their number
  std::int64_t split_elements = 0;  ///< elements of those whose slices tensor ranks hold
  Cost functions{};                 ///< of this rank's share of the matrices among the holders of slices
};

/// The work and the memory of one rank, for a micro-batch and for the update of its parameters.
struct RankWork {
  std::vector<PassWork> forward, backward;         ///< by part
  std::vector<PassWork> weights;                   ///< by part, where backward passes are split
  std::vector<std::int64_t> input_bytes;           ///< by part: the message that each pass takes, in either direction
  std::vector<std::int64_t> activations;           ///< by part: bytes kept from a forward pass to its backward pass
  std::int64_t temporary = 0;                      ///< bytes that only a backward pass needs
  std::int64_t kept_by_kernels = 0;                ///< bytes of packed weights
  std::int64_t parameters = 0;                     ///< elements that this rank keeps
  std::int64_t rounded = 0;                        ///< of them: kept in bfloat16
  std::int64_t divided_values = 0;                 ///< trained elements whose values the replicas divide
  std::int64_t divided_gradients = 0;              ///< and whose gradients they divide
  std::int64_t shared_divided_values = 0;          ///< elements of divided_values that other stages hold, too
  std::int64_t shared_divided_gradients = 0;       ///< the same of divided_gradients
  std::int64_t copied_gradients = 0;               ///< this rank's of them, of which other replicas have copies
  std::int64_t gathered_values = 0;                ///< bytes of units in use: GatheredParameters::value_bytes
  std::int64_t gathered_gradients = 0;             ///< the same for gradients
  std::int64_t shared_elements = 0;                ///< elements that other stages hold, too
  int max_holders = 1;                             ///< stages that hold one of these
  std::int64_t partial_elements = 0;               ///< elements of sums of gradients over axes of the model
  std::map<std::string, UpdateWork> updates = {};  ///< by the rule's name; without frozen parameters
  DType parameter_dtype = DType::float32;

  std::int64_t trained() const;
  std::int64_t element_bytes() const { return static_cast<std::int64_t>(size_of(parameter_dtype)); }
  std::int64_t parameter_bytes() const {
    return (parameters - rounded) * element_bytes() + rounded * static_cast<std::int64_t>(sizeof(BFloat16));
  }
};

/// The ranks of one stage of a layout, seen by the last of its tensor and context groups, which has the largest share.
/// `pack`: that rank's part of a micro-batch. Nothing runs: see DryRunRank. Throws ConfigError for an impossible
/// layout.
RankWork dry_run_stage(Config const& config, LayoutChoice const& layout, int stage, VocabularySizes const& vocabulary,
                       Registries const& registries, Pack const& pack);

struct LayerGroup {
  RankWork const* layer = nullptr;  ///< the work of one of them, from a dry run as a stage of its own
  std::int64_t count = 0;
};

/// Adds up the work of one of `stages` stages from its layers, by part. A table that several layers share counts once
/// in a stage.
RankWork sum_of_layers(std::vector<std::vector<LayerGroup>> const& parts, int stages);

/// The rank of a layout's mesh that dry_run_stage sees: of data rank 0.
int dry_run_rank(LayoutChoice const& layout, int stage);

/// The kernels of an update after the gradients were reduced: their norm and the rules. Each of `ranks` ranks owns a
/// part of the parameters.
std::vector<KernelCalls> update_kernels(RankWork const& work, int ranks);

}  // namespace heddle
