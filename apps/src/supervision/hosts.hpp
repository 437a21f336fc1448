#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

/// A host and the number of ranks that it can run.
struct Host {
  std::string name;
  int slots = 1;
};

/// "n1:4,n2:4", as mpirun's --host has it; a host without a number has one slot. Throws UsageError.
std::vector<Host> parse_hosts(std::string const& text);
/// The same form.
std::string to_string(std::vector<Host> const& hosts);
int slots_of(std::vector<Host> const& hosts);

/// The hosts that answer within this time: something, also a refusal, to the begin of a TCP connection to port 22. If
/// none does, a firewall may swallow all, and nothing is known: then all are returned. One that cannot be called, as
/// this machine has no memory or files left, counts as answering.
std::vector<Host> answering(std::vector<Host> const& hosts, std::chrono::milliseconds patience);

/// The first of the hosts that have so many slots together; nothing if all of them have fewer.
std::optional<std::vector<Host>> enough_for(std::vector<Host> const& hosts, int ranks);

/// The names of those of `hosts` that are not among `present`, "n3, n4".
std::string missing_from(std::vector<Host> const& hosts, std::vector<Host> const& present);

}  // namespace heddle
