#pragma once

#include <cstdint>
#include <heddle/core/communicator.hpp>
#include <heddle/core/parameter.hpp>

namespace heddle {

/// A 64-bit digest of a contiguous tensor's bytes: any change shows with probability 1 - 2⁻⁶⁴; no defence against
/// intent.
std::uint64_t digest(Tensor const& tensor);

/// Compares every parameter's value, bit by bit through digests, over the data group, whose ranks must hold the same.
/// Throws Error with ExitCode::replicas_diverged on all of them otherwise, naming the first parameter that differs and
/// the world ranks on either side. Collective over the data group.
void check_replicas(ParallelState const& parallel, ParameterSet const& parameters);

}  // namespace heddle
