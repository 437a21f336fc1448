#pragma once

#include <cstdint>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/parameters/parameter.hpp>
#include <heddle/dist/optimizer/distributed_optimizer.hpp>

namespace heddle {

/// The digest of a contiguous tensor's bytes; see core/base/digest.hpp.
std::uint64_t digest(Tensor const& tensor);

/// Compares every parameter's value and, if there is an optimizer, the state that it keeps here, by digests of their
/// bits, among the ranks that must hold the same by its Placement: the replicas, the stages that hold it, and the ranks
/// along axes that do not split it. If any differ, throws Error with ExitCode::replicas_diverged, the same on every
/// rank, naming a tensor and the world ranks on either side. A difference between replicas is named before one between
/// tensor ranks, which may only follow from it. State that only one replica has, because the optimizer is sharded, that
/// replica compares with what its last updates left: see DistributedOptimizer::damaged. Collective over the world.
void check_replicas(ParallelState const& parallel, ParameterSet const& parameters,
                    DistributedOptimizer const* optimizer = nullptr);

}  // namespace heddle
