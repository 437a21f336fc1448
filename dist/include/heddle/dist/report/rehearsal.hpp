#pragma once

#include <heddle/core/config/config.hpp>
#include <heddle/core/layers/registries.hpp>
#include <heddle/core/model/model.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/dist/pipeline/pipeline.hpp>
#include <map>
#include <memory>
#include <string>

namespace heddle {

// Rehearses a step on groups whose other ranks do not exist: a model runs it without sending anything and, with
// KernelRegistries::idle, without computing. The code that allocates memory thus counts it, and no formula has to
// match that code.

/// The groups of a rank of `mesh`, whose other ranks need not exist: every verb checks its arguments and moves
/// nothing.
ParallelState idle_parallel_state(Mesh const& mesh, ParallelConfig const& config);

/// Adds up the memory that the kernels of a rehearsal would keep after its calls; memory that several calls name counts
/// once.
class KeptByKernels {
 public:
  void add(KernelCall const& call);
  std::int64_t bytes() const;

 private:
  std::map<std::string, std::int64_t> bytes_by_name_;
};

/// A rank's model in such groups, with kernels that compute nothing. Its parameters only reserve addresses. Kokkos must
/// be initialised.
class RehearsedRank {
 public:
  /// `observer` is notified of the kernels' calls. Keeps references to it and to the configuration. Throws ConfigError
  /// for an impossible layout.
  RehearsedRank(Config const& config, Mesh const& mesh, VocabularySizes const& vocabulary, Registries const& registries,
                KernelObserver& observer);
  RehearsedRank(RehearsedRank const&) = delete;
  RehearsedRank& operator=(RehearsedRank const&) = delete;

  ~RehearsedRank();

  ParallelState const& parallel() const;
  ParameterSet const& parameters() const;
  Model const& model() const;
  Pipeline& pipeline();
  Execution& execution();
  /// This rank's share of the stream's rows in training.
  GroupMember row_split() const;
  GroupMember context() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace heddle
