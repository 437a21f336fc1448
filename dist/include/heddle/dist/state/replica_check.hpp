#pragma once

#include <cstdint>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/parameters/parameter.hpp>
#include <heddle/core/training/optimizer.hpp>

namespace heddle {

/// A 64-bit digest of a contiguous tensor's bytes: any change shows with probability 1 - 2⁻⁶⁴; no defence against
/// intent.
std::uint64_t digest(Tensor const& tensor);

/// Compares every parameter's value, bit by bit through digests, among the ranks that must hold the same: the replicas,
/// for values that are not split over tensor the tensor group, for values that several stages hold those stages. Throws
/// Error with ExitCode::replicas_diverged on every rank of a group that differs, naming the first such tensor and the
/// world ranks on either side. Collective over the world.
void check_replicas(ParallelState const& parallel, ParameterSet const& parameters);
/// Compares, in the same way, values and the moments that an optimizer keeps here, a different part on each rank where
/// they are sharded.
void check_replicas(ParallelState const& parallel, ParameterSet const& parameters, Optimizer const& moments);

}  // namespace heddle
