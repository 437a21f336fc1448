#pragma once

#include <cstdint>
#include <heddle/core/parameters/parameter.hpp>
#include <heddle/core/training/optimizer.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace heddle {

/// Digests of what only this rank updates with a sharded optimizer: the rules' state, and its part of the values, which
/// the other replicas get from it. Digests are taken after an update and compared before the next one, so that a bit
/// that was flipped in between is found, although the replicas agree on the result. The digests of a block are taken
/// beside its update, while it is in the processor's cache. For tensors in host memory. Keeps a reference to the
/// parameters. Not collective.
class OwnedState {
 public:
  /// `blocks` are the ranges of the buffers that are updated one at a time, ascending, each within one of the
  /// optimizer's parts.
  OwnedState(ParameterSet const& parameters, Optimizer const& optimizer, std::vector<IndexRange> const& blocks);

  // An update: `begin`, then for each block `compare`, its update and `record`; `end` after the parameters' versions
  // have been incremented.
  void begin();
  void compare(IndexRange const& block);
  void record(IndexRange const& block);
  void end();
  /// Whether the digests are those of the values as they are.
  bool is_recorded() const { return recorded_ == version(); }
  /// Forgets digests and damage: the state was changed by something else than an update. Values that something else
  /// changed are known by the parameters' versions.
  void forget();

  /// The tensors that changed outside of an update since `forget`, "adam.first_moment of NAME's elements 16 to 31",
  /// those that have changed since the last update included.
  std::vector<std::string> damaged() const;

 private:
  /// The values, or the state of one key, of one parameter's elements within a block.
  struct Piece {
    IndexRange range;  ///< of the buffers
    Parameter const* parameter;
    std::string key;  ///< "" of the values
    Tensor elements;
    std::uint64_t digest = 0;
    bool damaged = false;
  };

  std::span<Piece> pieces_of(IndexRange const& block);
  std::uint64_t version() const;

  ParameterSet const& parameters_;
  std::vector<Piece> pieces_;
  std::optional<std::uint64_t> recorded_;  ///< the version whose digests there are
  bool comparable_ = false;                ///< in the present update
};

}  // namespace heddle
