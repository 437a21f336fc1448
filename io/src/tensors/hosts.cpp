#include "hosts.hpp"

#include <heddle/core/base/host_name.hpp>
#include <heddle/core/base/random.hpp>
#include <heddle/core/parallel/host_values.hpp>
#include <map>

namespace heddle {

Hosts Hosts::gather(Communicator const& world) {
  Hosts hosts;
  hosts.rank = world.rank();
  std::map<std::uint64_t, std::size_t> numbers;
  int rank = 0;
  for (std::uint64_t const key : gather_values(world, random_key(0, host_name()))) {
    std::size_t const host = numbers.try_emplace(key, numbers.size()).first->second;
    hosts.ranks.resize(numbers.size());
    hosts.ranks[host].push_back(rank++);
    hosts.host_of.push_back(host);
  }
  return hosts;
}

}  // namespace heddle
