#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace heddle {

/// A host and the number of ranks that it can run.
struct Host {
  std::string name;
  int slots = 1;

  bool operator==(Host const&) const = default;
};

/// "8,6,4" as numbers. Throws UsageError.
std::vector<int> parse_ranks(std::string const& text);
/// "n1:4,n2:4", as mpirun's --host has it; a host without a number has one slot. Throws UsageError.
std::vector<Host> parse_hosts(std::string const& text);
/// The text that parse_hosts reads.
std::string to_string(std::vector<Host> const& hosts);
int slots_of(std::vector<Host> const& hosts);

/// The hosts of a start and its number of ranks.
struct HostAllocation {
  std::vector<Host> hosts;
  int ranks = 0;
};
/// The first of the numbers of ranks for which the hosts have slots, on the first hosts that have enough; without
/// numbers all hosts and slots. Nothing if the hosts have too few slots for any number.
std::optional<HostAllocation> place(std::vector<Host> const& hosts, std::span<int const> numbers);

/// The names of the hosts that are not among `present`, "n3, n4".
std::string missing_from(std::vector<Host> const& hosts, std::vector<Host> const& present);

}  // namespace heddle
