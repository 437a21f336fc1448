#pragma once

#include <heddle/core/parallel/communicator.hpp>
#include <heddle/dist/state/whole_model.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <set>
#include <string>

namespace heddle {

/// Attaches the base that a checkpoint names, if it lacks parameters, and the base's own. `elsewhere`, a run, its
/// checkpoints or one of them, is looked at if the base is no longer where it was; "": nothing is. Throws DataError if
/// a checkpoint with the base's digest is at neither place, or does not verify. Collective over `world`.
void attach_base(Checkpoint& checkpoint, std::string const& elsewhere, Communicator const& world);

/// Throws DataError unless the checkpoint's base is one of those at `place`.
void require_base(Checkpoint const& checkpoint, std::string const& place);

/// The frozen parameters that are in the base, too.
std::set<std::string> left_to_base(CheckpointBase const& base, WholeModel const& model);

}  // namespace heddle
