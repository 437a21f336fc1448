#pragma once

#include <functional>
#include <heddle/core/parallel/communicator.hpp>

namespace heddle {

/// Runs `action` on every rank. If it throws on any rank, throws the same error on all of them, with the name of the
/// first rank that failed. `action` may not be collective. Collective over `group`.
void together(Communicator const& group, std::function<void()> const& action);

/// As `together`, for an action of rank 0.
void on_rank_0(Communicator const& group, std::function<void()> const& action);

}  // namespace heddle
