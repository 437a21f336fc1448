#pragma once

#include <cstdint>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/parameters/parameter.hpp>
#include <heddle/core/training/optimizer.hpp>

namespace heddle {

/// A 64-bit digest of a contiguous tensor's bytes: detects any change with probability 1 - 2⁻⁶⁴, but is no protection
/// against deliberate change.
std::uint64_t digest(Tensor const& tensor);

/// Compares every parameter's value, by digests of its bits, among the ranks that must hold the same: the replicas;
/// the tensor group for values that are not split over it; the stages for values that several stages hold. Throws
/// Error with ExitCode::replicas_diverged on every rank of a group that differs, naming the first such tensor and the
/// world ranks on either side. Collective over the world.
void check_replicas(ParallelState const& parallel, ParameterSet const& parameters);
/// Compares, in the same way, values and the moments that an optimizer keeps here, a different part on each rank if
/// they are sharded.
void check_replicas(ParallelState const& parallel, ParameterSet const& parameters, Optimizer const& moments);

}  // namespace heddle
