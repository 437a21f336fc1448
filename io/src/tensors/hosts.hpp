#pragma once

#include <cstddef>
#include <cstdint>
#include <heddle/core/parallel/communicator.hpp>
#include <vector>

namespace heddle {

/// The hosts of a group of ranks, in the order of their first ranks.
struct Hosts {
  std::vector<std::vector<int>> ranks;  ///< [host], ascending
  std::vector<std::size_t> host_of;     ///< [rank]
  int rank = 0;                         ///< this process's

  /// Hosts are told apart by their names. Collective over `world`.
  static Hosts gather(Communicator const& world);

  std::size_t size() const { return ranks.size(); }
  std::size_t own() const { return host_of[static_cast<std::size_t>(rank)]; }
  /// True on the first rank of each host.
  bool leads() const { return ranks[own()].front() == rank; }
  /// The host that keeps a copy of the files of `host` in its memory: the next one, which may be the same.
  std::size_t buddy(std::size_t host) const { return (host + 1) % size(); }
  /// A rank of `host`; successive turns take successive ranks.
  int rank_on(std::size_t host, std::size_t turn) const { return ranks[host][turn % ranks[host].size()]; }
  /// The ranks that write the tensors' files, ascending: `wanted` of them, evenly spread, or if that is 0 up to
  /// `max_on_host` of each host.
  std::vector<int> writers(std::int64_t wanted, int max_on_host = 1) const;
};

}  // namespace heddle
